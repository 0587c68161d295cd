"""What reads a whole sequence at once, in any direction: for classes, tags, forecasts, and for decoders.

B rows · N positions · W width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.sizes import VOCABULARY
from seqlab.nn.attention import room_for
from seqlab.nn.cells import CellState
from seqlab.recipe import PartSettings


class Encoded(NamedTuple):
    """States (B, N, W), which of them are real (B, N), and what there is to begin from: the last states of layers."""

    states: Tensor
    mask: Tensor
    summary: Sequence[CellState] = ()

    def padded(self, length: int) -> Encoded:
        more = length - self.mask.shape[1]
        return Encoded(F.pad(self.states, [0, 0, 0, more]), F.pad(self.mask, [0, more]), self.summary)


class Encoder(nn.Module, ABC):
    """Every position's state may depend on all of the sequence. Nothing is kept in `self` between calls."""

    Settings: ClassVar[type[PartSettings]]
    needs: ClassVar[tuple[str, ...]] = VOCABULARY
    """What it has to be told of the data, by name, to be built (`Task.sizes`)."""
    takes: ClassVar[tuple[str, ...]] = ()
    """What it is told besides, where a task gives it."""
    width: int
    """Of the states."""
    directions: int = 1
    """2 where the first half of each state has read what is before it, and the second half what is after it."""

    joins: bool = True
    """Whether it reads what a `Translator` gives it: tokens, labels and numbers, one after the other."""

    @abstractmethod
    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        """Named tensors (B, N, ...), of which `mask` (B, N) says what is real, which comes first."""

    def read(self, source: Mapping[str, Tensor]) -> Encoded:
        """As `forward`, for decoding: in room for a multiple of 16 positions, so that bits depend on no neighbour."""
        found: Encoded = self(padded(source, room_for(source["mask"].shape[1])))
        return found


def padded(source: Mapping[str, Tensor], length: int) -> dict[str, Tensor]:
    """A source (B, N, ...) with room behind it."""
    more = length - source["mask"].shape[1]
    return {name: F.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, more]) for name, tensor in source.items()}
