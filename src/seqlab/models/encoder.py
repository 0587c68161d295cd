"""What reads a whole sequence at once, in any direction: for classes, tags and forecasts.

B rows · T positions · W width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from seqlab.recipe import PartSettings


class Encoded(NamedTuple):
    """States (B, T, W), and which of them are real (B, T)."""

    states: Tensor
    mask: Tensor


class Encoder(nn.Module, ABC):
    """Every position's state may depend on all of the sequence. Nothing is kept in `self` between calls."""

    Settings: ClassVar[type[PartSettings]]
    width: int
    """Of the states."""
    directions: int = 1
    """2 where the first half of each state has read what is before it, and the second half what is after it."""

    @abstractmethod
    def forward(self, batch: Mapping[str, Tensor]) -> Encoded: ...
