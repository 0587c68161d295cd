"""Batches, and the splits that make them. A split knows its examples; the trainer knows only this interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from seqlab.data.batching.order import Indices, Order, Sequential, Shuffled
from seqlab.data.randomness import Key
from seqlab.data.records import Record


class Batch(dict[str, Tensor]):
    """Named tensors: `tokens`, `targets`, `mask` (True = real), `source.tokens`, ...: what the objective reads.

    It may carry the `records` that its rows were made of. They are not tensors and stay where they are; a batch made of
    another one keeps them.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor] | None = None, /, *, records: Sequence[Record] = (), **named: Tensor
    ) -> None:
        super().__init__(tensors or {}, **named)
        self.records = records or getattr(tensors, "records", ())

    def to(self, device: torch.device) -> Batch:
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in self.items()}
        return Batch(moved, records=self.records)

    def part(self, name: str) -> dict[str, Tensor] | None:
        """The tensors called `name.…`, without that prefix; None if there are none."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): t for key, t in self.items() if key.startswith(prefix)} or None


def padded(sequences: Sequence[Sequence[int]], filler: int = 0) -> tuple[Tensor, Tensor]:
    """Sequences of any lengths as one tensor (B, T), filled up on the right, and the mask of what is real."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    values = torch.full(mask.shape, filler, dtype=torch.long)
    values[mask] = torch.tensor([number for sequence in sequences for number in sequence], dtype=torch.long)
    return values, mask


class Split(Protocol):
    """The examples of one split, encoded and ready to be batched."""

    note: str
    """What a person who trains on them, or measures with them, should know; mostly nothing."""

    def __len__(self) -> int: ...

    def order(self, batch_size: int, seed: int) -> Order:
        """In which order they are read: shuffled for training, first to last for evaluation."""
        ...

    def batch(self, indices: Indices, key: Key) -> Batch:
        """These examples as tensors, with their records if the split has them in memory; anything random is keyed."""
        ...


class Examples(ABC):
    """A split of examples that have nothing to do with each other (pairs, labelled texts, ...).

    For training they are shuffled, those of like length together; otherwise they come first to last. An example of
    length 0 has nothing that a model could read; such ones are only among those to be answered.
    """

    note = ""

    def __init__(self, lengths: Sequence[int], training: bool) -> None:
        self.lengths, self.training = np.asarray(lengths, dtype=np.int64), training

    def __len__(self) -> int:
        return len(self.lengths)

    def order(self, batch_size: int, seed: int) -> Order:
        if self.training:
            return Shuffled(len(self), batch_size, seed, self.lengths)
        return Sequential(len(self), batch_size)

    @abstractmethod
    def batch(self, indices: Indices, key: Key) -> Batch:
        """As in `Split`."""

    def records(self) -> Iterable[Record]:
        """The examples as they were read, first to last, each with its place; only numbers where nothing is known."""
        return (Record({}, "", number, counted="example") for number in range(1, len(self) + 1))
