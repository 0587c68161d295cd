"""Columns of numbers too long for memory, kept in files of a temporary folder and processed in pieces.

Without a folder, everything stays in memory as a single piece, so the same code serves both cases.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

Integers = NDArray[np.int64]
Numbers = NDArray[Any]


class ScratchColumn:
    """Numbers of one type: append first, then read."""

    def __init__(self, dtype: DTypeLike, path: Path | None = None) -> None:
        self.dtype, self.path, self.length = np.dtype(dtype), path, 0
        self.held: list[Numbers] = []

    def __len__(self) -> int:
        return self.length

    def append(self, values: Numbers) -> None:
        values = np.ascontiguousarray(values, self.dtype)
        if self.path is None:
            self.held.append(values)
        elif len(values):
            with self.path.open("ab") as file:  # reopened each time: there may be more columns than file handles
                file.write(values.data)
        self.length += len(values)

    def read(self, start: int = 0, stop: int | None = None) -> Numbers:
        """Return a part of the column. Do not write to it: it may be the column itself."""
        stop = self.length if stop is None else min(stop, self.length)
        if self.path is not None:
            if stop <= start:
                return np.zeros(0, self.dtype)
            return np.fromfile(self.path, self.dtype, stop - start, offset=start * self.dtype.itemsize)
        if len(self.held) != 1:
            self.held = [np.concatenate([np.zeros(0, self.dtype), *self.held])]
        return self.held[0][start:stop]

    def drop(self) -> None:
        """Discard the numbers and free their space."""
        self.held, self.length = [], 0
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Scratch:
    """Creates columns; `rows` is the number of rows that may be in memory at once."""

    def __init__(self, rows: int, folder: Path | None = None) -> None:
        self.rows, self.folder, self.columns = rows, folder, 0

    def __enter__(self) -> Self:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)  # left by a process that was killed
            self.folder.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def column(self, dtype: DTypeLike = np.int64) -> ScratchColumn:
        self.columns += 1
        return ScratchColumn(dtype, self.folder and self.folder / f"{self.columns}.numbers")

    def pieces(self, stop: int, start: int = 0) -> Iterator[tuple[int, int]]:
        """Split the range from `start` to `stop` into pieces (start, stop) that fit into memory."""
        return ((first, min(first + self.rows, stop)) for first in range(start, stop, self.rows))

    def even_bounds(self, stop: int) -> Integers:
        """Return bounds 0, …, `stop` of ranges that each fit into memory."""
        return np.append(np.arange(0, max(stop, 1), self.rows), max(stop, 1))


class Ranges:
    """Sends each row to the range that contains its id; answers come back in the order of sending.

    This makes it possible to read a table larger than memory at random places, and to sort a text larger than memory:
    only one range is in memory at a time, and all files are read and written sequentially. Range r holds the ids from
    `bounds[r]` up to but not including `bounds[r + 1]`.
    """

    def __init__(self, scratch: Scratch, bounds: Integers, columns: int = 1, answers: DTypeLike = np.int64) -> None:
        self.scratch, self.bounds = scratch, bounds
        self.sent = [[scratch.column() for _ in range(columns)] for _ in bounds[1:]]
        self.answers = [scratch.column(answers) for _ in bounds[1:]]
        self.collected = [0] * len(self.answers)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield (range, first id, stop)."""
        for place, (first, stop) in enumerate(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True)):
            yield place, first, stop

    def send(self, ids: Integers, *columns: Integers) -> None:
        """Send rows by id; without other columns, a row is its id."""
        order, parts = self._parts(ids)
        for number, values in enumerate(columns or [ids]):
            values = values[order]
            for place, start, stop in parts:
                self.sent[place][number].append(values[start:stop])

    def size(self, place: int) -> int:
        return len(self.sent[place][0])

    def rows(self, place: int) -> Iterator[list[Integers]]:
        """Yield the rows of a range in the order of sending, in pieces that fit into memory."""
        for start, stop in self.scratch.pieces(self.size(place)):
            yield [column.read(start, stop) for column in self.sent[place]]

    def answer(self, place: int, values: Numbers) -> None:
        """Append answers to the rows of a range, in order."""
        self.answers[place].append(values)

    def collect(self, ids: Integers) -> Numbers:
        """Return the answers to the rows sent with these ids: the same ids in the same order, in pieces of any size."""
        order, parts = self._parts(ids)
        values = np.empty(len(ids), self.answers[0].dtype)
        for place, start, stop in parts:
            read = self.collected[place]
            self.collected[place] += stop - start
            values[start:stop] = self.answers[place].read(read, read + stop - start)
        back = np.empty_like(values)
        back[order] = values
        return back

    def drop(self) -> None:
        for column in [*(column for columns in self.sent for column in columns), *self.answers]:
            column.drop()

    def _parts(self, ids: Integers) -> tuple[Any, list[tuple[int, int, int]]]:
        """Return an order that groups the rows by range, and each (range, start, stop) in that order."""
        if len(self.sent) == 1:
            return slice(None), [(0, 0, len(ids))]
        place = np.searchsorted(self.bounds[1:-1], ids, side="right")
        place = place.astype(np.min_scalar_type(len(self.sent)))  # 16-bit integers sort faster
        sizes = np.bincount(place, minlength=len(self.sent))
        stops = np.cumsum(sizes)
        used = np.flatnonzero(sizes)
        parts = zip(used.tolist(), (stops - sizes)[used].tolist(), stops[used].tolist(), strict=True)
        return np.argsort(place, kind="stable"), list(parts)
