"""Output layers: from states to the probabilities of the next token, over the whole vocabulary or a part of it.

N positions · D width · V vocabulary
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from pydantic import Field, SerializeAsAny, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab import registry
from seqlab.errors import RecipeError
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.likelihood import softmax_losses
from seqlab.recipe import Kind, PartSettings

LARGE = 1 << 20
"""From this number of logits on, a few rows at a time are faster than the library's cross-entropy."""

OutputSettings = Annotated[SerializeAsAny[PartSettings], Kind("output")]


def output_layer(settings: PartSettings, width: int, vocab_size: int, embedding: nn.Module | None) -> OutputLayer:
    """Return the output layer that a recipe names."""
    layer: OutputLayer = registry.find("output", settings.kind)(settings, width, vocab_size, embedding)
    return layer


class OutputLayer(nn.Module, ABC):
    """Owns its weights, except that with tied weights the embedding is passed in."""

    Settings: ClassVar[type[PartSettings]]

    @abstractmethod
    def logits(self, states: Tensor, embedding: nn.Module | None) -> Tensor:
        """(..., D) → (..., V)"""

    def losses(self, states: Tensor, targets: Tensor, embedding: nn.Module | None, smoothing: float = 0.0) -> Tensor:
        """−log p(target), smoothed as in `LanguageModel.losses`: (N, D), (N,) → (N,)"""
        logits = self.logits(states, embedding)
        return F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)


