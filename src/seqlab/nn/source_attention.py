"""How a recurrent decoder attends to a source: scores, weights and contexts.

B rows · T target positions · S sources · N source positions · D width of the query · E of a source's states
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor, nn

from seqlab import registry
from seqlab.nn.attention import meet
from seqlab.nn.normalisers import NORMALISERS, softmax
from seqlab.nn.recording import note, observed
from seqlab.recipe import Kind, PartSettings

SourceAttentionSettings = Annotated[SerializeAsAny[PartSettings] | None, Kind("attention")]


def source_attention(settings: PartSettings, query: int, states: int) -> SourceAttention:
    """Return the attention that a recipe names."""
    made: SourceAttention = registry.find("attention", settings.kind)(settings, query, states)
    return made


class SourceAttention(nn.Module, ABC):
    """a = softmax(score(s, h_i)) over the source's real positions, and the context c = Σ_i a_i h_i"""

    class Settings(PartSettings):
        form: Literal["soft", "sparse", "quiet", "hard", "local"] = "soft"
        """Softmax; 1.5-entmax, which has exact zeros (Peters et al. 2019, https://arxiv.org/abs/1905.05702); a softmax
        whose weights may all be near zero; all weight on the highest score, with the gradient of the softmax; or
        softmax times a Gaussian around a position that the query chooses (local-p of Luong et al. 2015,
        https://arxiv.org/abs/1508.04025)."""
        window: float = Field(default=5.0, gt=0)
        """Two standard deviations of the Gaussian in the local form."""
        gated: bool = False
        """Whether to multiply c by σ(vᵀs), so that a query can ignore the source (Xu et al. 2015,
        https://arxiv.org/abs/1502.03044)."""
        asks: Literal["before", "after"] = "after"
        """State that queries the source at step t: the one before the step, which then reads the context (Bahdanau et
        al. 2015), or the one after it, so that all steps can be computed at once (Luong et al. 2015)."""
        feeding: bool = False
        """Whether, with `asks: after`, each step also reads the context of the previous step (input feeding)."""
        coverage: bool = False
        """Whether a position's score depends on how much attention it has already received (Tu et al. 2016,
        https://arxiv.org/abs/1601.04811)."""

    product: Callable[[Tensor, Tensor], Tensor] = staticmethod(torch.bmm)
    """The batched product. Decoding replaces it by one in which a row's bits do not depend on the other rows."""
    sigmoid = staticmethod(torch.sigmoid)
    """σ. Decoding replaces it by one whose bits do not depend on the place of a number in memory."""

    def __init__(self, settings: Settings, query: int, states: int) -> None:
        super().__init__()
        self.settings, self.width = settings, states
        self.gate = nn.Linear(query, 1) if settings.gated else None
        local = settings.form == "local"
        self.place = nn.Sequential(nn.Linear(query, query), nn.Tanh(), nn.Linear(query, 1)) if local else None
        self.coverage = nn.Parameter(torch.zeros(())) if settings.coverage else None

    @property
    def one_by_one(self) -> bool:
        """Whether a step needs the previous context, or its own context before it begins."""
        own = self.settings
        return own.asks == "before" or own.feeding or own.coverage

    def keys(self, states: Tensor) -> Tensor:
        """The part of the scores that depends only on the source's states (S, N, E), computed once for all queries."""
        return states

    @abstractmethod
    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(S, T, D), keys of (S, N, E) → (S, T, N)"""

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        states: Tensor,
        real: Tensor,
        owner: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Queries (B, T, D) → contexts (B, T, E) and weights (B, T, N). `seen` (B, N) sums the weights so far."""
        shape = queries.shape[:2]
        together, keys, states, real = meet(queries, owner, keys, states, real)
        scores = self.scores(together, keys)
        if self.coverage is not None and seen is not None:
            scores = scores + self.coverage * seen.reshape(len(scores), -1, scores.shape[-1])
        weights = self._weights(scores.masked_fill(~real[:, None], -torch.inf), together, real)
        if observed():  # as one head, (B, 1, T, N)
            weights = note(self, "weights", weights.reshape(*shape, -1)[:, None]).reshape(scores.shape)
        contexts, weights = self.product(weights, states).reshape(*shape, -1), weights.reshape(*shape, -1)
        if self.gate is not None:
            contexts = note(self, "gate", self.sigmoid(self.gate(queries))) * contexts
        return note(self, "output", contexts), weights

    def _weights(self, scores: Tensor, queries: Tensor, real: Tensor) -> Tensor:
        form = self.settings.form
        if form in ("sparse", "quiet"):
            return NORMALISERS[form](scores)
        weights = softmax(scores)
        if form == "hard":
            most = torch.zeros_like(weights).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
            return most + weights - weights.detach()
        if self.place is not None:
            lengths = real.sum(1)[:, None, None]
            centre = self.sigmoid(self.place(queries)) * (lengths - 1)
            far = torch.arange(scores.shape[-1], device=scores.device) - centre
            return weights * torch.exp(-2 * (far / self.settings.window) ** 2)
        return weights


class Additive(SourceAttention):
    """vᵀ tanh(W s + U h_i); Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473"""

    def __init__(self, settings: SourceAttention.Settings, query: int, states: int) -> None:
        super().__init__(settings, query, states)
        self.query, self.key = nn.Linear(query, query), nn.Linear(states, query, bias=False)
        self.score = nn.Linear(query, 1, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)  # type: ignore[no-any-return]

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.score(torch.tanh(self.query(queries)[:, :, None] + keys[:, None]))[..., 0]  # type: ignore[no-any-return]


class Bilinear(SourceAttention):
    """sᵀ V h_i; Luong et al. 2015, https://arxiv.org/abs/1508.04025 (called general there)"""

    def __init__(self, settings: SourceAttention.Settings, query: int, states: int) -> None:
        super().__init__(settings, query, states)
        self.key = nn.Linear(states, query, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)  # type: ignore[no-any-return]

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.product(queries, keys.mT)


class Dot(SourceAttention):
    """sᵀ h_i, of equal widths"""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.product(queries, keys.mT)


class ScaledDot(SourceAttention):
    """sᵀ h_i / √D, of equal widths; Vaswani et al. 2017, https://arxiv.org/abs/1706.03762"""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.product(queries, keys.mT) / float(keys.shape[-1] ** 0.5)


class Separate(SourceAttention):
    """tanh(pᵀ s + qᵀ h_i + r): the query shifts all scores alike and never changes which position has the highest one.

    Some lectures print additive attention like this. It is here to show the mistake; use `additive`.
    """

    def __init__(self, settings: SourceAttention.Settings, query: int, states: int) -> None:
        super().__init__(settings, query, states)
        self.query, self.key = nn.Linear(query, 1), nn.Linear(states, 1, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)  # type: ignore[no-any-return]

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.tanh(self.query(queries) + keys.mT)


class Uniform(SourceAttention):
    """Equal weights: every step reads the mean of the whole input (input recurrence). Attention is the learned form of
    this."""

    def scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries.new_zeros(len(queries), queries.shape[1], keys.shape[1])
