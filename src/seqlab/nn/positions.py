"""How a Transformer knows positions: from its inputs, in its queries and keys, or in its scores.

B rows · T positions · C keys · D width · H heads · K head width
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple, Self

import torch
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from seqlab import registry
from seqlab.errors import RecipeError, SeqlabError
from seqlab.nn.attention import Places, Rotation
from seqlab.recipe import Kind, PartSettings


class PositionSettings(PartSettings):
    """The settings of positions in a recipe."""

    @property
    def taken(self) -> int:
        """How many numbers of an input vector belong to the position rather than to the word."""
        return 0


AnyPosition = Annotated[SerializeAsAny[PositionSettings], Kind("position")]


class PositionShape(NamedTuple):
    """The sizes that a position part has to fit."""

    width: int
    heads: int
    head_width: int
    length: int | None = None
    """The largest number of positions that the model reads, if it has a limit."""
    causal: bool = True


def position(settings: PositionSettings, shape: PositionShape) -> Position:
    """Return the position part that a recipe names."""
    made: Position = registry.find("position", settings.kind)(settings, shape)
    return made


class Position(nn.Module):
    """Tells all layers where tokens are. The base class adds nothing: order shows only in what a position may see."""

    Settings: type[PositionSettings] = PositionSettings
    limit: int | None = None
    """The largest number of positions; None if there is no limit."""

    def __init__(self, settings: PositionSettings, shape: PositionShape) -> None:
        super().__init__()

    def check(self, length: int) -> None:
        """Raise an error for a sequence that is longer than the limit."""
        if self.limit is not None and length > self.limit:
            hint = "shorten the texts, or train with a larger model.position.length"
            raise SeqlabError(
                f"a sequence has {length:,} tokens, but the model has {self.limit:,} positions", hint=hint
            )

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add positions (B, T) or (T,) to the inputs (B, T, ...) → (B, T, D)."""
        return x

    def rotation(self, positions: Tensor, like: Tensor) -> Rotation | None:
        """The rotation of queries and keys at these positions, or None."""
        return None

    def bias(self, positions: Tensor, length: int, like: Tensor) -> Tensor | None:
        """Added to scores, (B or 1, H, T, C), of queries at positions (B, T) or (T,) and keys 0 to C − 1; or None."""
        return None

    def placed(self, places: Places, like: Tensor) -> Places:
        """Add the rotation and the bias to `places`."""
        places.rotation = self.rotation(places.positions, like)
        places.bias = self.bias(places.positions, places.length, like)
        return places


# ---------------------------------------------------------------------- in the inputs


class InputSettings(PositionSettings):
    concatenate: int = Field(default=0, ge=0)
    """Width of P in x = [E[w]; P[t]]; if 0, x = E[w] + P[t]."""

    @property
    def taken(self) -> int:
        return self.concatenate


class AtInputs(Position):
    """x + P[t], or [x; P[t]]"""

    def __init__(self, settings: InputSettings, shape: PositionShape) -> None:
        super().__init__(settings, shape)
        self.width, self.concatenate = settings.concatenate or shape.width, settings.concatenate > 0

    def vectors(self, positions: Tensor, like: Tensor) -> Tensor:
        """P[t]: (...) → (..., D)"""
        raise NotImplementedError

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        p = self.vectors(positions, x)
        return torch.cat([x, p.expand(*x.shape[:-1], -1)], -1) if self.concatenate else x + p


class Learned(AtInputs):
    """P is a learned table with one row per position."""

    class Settings(InputSettings):
        length: int | None = Field(default=None, gt=0)
        """Number of positions, for models that do not set it themselves."""

    def __init__(self, settings: Settings, shape: PositionShape) -> None:
        super().__init__(settings, shape)
        if (count := settings.length or shape.length) is None:
            hint = "set model.position.length, or choose sinusoidal"
            raise RecipeError("learned positions need a length", where="model.position", hint=hint)
        if count < (shape.length or 0):
            what = f"{count:,} learned positions are fewer than 'model.context' {shape.length:,}"
            raise RecipeError(what, where="model.position.length", hint="leave it out")
        self.limit = count
        self.weight = nn.Parameter(torch.empty(count, self.width))
        nn.init.normal_(self.weight)

    def vectors(self, positions: Tensor, like: Tensor) -> Tensor:
        return nn.functional.embedding(positions.clamp(max=len(self.weight) - 1), self.weight)  # others are padding


class Sinusoidal(AtInputs):
    """P consists of sine waves, so that any length can be read."""

    Settings = InputSettings

    def vectors(self, positions: Tensor, like: Tensor) -> Tensor:
        return sinusoids(positions, self.width, like)


