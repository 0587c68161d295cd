"""What makes weights of scores: all of them positive, most of them zero, or together less than one.

Each is a function of scores (..., N) that may be −∞ where there is nothing to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Normaliser = Callable[[Tensor], Tensor]
NormaliserName = Literal["softmax", "sparse", "quiet"]


def softmax(scores: Tensor) -> Tensor:
    """p_i = e^{z_i} / Σ_j e^{z_j}"""
    return scores.softmax(-1)


def entmax(scores: Tensor) -> Tensor:
    """1.5-entmax, which has exact zeros: p_i = max(z_i / 2 − τ, 0)², with τ such that they sum to 1.

    Among the k largest z / 2, τ = mean − √((1 − k · variance) / k); the right k is the largest whose τ is not above its
    last z / 2. Peters et al. 2019, https://arxiv.org/abs/1905.05702
    """
    z = scores / 2
    z = z - z.amax(-1, keepdim=True)
    ranked = z.sort(-1, descending=True).values.clamp(min=-1e4)  # −∞ is as far out as this
    k = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    mean = ranked.cumsum(-1) / k
    spread = (ranked.square().cumsum(-1) - k * mean.square()).clamp(min=0)
    tau = mean - ((1 - spread) / k).clamp(min=0).sqrt()
    support = (tau <= ranked).sum(-1, keepdim=True)
    return (z - tau.gather(-1, support - 1)).clamp(min=0).square()


def quiet_softmax(scores: Tensor) -> Tensor:
    """p_i = e^{z_i} / (1 + Σ_j e^{z_j}): a head whose scores are all low looks at nothing."""
    nothing = scores.new_zeros(()).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, nothing], -1).softmax(-1)[..., :-1]


NORMALISERS: dict[str, Normaliser] = {"softmax": softmax, "sparse": entmax, "quiet": quiet_softmax}
