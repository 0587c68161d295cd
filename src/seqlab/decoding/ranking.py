"""The most probable tokens of many.

B rows · V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.decoding import compiled


def best(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest of each row with their tokens, (B, V) → (B, count) twice, and log Σ exp, (B,).

    Largest first, and of equal ones the first. Where fewer than `count` are above −∞, the others are −∞ and no tokens.
    """
    if logits.device.type == "cpu" and logits.dtype == torch.float32 and compiled.library() is not None:
        return compiled.best(logits.contiguous(), count)
    return by_library(logits, count)


def by_library(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    values, ids = logits.topk(min(count + 1, logits.shape[1]), -1)
    if values.shape[1] > count and bool((values[:, count] == values[:, count - 1]).any()):  # which of them is chance
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
    ids, order = ids[:, :count].sort(-1)
    values, back = values[:, :count].gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, back), logits.logsumexp(-1)
