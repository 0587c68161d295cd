"""Encoders, which read a whole sequence at once, in any direction: for classes, tags, forecasts and decoders.

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
    """States (B, N, W), a mask of real positions (B, N), and the last states of layers, for a decoder to start from."""

    states: Tensor
    mask: Tensor
    summary: Sequence[CellState] = ()

    def padded(self, length: int) -> Encoded:
        more = length - self.mask.shape[1]
        return Encoded(F.pad(self.states, [0, 0, 0, more]), F.pad(self.mask, [0, more]), self.summary)


class Encoder(nn.Module, ABC):
    """A model whose state at each position may depend on the whole sequence. `self` keeps nothing between calls.

    Constructed as `cls(settings, **sizes)`, such as `def __init__(self, settings, vocab_size)`. The sizes come from the
    task: those that the class `needs`, and those that it `takes` if the task has them. The constructor sets `width`.
    `conditions` is the number of labels and numbers that sources may contain besides words.
    """

    Settings: ClassVar[type[PartSettings]]
    needs: ClassVar[tuple[str, ...]] = VOCABULARY
    """Names of the sizes required to build it (`Task.sizes`)."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Names of optional sizes, which only some tasks have."""
    width: int
    """Width of the states."""
    longest: int | None = None
    """The largest number of positions that it reads, if there is a limit."""
    directions: int = 1
    """2 if the first half of each state reads from the left and the second half from the right."""

    joins: bool = True
    """Whether it can read the input of a `Translator`: a sequence of tokens, labels and numbers."""

    @abstractmethod
    def forward(self, batch: Mapping[str, Tensor]) -> Encoded:
        """Encode named tensors (B, N, ...): `tokens` (B, N), and what a task adds. `mask` (B, N) is True at the real
        positions, which come first."""

    def read(self, source: Mapping[str, Tensor]) -> Encoded:
        """`forward` for decoding: padded to a multiple of 16 positions, so that bits do not depend on neighbours."""
        found: Encoded = self(padded(source, room_for(source["mask"].shape[1])))
        return found


def padded(source: Mapping[str, Tensor], length: int) -> dict[str, Tensor]:
    """Pad a source (B, N, ...) to `length` positions."""
    more = length - source["mask"].shape[1]
    return {name: F.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, more]) for name, tensor in source.items()}
