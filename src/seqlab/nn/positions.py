"""Where something stands in a sequence, as a vector."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoids(positions: Tensor, like: Tensor) -> Tensor:
    """P[t, 2i] = sin(t / 10000^(2i / D)), P[t, 2i + 1] = cos(t / 10000^(2i / D)): positions (...) → (..., D).

    Of the width and the precision of a tensor. Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """
    width = like.shape[-1]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32, device=like.device) * (-math.log(10_000) / width))
    angles = positions[..., None].to(torch.float32) * rates
    waves = torch.stack([torch.sin(angles), torch.cos(angles)], -1).flatten(-2)
    return waves[..., :width].to(like.dtype)
