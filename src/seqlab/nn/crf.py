"""The linear-chain conditional random field, in which each tag of a sentence depends on its neighbours.

B rows · T positions · N tags
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FORBIDDEN = -1e4
"""Added to the scores of forbidden transitions. Its exp is exactly 0, and unlike −∞ it has a gradient."""


class CRF(nn.Module):
    """score(y) = a(y_1) + Σ_t s_t(y_t) + Σ_t A(y_{t−1}, y_t) + b(y_T),  p(y | s) = exp score(y) / Σ_y' exp score(y')

    Lafferty, McCallum & Pereira 2001; on top of a recurrent net: Huang et al. 2015, https://arxiv.org/abs/1508.01991.
    `allowed` (N + 1, N + 1) is True where one tag may follow another; its last row is the beginning, its last column
    the end. Anything else has probability 0. Real positions come first in a row, and there is at least one.
    """

    forbidden: Tensor

    def __init__(self, count: int, allowed: Tensor | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(count, count))
        self.first, self.last = nn.Parameter(torch.zeros(count)), nn.Parameter(torch.zeros(count))
        whole = torch.ones(count + 1, count + 1, dtype=torch.bool) if allowed is None else allowed
        self.register_buffer("forbidden", ~whole, persistent=False)

    def losses(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """−log p(tags): (B, T, N), (B, T), (B, T) → (B,)"""
        return self.log_partition(scores, mask) - self.path_scores(scores, tags, mask)

    def path_scores(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """The score of one tag sequence per row."""
        first, transitions, last = self._weights()
        own = scores.gather(-1, tags[..., None])[..., 0]  # (B, T)
        steps = own[:, 1:] + transitions[tags[:, :-1], tags[:, 1:]]
        end = tags.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]
        return first[tags[:, 0]] + own[:, 0] + steps.masked_fill(~mask[:, 1:], 0.0).sum(1) + last[end]

    def log_partition(self, scores: Tensor, mask: Tensor) -> Tensor:
        """log Σ_y exp score(y) by the forward algorithm: α_t(j) = s_t(j) + log Σ_i exp(α_{t−1}(i) + A(i, j))"""
        first, transitions, last = self._weights()
        alpha = first + scores[:, 0]
        for score, real in zip(scores.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
            after = score + (alpha[:, :, None] + transitions).logsumexp(1)
            alpha = torch.where(real[:, None], after, alpha)
        return (alpha + last).logsumexp(1)

    def best(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The most probable tags (B, T) by the Viterbi algorithm; 0 at padding."""
        first, transitions, last = self._weights()
        alpha, came_from = first + scores[:, 0], []
        stay = torch.arange(scores.shape[-1], device=scores.device)
        for score, real in zip(scores.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
            after, before = (alpha[:, :, None] + transitions).max(1)
            alpha = torch.where(real[:, None], score + after, alpha)
            came_from.append(torch.where(real[:, None], before, stay))
        path = [(alpha + last).argmax(1)]
        for before in reversed(came_from):
            path.append(before.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], 1).masked_fill(~mask, 0)

    def possible(self, tags: Tensor, mask: Tensor) -> Tensor:
        """Which rows (B,) are allowed sequences."""
        outside = torch.full_like(tags[:, :1], len(self.first))
        real = torch.cat([tags.masked_fill(~mask, len(self.first)), outside], 1)  # after the last real one, the end
        broken = self.forbidden[torch.cat([outside, real[:, :-1]], 1), real]
        counts = torch.cat([torch.ones_like(mask[:, :1]), mask], 1)
        return ~(broken & counts).any(1)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """a (N,), A (N, N) and b (N,), with a penalty where transitions are forbidden."""
        penalty = self.forbidden * FORBIDDEN
        return self.first + penalty[-1, :-1], self.transitions + penalty[:-1, :-1], self.last + penalty[:-1, -1]