class Softmax(OutputLayer):
    """p = softmax(W h + b); with tied weights, W is the embedding matrix.

    Press & Wolf 2017, https://arxiv.org/abs/1608.05859
    """

    compiled_from: int | None = None
    """As in `LinearMap`."""

    class Settings(PartSettings):
        tied: bool = True
        """Whether embeddings and output layer share one matrix."""
        bias: bool = True

    def __init__(self, settings: Settings, width: int, vocab_size: int, embedding: nn.Module | None) -> None:
        super().__init__()
        if settings.tied:
            _check_tied(width, embedding)
        self.vocab_size = vocab_size
        self.matrix = None if settings.tied else nn.Linear(width, vocab_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if settings.bias else None

    def logits(self, states: Tensor, embedding: nn.Module | None) -> Tensor:
        if self.matrix is not None:
            scores: Tensor = self.matrix(states)
        else:
            assert embedding is not None
            scores = embedding.logits(states)  # type: ignore[operator]
        return scores if self.bias is None else scores + self.bias

    def losses(self, states: Tensor, targets: Tensor, embedding: nn.Module | None, smoothing: float = 0.0) -> Tensor:
        if not self.training or states.dim() != 2 or len(states) * self.vocab_size < LARGE:
            return super().losses(states, targets, embedding, smoothing)
        return softmax_losses(states, self._weight(embedding), self.bias, targets, smoothing, self.compiled_from)

    def _weight(self, embedding: nn.Module | None) -> Tensor:
        weight = embedding.weight if self.matrix is None else self.matrix.weight  # type: ignore[union-attr]
        assert isinstance(weight, Tensor)
        return weight


class SampledSoftmax(Softmax):
    """In training, estimates Z = Σ_k exp(o_k) as exp(o_target) + 1/S Σ_{s ≠ target} exp(o_s) / q(s), over S tokens
    drawn from q(k) ∝ log((k+2)/(k+1)), which is close to Zipf's law if frequent tokens have small ids. All positions
    of a batch share the sample. Outside training it is the full softmax.

    Bengio & Senécal 2008, Adaptive importance sampling; Jean et al. 2015, https://arxiv.org/abs/1412.2007
    """

    class Settings(Softmax.Settings):
        samples: int = Field(default=1024, gt=0)
        """Number of sampled tokens, at most the size of the vocabulary: beyond that, the full softmax is cheaper."""

    def __init__(self, settings: Settings, width: int, vocab_size: int, embedding: nn.Module | None) -> None:
        if settings.samples > vocab_size:
            what = f"{settings.samples} samples exceed the vocabulary of {vocab_size} tokens"
            raise RecipeError(what, where="model.output.samples", hint="use fewer, or model.output=softmax")
        super().__init__(settings, width, vocab_size, embedding)
        self.samples = settings.samples

    def losses(self, states: Tensor, targets: Tensor, embedding: nn.Module | None, smoothing: float = 0.0) -> Tensor:
        if not self.training or smoothing:  # label smoothing needs all tokens
            return super().losses(states, targets, embedding, smoothing)
        weight = self._weight(embedding)
        sample = self._draw(states.device)
        own = (states * F.embedding(targets, weight)).sum(-1)  # (N,)
        others = states @ F.embedding(sample, weight).t()  # (N, S)
        if self.bias is not None:
            own, others = own + self.bias[targets], others + self.bias[sample]
        others = others - (self.samples * self._chance(sample)).log()
        others = others.masked_fill(sample == targets[:, None], -torch.inf)  # the target is already counted
        return torch.cat([own[:, None], others], 1).logsumexp(1) - own

    def _draw(self, device: torch.device) -> Tensor:
        """k = ⌊(V+1)^u⌋ − 1 for u uniform in [0, 1): the inverse of q's distribution function."""
        u = torch.rand(self.samples, device=device)
        drawn = torch.exp(u * torch.log(torch.tensor(self.vocab_size + 1.0, device=device))).long() - 1
        return drawn.clamp(0, self.vocab_size - 1)

    def _chance(self, tokens: Tensor) -> Tensor:
        """log((k+2)/(k+1)) / log(V+1), written as log(1 + 1/(k+1)) because in float32 the quotient soon rounds to 1."""
        return torch.log1p(1 / (tokens + 1.0)) / math.log(self.vocab_size + 1)


class AdaptiveSoftmax(OutputLayer):
    """One small softmax over frequent tokens and clusters of rarer ones, and another within each cluster, narrower the
    rarer its tokens are. Exact, and cheap because most targets are frequent.

    Grave et al. 2017, https://arxiv.org/abs/1609.04309; the library's layer. It is correct for any order of the ids,
    and cheap if frequent tokens have small ids, as in word vocabularies.
    """

    class Settings(PartSettings):
        cutoffs: list[int] = Field(default=[2000, 10000])
        """Ids at which clusters begin; those beyond the vocabulary are ignored."""
        shrink: float = Field(default=4.0, ge=1)
        """Factor by which each cluster is narrower than the one before."""

        @field_validator("cutoffs")
        @classmethod
        def _increasing(cls, value: list[int]) -> list[int]:
            if not value or value[0] < 1 or any(a >= b for a, b in pairwise(value)):
                raise ValueError("should be increasing ids, such as [2000, 10000]")
            return value

    def __init__(self, settings: Settings, width: int, vocab_size: int, embedding: nn.Module | None) -> None:
        super().__init__()
        cutoffs = [cutoff for cutoff in settings.cutoffs if cutoff < vocab_size]
        if not cutoffs:
            what = f"none of the cutoffs {settings.cutoffs} lies inside the vocabulary of {vocab_size} tokens"
            raise RecipeError(what, where="model.output.cutoffs", hint="use smaller ones, or model.output=softmax")
        narrowest = int(width // settings.shrink ** len(cutoffs))  # as the library computes it
        if narrowest < 1:
            what = f"{len(cutoffs)} clusters, each {settings.shrink:g} times narrower, leave nothing of width {width}"
            raise RecipeError(what, where="model.output.shrink", hint="make it smaller, or use fewer cutoffs")
        self.clusters = nn.AdaptiveLogSoftmaxWithLoss(width, vocab_size, cutoffs, settings.shrink, head_bias=True)

    def logits(self, states: Tensor, embedding: nn.Module | None) -> Tensor:
        flat = states.reshape(-1, states.shape[-1])
        return self.clusters.log_prob(flat).reshape(*states.shape[:-1], -1)

    def losses(self, states: Tensor, targets: Tensor, embedding: nn.Module | None, smoothing: float = 0.0) -> Tensor:
        if smoothing:
            return super().losses(states, targets, embedding, smoothing)
        return -self.clusters(states, targets).output  # type: ignore[no-any-return]


def _check_tied(width: int, embedding: nn.Module | None) -> None:
    if embedding is None:
        what, hint = "without embeddings there is no matrix to tie the output layer to", "set model.output.tied=false"
        raise RecipeError(what, where="model.output.tied", hint=hint)
    assert isinstance(embedding, TokenEmbedding)
    if embedding.embedding_dim != width:
        what = f"tied weights need states as wide as the embeddings: {width}, not {embedding.embedding_dim}"
        raise RecipeError(what, where="model.output.tied", hint="make them equal, or set model.output.tied=false")
