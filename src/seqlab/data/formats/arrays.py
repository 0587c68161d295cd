"""Arrays of integers or strings in .npy files: one long sequence, or one sequence per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.data.records import Record
from seqlab.errors import DataError

PIECE = 1 << 18
"""Elements of a long sequence to yield at once."""


def mapped(path: Path) -> NDArray[Any]:
    """Memory-map an array, which may be larger than memory. Object arrays, which need unpickling, are rejected."""
    if path.suffix.lower() == ".gz":
        raise DataError(
            "a compressed .npy file cannot be memory-mapped", where=str(path), hint="decompress it: gunzip FILE"
        )
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, SyntaxError) as error:
        what = f"not a readable array ({' '.join(str(error).split())[:100]})"
        raise DataError(what, where=str(path), hint="write it with numpy.save, without Python objects") from None
    except OSError as error:
        what = f"cannot be read ({error.strerror or error})"
        raise DataError(what, where=str(path), hint="check its permissions") from None
    return array


def opened_array(path: Path) -> NDArray[Any]:
    """Memory-map an array that holds sequences of symbols."""
    array = mapped(path)
    if array.ndim not in (1, 2):
        hint = "reshape it to (length,) for one sequence or (rows, length) for several"
        raise DataError(f"the array has {array.ndim} axes {array.shape}, not 1 or 2", where=str(path), hint=hint)
    if array.dtype.kind not in "iuU":
        hint = "quantise it, for example with array.round().astype(int)"
        raise DataError(f"the array has the type {array.dtype}, not integers or strings", where=str(path), hint=hint)
    return array


def rows_of(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, NDArray[Any], bool]]:
    """Yield (row, elements, whether the sequence ends): the rows of a table, or pieces of (part of) one sequence."""
    array = opened_array(path)
    if array.ndim == 2:
        yield from ((number, row, True) for number, row in enumerate(array, 1))
        return
    stop = len(array) if stop is None else stop
    for begin in range(start, stop, PIECE):
        end = min(begin + PIECE, stop)
        yield begin + 1, array[begin:end], end == stop


def array_records(path: Path, role: str, start: int = 0, stop: int | None = None) -> Iterator[Record]:
    """Yield sequences as text: the numbers separated by blanks."""
    counted = "row" if opened_array(path).ndim == 2 else "element"
    for number, row, ends in rows_of(path, start, stop):
        text = _texts(row, path, number) if row.dtype.kind == "U" else " ".join(_decimals(row))
        # pieces of a sequence follow each other like lines: a blank separates the last symbol of one from the next
        yield Record({role: text if ends else f"{text} "}, str(path), number, ends, counted)


def _decimals(row: NDArray[Any]) -> Iterable[str]:
    """Format numbers with a lookup table where possible, which is six times as fast."""
    return map((_small().__getitem__ if row.dtype in ("uint8", "uint16") else str), row.tolist())


@cache
def _small() -> list[str]:
    return [str(number) for number in range(1 << 16)]


def _texts(row: NDArray[Any], path: Path, number: int) -> str:
    from seqlab.data.formats.symbol_texts import joined

    try:
        return joined(row.tolist())
    except ValueError as error:
        raise DataError(str(error), where=f"{path}, row {number}", hint="give every symbol a non-empty name") from None


def array_cut(path: Path, share: float) -> int:
    """Return the element where the last `share` of a single sequence begins."""
    return int(len(opened_array(path)) * (1 - share))
