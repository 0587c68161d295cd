"""Summaries: from a sequence of states to one vector, on which padding has no effect at all.

B rows · T positions · W width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from seqlab.nn.dropout import Dropout
from seqlab.nn.recording import note

SummaryKind = Literal["last", "max", "mean", "attention"]


def summary(kind: SummaryKind, width: int, directions: int = 1) -> Summary:
    """Return the summary named `kind`, for states of this width, read in one or two directions."""
    made: dict[str, Callable[[], Summary]] = {
        "last": lambda: LastSummary(directions),
        "max": MaxSummary,
        "mean": MeanSummary,
        "attention": lambda: AttentionSummary(width),
    }
    return made[kind]()


class Summary(nn.Module):
    """forward(states (B, T, W), mask (B, T)) → (B, W). Real positions come first, and every row has at least one."""


class LastSummary(Summary):
    """→h_T, the state that has read everything; for two directions, [→h_T; ←h_1]."""

    def __init__(self, directions: int = 1) -> None:
        super().__init__()
        self.directions = directions

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        ends = last(states, mask)
        if self.directions == 1:
            return ends
        half = states.shape[-1] // 2
        return torch.cat([ends[:, :half], states[:, 0, half:]], -1)


class MaxSummary(Summary):
    """max_t h_t, separately for each of the W numbers."""

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        return states.masked_fill(~mask[..., None], -torch.inf).max(1).values


class MeanSummary(Summary):
    """1/T Σ_t h_t"""

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        real = states.masked_fill(~mask[..., None], 0)
        return real.sum(1) / mask.sum(1, keepdim=True)


class AttentionSummary(Summary):
    """Σ_t a_t h_t, a = softmax(q · tanh(W h_t + b)), with a learned query q.

    Yang et al. 2016, https://aclanthology.org/N16-1174
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key, self.query = nn.Linear(width, width), nn.Linear(width, 1, bias=False)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        shares = note(self, "weights", self.shares(states, mask)[:, None, None])[:, 0, 0]  # one head, one query
        real = states.masked_fill(~mask[..., None], 0)  # 0 · NaN would not be 0
        return (shares[:, None] @ real)[:, 0]

    def shares(self, states: Tensor, mask: Tensor) -> Tensor:
        """The weight of each position (B, T)."""
        scores = self.query(torch.tanh(self.key(states)))[..., 0]
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)


class ClassHead(nn.Module):
    """logits = W dropout(summary(h_1 … h_T)) + b"""

    def __init__(self, summary: Summary, dropout: float, width: int, classes: int) -> None:
        super().__init__()
        self.summary, self.dropout, self.linear = summary, Dropout(dropout), nn.Linear(width, classes)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.dropout(self.summary(states, mask)))
        return logits


class NodeHead(nn.Sequential):
    """logits_n = W dropout(h_n) + b, for every node n of a tree"""

    def __init__(self, dropout: float, width: int, classes: int) -> None:
        super().__init__(Dropout(dropout), nn.Linear(width, classes))


def last(x: Tensor, mask: Tensor | None) -> Tensor:
    """(B, T, …) → (B, …): the last real step of each row."""
    if mask is None:
        return x[:, -1]
    return x[torch.arange(len(x), device=x.device), mask.sum(1) - 1]
