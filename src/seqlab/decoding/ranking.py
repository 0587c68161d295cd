"""Selects the most probable tokens.

B rows · V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqlab.decoding import compiled


def best(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the largest logits of each row and their tokens, (B, V) → (B, count) each, and log Σ exp, (B,).

    The largest come first, and equal ones in the order of tokens. If fewer than `count` are above −∞, the rest are −∞,
    with meaningless tokens.
    """
    if logits.device.type == "cpu" and logits.dtype == torch.float32 and compiled.library() is not None:
        return compiled.best(logits.contiguous(), count)
    return by_library(logits, count)


def by_library(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    values, ids = logits.topk(min(count + 1, logits.shape[1]), -1)
    if values.shape[1] > count and bool((values[:, count] == values[:, count - 1]).any()):  # ties are arbitrary
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
    ids, order = ids[:, :count].sort(-1)
    values, back = values[:, :count].gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, back), logits.logsumexp(-1)
