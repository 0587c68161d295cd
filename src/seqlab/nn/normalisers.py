"""Normalisers turn scores into weights: all of them positive, most of them zero, or with a sum below one.

Each is a function of scores (..., N), which are −∞ at positions that are masked.
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
    """1.5-entmax, which has exact zeros: p_i = max(z_i / 2 − τ, 0)², with τ such that the weights sum to 1.

    Over the k largest z / 2, τ = mean − √((1 − k · variance) / k); k is the largest for which τ does not exceed the
    smallest of these. Peters et al. 2019, https://arxiv.org/abs/1905.05702
    """
    z = scores / 2
    z = z - z.amax(-1, keepdim=True)
    ranked = z.sort(-1, descending=True).values.clamp(min=-1e4)  # −∞ would make NaN
    k = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    mean = ranked.cumsum(-1) / k
    spread = (ranked.square().cumsum(-1) - k * mean.square()).clamp(min=0)
    square = (1 - spread) / k
    root = torch.where(square > 0, square.where(square > 0, 1).sqrt(), 0)  # √0 has an infinite slope: 0 · ∞ is NaN
    tau = mean - root
    support = (tau <= ranked).sum(-1, keepdim=True)
    return (z - tau.gather(-1, support - 1)).clamp(min=0).square()


def quiet_softmax(scores: Tensor) -> Tensor:
    """p_i = e^{z_i} / (1 + Σ_j e^{z_j}): if all scores of a head are low, it attends to nothing."""
    nothing = scores.new_zeros(()).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, nothing], -1).softmax(-1)[..., :-1]


NORMALISERS: dict[str, Normaliser] = {"softmax": softmax, "sparse": entmax, "quiet": quiet_softmax}
