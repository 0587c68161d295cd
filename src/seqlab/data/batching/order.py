"""The order in which examples are read: a pure function of (seed, epoch), walked by a cursor.

An epoch is cut into chunks, and a chunk into batches of example numbers. A cursor (epoch, chunk, batch) is therefore
all that a resumed run needs, and any number of ranks sees the same batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab.data.randomness import mix, permute

Indices = NDArray[np.int64]


class Cursor(NamedTuple):
    """The position of the next batch."""

    epoch: int = 0
    chunk: int = 0
    batch: int = 0


BEGINNING = Cursor()


class Order(ABC):
    """Decides which examples make up each batch."""

    chunks: int
    """Number of chunks per epoch."""
    carries: bool = False
    """Whether row r of a batch continues row r of the previous batch in the same chunk."""

    @abstractmethod
    def chunk(self, epoch: int, number: int) -> list[Indices]:
        """Return the batches of one chunk."""

    def walk(self, cursor: Cursor = BEGINNING) -> Iterator[tuple[Cursor, Indices]]:
        """Yield all batches from a cursor on, endlessly, each with its position."""
        while True:
            batches = self.chunk(cursor.epoch, cursor.chunk)
            for batch in range(cursor.batch, len(batches)):
                yield cursor._replace(batch=batch), batches[batch]
            last = cursor.chunk + 1 >= self.chunks
            cursor = Cursor(cursor.epoch + 1, 0, 0) if last else Cursor(cursor.epoch, cursor.chunk + 1, 0)

    def once(self) -> Iterator[tuple[Cursor, Indices]]:
        """Yield the batches of one epoch."""
        for chunk in range(self.chunks):
            for batch, indices in enumerate(self.chunk(0, chunk)):
                yield Cursor(0, chunk, batch), indices


@dataclass
class Sequential(Order):
    """Reads examples from first to last, for evaluation."""

    count: int
    batch_size: int

    def __post_init__(self) -> None:
        self.chunks = 1

    def chunk(self, epoch: int, number: int) -> list[Indices]:
        numbers = np.arange(self.count, dtype=np.int64)
        return [numbers[start : start + self.batch_size] for start in range(0, self.count, self.batch_size)]


@dataclass
class Shuffled(Order):
    """Shuffles all examples; within a chunk, examples of similar length share a batch, and batches are shuffled."""

    count: int
    batch_size: int
    seed: int
    lengths: Indices | None = None
    batches_in_chunk: int = 64

    def __post_init__(self) -> None:
        self.size = self.batch_size * self.batches_in_chunk
        self.chunks = max(1, -(-self.count // self.size))

    def chunk(self, epoch: int, number: int) -> list[Indices]:
        key = mix(self.seed, epoch)
        places = np.arange(number * self.size, min((number + 1) * self.size, self.count), dtype=np.int64)
        numbers = permute(places, self.count, key)
        if self.lengths is not None:
            numbers = numbers[np.argsort(self.lengths[numbers], kind="stable")]
        batches = [numbers[i : i + self.batch_size] for i in range(0, len(numbers), self.batch_size)]
        turns = permute(np.arange(len(batches), dtype=np.int64), len(batches), mix(key, number + 1))
        return [batches[turn] for turn in turns]


@dataclass
class Streams(Order):
    """Reads `lanes` long sequences of `steps` windows each, side by side: example = lane · steps + step."""

    lanes: int
    steps: int
    batch_size: int

    def __post_init__(self) -> None:
        self.chunks = -(-self.lanes // self.batch_size)
        self.carries = True

    def chunk(self, epoch: int, number: int) -> list[Indices]:
        first = number * self.batch_size
        lanes = np.arange(first, min(first + self.batch_size, self.lanes), dtype=np.int64)
        return [lanes * self.steps + step for step in range(self.steps)]
