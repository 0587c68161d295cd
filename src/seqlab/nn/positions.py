"""Where something stands in a sequence, as a vector."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoids(length: int, width: int, like: Tensor) -> Tensor:
    """P[t, 2i] = sin(t / 10000^(2i / D)), P[t, 2i + 1] = cos(t / 10000^(2i / D)): (T, D) for any length.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """
    time = torch.arange(length, dtype=torch.float32, device=like.device)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32, device=like.device) * (-math.log(10_000) / width))
    waves = torch.stack([torch.sin(time * rates), torch.cos(time * rates)], -1).flatten(1)
    return waves[:, :width].to(like.dtype)
