"""How a Transformer knows where something stands: at its inputs, in its queries and keys, or in its scores.

B rows · T positions · C keys · D width · H heads · K head width
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple, Self

import torch
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from seqlab import registry
from seqlab.errors import RecipeError
from seqlab.nn.attention import Places, Rotation
from seqlab.recipe import Kind, PartSettings


class PositionSettings(PartSettings):
    """What a recipe says of positions."""

    @property
    def taken(self) -> int:
        """How many of the numbers of an input are the position's own, and not the word's."""
        return 0


AnyPosition = Annotated[SerializeAsAny[PositionSettings], Kind("position")]


class PositionShape(NamedTuple):
    """What a position has to fit."""

    width: int
    heads: int
    head_width: int
    length: int | None = None
    """How many positions the model reads at the most, if it says so."""
    causal: bool = True


def position(settings: PositionSettings, shape: PositionShape) -> Position:
    """The part that a recipe names."""
    made: Position = registry.find("position", settings.kind)(settings, shape)
    return made


class Position(nn.Module):
    """The same for all layers. This one says nothing: what stands where is only known from what a position may see."""

    Settings: type[PositionSettings] = PositionSettings

    def __init__(self, settings: PositionSettings, shape: PositionShape) -> None:
        super().__init__()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Inputs (B, T, ...) that know their positions (B, T) or (T,): (B, T, D)"""
        return x

    def rotation(self, positions: Tensor, like: Tensor) -> Rotation | None:
        """By which angles queries and keys at these positions are turned."""
        return None

    def bias(self, positions: Tensor, length: int, like: Tensor) -> Tensor | None:
        """What is added to the scores of queries at positions (B, T) or (T,) and keys 0 to C − 1: (B or 1, H, T, C)"""
        return None

    def placed(self, places: Places, like: Tensor) -> Places:
        """With what attention should know."""
        places.rotation = self.rotation(places.positions, like)
        places.bias = self.bias(places.positions, places.length, like)
        return places


# ---------------------------------------------------------------------- at the inputs


class InputSettings(PositionSettings):
    concatenate: int = Field(default=0, ge=0)
    """x = [E[w]; P[t]], with so many numbers for P; where it is 0, x = E[w] + P[t]."""

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
    """P is a table, a row for each position."""

    class Settings(InputSettings):
        length: int | None = Field(default=None, gt=0)
        """How many positions there are, where the model does not say."""

    def __init__(self, settings: Settings, shape: PositionShape) -> None:
        super().__init__(settings, shape)
        if (count := settings.length or shape.length) is None:
            hint = "say model.position.length, or choose sinusoidal"
            raise RecipeError("learned positions need a length", where="model.position", hint=hint)
        self.weight = nn.Parameter(torch.empty(count, self.width))
        nn.init.normal_(self.weight)

    def vectors(self, positions: Tensor, like: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.weight)


class Sinusoidal(AtInputs):
    """P are waves, so that any length can be read."""

    Settings = InputSettings

    def vectors(self, positions: Tensor, like: Tensor) -> Tensor:
        return sinusoids(positions, self.width, like)


def sinusoids(positions: Tensor, width: int, like: Tensor) -> Tensor:
    """P[t, 2i] = sin(t / 10000^(2i / D)), P[t, 2i + 1] = cos(t / 10000^(2i / D)): positions (...) → (..., D).

    On the device and in the precision of a tensor. Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32, device=like.device) * (-math.log(10_000) / width))
    angles = positions[..., None].to(torch.float32) * rates
    waves = torch.stack([torch.sin(angles), torch.cos(angles)], -1).flatten(-2)
    return waves[..., :width].to(like.dtype)


# ---------------------------------------------------------------------- in queries and keys


class Rotary(Position):
    """q and k are turned by t / base^(2i / R), so that their products know how far they are apart.

    Su et al. 2021, https://arxiv.org/abs/2104.09864
    """

    class Settings(PositionSettings):
        base: float = Field(default=10_000.0, gt=1)
        """Angles are position · base^(−2i / R)."""
        share: float = Field(default=1.0, gt=0, le=1)
        """Of the numbers of a head, how many are turned: R = share · K."""

    def __init__(self, settings: Settings, shape: PositionShape) -> None:
        super().__init__(settings, shape)
        self.base, self.turned = settings.base, int(settings.share * shape.head_width)
        if self.turned % 2:
            hint = "choose model.heads or model.position.share so that it is even"
            what = f"{self.turned} numbers of a head cannot be turned in pairs"
            raise RecipeError(what, where="model.position", hint=hint)

    def rotation(self, positions: Tensor, like: Tensor) -> Rotation | None:
        steps = torch.arange(0, self.turned, 2, dtype=torch.float32, device=like.device)
        angles = positions[..., None].to(torch.float32) * self.base ** -(steps / self.turned)
        angles = angles[:, :, None] if positions.dim() == 2 else angles[None, :, None]
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


# ---------------------------------------------------------------------- in the scores


class Alibi(Position):
    """q · k − m_h |t − s|: each head h minds distances with a slope of its own, fixed.

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
    """2^(−8 h / H) for h = 1 ... H where H is a power of two; otherwise those of the power below, and every other one
    of the power above, as published."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * (heads - power), 2)]


class Buckets(Position):
    """q · k + b[h, bucket(s − t)]: near distances have a bucket each, farther ones share one with ever more others.

    Raffel et al. 2020, https://arxiv.org/abs/1910.10683 (T5)
    """

    class Settings(PositionSettings):
        buckets: int = Field(default=32, ge=4)
        """Distances share so many biases."""
        farthest: int = Field(default=128, gt=1)
        """From this distance on, all are in one."""

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
    """Which of the buckets a distance s − t belongs to; the half of them is for what comes after, unless causal."""
    after = torch.zeros_like(apart)
    if not causal:
        count //= 2
        after, apart = (apart > 0) * count, -apart.abs()
    far = (-apart).clamp(min=0)
    exact = count // 2
    shared = torch.log(far.clamp(min=1).float() / exact) / math.log(farthest / exact) * (count - exact)
    return after + torch.where(far < exact, far, (exact + shared.long()).clamp(max=count - 1))


def _apart(positions: Tensor, length: int) -> Tensor:
    """s − t of queries at t (B, T) or (T,) and keys s = 0 ... C − 1: (B or 1, T, C)"""
    queries = positions if positions.dim() == 2 else positions[None]
    return torch.arange(length, device=positions.device) - queries[..., None]
