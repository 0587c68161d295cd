"""Normalisation layers and their names in recipes.

D width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import nn

Norm = Callable[[], nn.Module]
"""Makes a norm of the model's width."""
NormName = Literal["layer", "rms"]


def norm_of(name: NormName, width: int, epsilon: float = 1e-5) -> Norm:
    """Return a function that makes norms: `layer`, (x − mean) / √(variance + ε) ∘ w + b, or `rms`,
    x / √(mean of squares + ε) ∘ w (Zhang & Sennrich 2019, https://arxiv.org/abs/1910.07467)."""
    if name == "rms":
        return lambda: nn.RMSNorm(width, epsilon)
    return lambda: nn.LayerNorm(width, epsilon)
