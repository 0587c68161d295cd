"""Batches, and the splits that produce them. The trainer knows only this interface."""

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
from seqlab.errors import SeqlabError


class NoTensor(SeqlabError, KeyError):
    """A model or an objective reads a tensor that the batches of a task lack."""

    __str__ = SeqlabError.__str__


class Batch(dict[str, Tensor]):
    """Named tensors that an objective reads: `tokens`, `targets`, `mask` (True = real), `source.tokens`, ...

    A batch may carry the `records` its rows were made from. They are not tensors and are not moved to a device; a batch
    made from another one keeps them.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor] | None = None, /, *, records: Sequence[Record] = (), **named: Tensor
    ) -> None:
        super().__init__(tensors or {}, **named)
        self.records = records or getattr(tensors, "records", ())

    def __missing__(self, name: str) -> Tensor:
        hint = "choose an objective.kind and a model.kind that fit the task, or add it in the task's split"
        raise NoTensor(f"a batch of this task has no '{name}' (it has {', '.join(self)})", hint=hint)

    def to(self, device: torch.device) -> Batch:
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in self.items()}
        return Batch(moved, records=self.records)

    def part(self, name: str) -> dict[str, Tensor] | None:
        """Return the tensors called `name.…`, without that prefix; None if none exist."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): t for key, t in self.items() if key.startswith(prefix)} or None


def padded(sequences: Sequence[Sequence[int]], filler: int = 0) -> tuple[Tensor, Tensor]:
    """Return sequences of any lengths as one tensor (B, T), padded on the right, and a mask of the real positions."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    values = torch.full(mask.shape, filler, dtype=torch.long)
    values[mask] = torch.tensor([number for sequence in sequences for number in sequence], dtype=torch.long)
    return values, mask


class Split(Protocol):
    """The examples of one split, encoded and ready for batching."""

    note: str
    """A remark for users who train or evaluate on these examples; usually empty."""

    def __len__(self) -> int: ...

    def order(self, batch_size: int, seed: int) -> Order:
        """Return the reading order: shuffled for training, first to last for evaluation."""
        ...

    def batch(self, indices: Indices, key: Key) -> Batch:
        """Return these examples as tensors, with their records if in memory; all randomness comes from the key."""
        ...


class Examples(ABC):
    """A split of independent examples (pairs, labelled texts, ...).

    In training they are shuffled and batched by similar length; otherwise they are read from first to last. An example
    of length 0 gives the model nothing to read; only examples to be answered may have it.
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
        """See `Split.batch`."""

    def records(self) -> Iterable[Record]:
        """Return the examples as read, first to last, with their places; by default, only their numbers."""
        return (Record({}, "", number, counted="example") for number in range(1, len(self) + 1))