def sinusoids(positions: Tensor, width: int, like: Tensor) -> Tensor:
    """P[t, 2i] = sin(t / 10000^(2i / D)), P[t, 2i + 1] = cos(t / 10000^(2i / D)): positions (...) → (..., D).

    With the device and precision of `like`. Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32, device=like.device) * (-math.log(10_000) / width))
    angles = positions[..., None].to(torch.float32) * rates
    waves = torch.stack([torch.sin(angles), torch.cos(angles)], -1).flatten(-2)
    return waves[..., :width].to(like.dtype)


# ---------------------------------------------------------------------- in queries and keys


class Rotary(Position):
    """Rotates q and k by t / base^(2i / R), so that their products depend on the distance between them.

    Su et al. 2021, https://arxiv.org/abs/2104.09864
    """

    class Settings(PositionSettings):
        base: float = Field(default=10_000.0, gt=1)
        """Base of the rotation angles, position · base^(−2i / R)."""
        share: float = Field(default=1.0, gt=0, le=1)
        """Share of the numbers in a head that are rotated: R = share · K."""

    def __init__(self, settings: Settings, shape: PositionShape) -> None:
        super().__init__(settings, shape)
        self.base, self.turned = settings.base, int(settings.share * shape.head_width)
        if self.turned % 2:
            hint = "choose model.heads or model.position.share so that the number is even"
            what = f"{self.turned} numbers of a head cannot be rotated in pairs"
            raise RecipeError(what, where="model.position", hint=hint)

    def rotation(self, positions: Tensor, like: Tensor) -> Rotation | None:
        steps = torch.arange(0, self.turned, 2, dtype=torch.float32, device=like.device)
        angles = positions[..., None].to(torch.float32) * self.base ** -(steps / self.turned)
        angles = angles[:, :, None] if positions.dim() == 2 else angles[None, :, None]
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


# ---------------------------------------------------------------------- in the scores


class Alibi(Position):
    """q · k − m_h |t − s|: each head h penalises distance with its own fixed slope.

    Press et al. 2022, https://arxiv.org/abs/2108.12409
    """

    def __init__(self, settings: PositionSettings, shape: PositionShape) -> None:
        super().__init__(settings, shape)
        self.heads = shape.heads

    def bias(self, positions: Tensor, length: int, like: Tensor) -> Tensor | None:
        slopes = torch.tensor(alibi_slopes(self.heads), dtype=like.dtype, device=like.device)
        apart = _apart(positions, length).abs()
        return -slopes[:, None, None] * apart[:, None].to(like.dtype)


def alibi_slopes(heads: int) -> list[float]:
    """2^(−8 h / H) for h = 1 ... H if H is a power of two; otherwise the slopes of the next lower power, then every
    other slope of the next higher one, as published."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * (heads - power), 2)]


class Buckets(Position):
    """q · k + b[h, bucket(s − t)]: short distances have a bucket each, and buckets widen with the distance.

    Raffel et al. 2020, https://arxiv.org/abs/1910.10683 (T5)
    """

    class Settings(PositionSettings):
        buckets: int = Field(default=32, ge=4)
        """Number of buckets, each with a bias per head."""
        farthest: int = Field(default=128, gt=1)
        """All distances from this one on share the last bucket."""

        @model_validator(mode="after")
        def _far_enough(self) -> Self:
            if self.farthest <= self.buckets // 2:
                raise ValueError(f"farthest {self.farthest} should be more than half of buckets {self.buckets}")
            return self

    def __init__(self, settings: Settings, shape: PositionShape) -> None:
        super().__init__(settings, shape)
        self.farthest, self.causal = settings.farthest, shape.causal
        self.weight = nn.Parameter(torch.empty(settings.buckets, shape.heads))
        nn.init.normal_(self.weight)

    def bias(self, positions: Tensor, length: int, like: Tensor) -> Tensor | None:
        found = bucket(_apart(positions, length), len(self.weight), self.farthest, self.causal)
        return nn.functional.embedding(found, self.weight).movedim(-1, 1)


def bucket(apart: Tensor, count: int, farthest: int, causal: bool) -> Tensor:
    """The bucket of each distance s − t; unless causal, half of the buckets are for later positions."""
    after = torch.zeros_like(apart)
    if not causal:
        count //= 2
        after, apart = (apart > 0) * count, -apart.abs()
    far = (-apart).clamp(min=0)
    exact = count // 2
    shared = torch.log(far.clamp(min=1).float() / exact) / math.log(farthest / exact) * (count - exact)
    return after + torch.where(far < exact, far, (exact + shared.long()).clamp(max=count - 1))


def _apart(positions: Tensor, length: int) -> Tensor:
    """s − t for queries at t (B, T) or (T,) and keys s = 0 ... C − 1: (B or 1, T, C)"""
    queries = positions if positions.dim() == 2 else positions[None]
    return torch.arange(length, device=positions.device) - queries[..., None]
