"""Finds faults in the rows of .parquet and .npy files: the same kinds of findings as in text, by row.

A finding's line is the row, from 1, and its byte is 0: rows have no position in the file that users could go to.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from seqlab.data.checks.column_checks import Columns
from seqlab.data.checks.file_checks import SHORT, Findings, Hashes
from seqlab.data.formats.arrays import PIECE, mapped, opened_array, rows_of
from seqlab.data.formats.files import format_of, size_of
from seqlab.data.formats.parquet import Parquet
from seqlab.data.formats.rows import Row
from seqlab.errors import DataError

SIGNS = {
    "NUL byte": re.compile("\0"),
    "control character": re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    "replacement character": re.compile("\ufffd"),
}


def is_table(path: Path) -> bool:
    """Return True if a file consists of rows, not lines."""
    return format_of(path) in ("parquet", "npy")


class TableCheck:
    """Reads one file, adds to the findings, and computes a hash per row, as `FileCheck` does per line."""

    def __init__(self, path: Path, max_line: int, findings: Findings) -> None:
        self.path, self.file, self.max_line, self.findings = path, str(path), max_line, findings
        self.hashes = array("q")
        self.numbers: set[str] = set()

    def run(self) -> Hashes:
        if size_of(self.path) == 0:
            self.findings.add("empty file", self.file, 1, 0, "the file is empty")
            return np.empty(0, "int64")
        if format_of(self.path) == "npy" and (mapped(self.path).dtype.kind == "f" or mapped(self.path).ndim > 2):
            self.series()
            return np.empty(0, "int64")
        columns = Columns(self.findings.keep)
        if format_of(self.path) == "parquet":
            self.columns()
        single = format_of(self.path) == "npy" and opened_array(self.path).ndim == 1
        for row in _rows(self.path):
            self.cells(row)
            scalars = {name: cell for name, cell in row.cells.items() if not isinstance(cell, list)}
            columns.add(Row(row.line, scalars, group=row.group))
            if single:  # pieces of one sequence are not rows that could be duplicates
                continue
            text = _text(row.cells)
            self.hashes.append((hash(text) & -2 | (len(text) >= SHORT)) if text.strip() else 0)
        if format_of(self.path) == "parquet":
            for kind, (count, places) in columns.findings().items():
                for number, what in places:
                    self.findings.add(kind, self.file, number, 0, what)
                self.findings.rest[kind] += count - len(places)
            if columns.are_numbers():
                return np.empty(0, "int64")
        return np.frombuffer(self.hashes, "int64") if self.hashes else np.empty(0, "int64")

    def series(self) -> None:
        """Check an array that holds series: floats, or more than two axes."""
        array = mapped(self.path)
        if array.dtype.kind not in "iufb":
            raise DataError(f"the array has the type {array.dtype}", where=self.file, hint="give an array of numbers")
        for start in range(0, len(array), PIECE):
            holes = np.argwhere(~np.isfinite(array[start : start + PIECE]))
            room = self.findings.room("missing number")
            for row, *others in holes[:room].tolist():
                place = ", ".join(str(one + 1) for one in (start + row, *others))
                self.findings.add("missing number", self.file, start + row + 1, 0, f"NaN or infinite at ({place})")
            self.findings.rest["missing number"] += len(holes[room:])

    def columns(self) -> None:
        file = Parquet(self.path)
        for name in dict.fromkeys(file.schema.names):
            what = f"column '{name}' is {file.type(name)}: neither text nor numbers nor a list of them"
            if file.schema.names.count(name) > 1:
                what = f"column '{name}' appears twice"
            elif file.kind(name) == "number":
                self.numbers.add(name)
            if name not in _readable(file):
                self.findings.add("unreadable column", self.file, 1, 0, what[:200])

    def cells(self, row: Row) -> None:
        for name, value in row.cells.items():
            place = f"{row.place}, column '{name}'" if row.group is not None else row.place
            if value is None and name not in self.numbers:  # those are checked by column
                self.findings.add("null value", self.file, row.line, 0, place)
            elif isinstance(value, str):
                self.text(value, row.line, place)
            elif isinstance(value, list):
                self.elements(value, row.line, place)

    def text(self, value: str, number: int, place: str) -> None:
        if not value.strip():
            self.findings.add("empty line", self.file, number, 0, place)
        if len(value) > self.max_line:
            self.findings.add("long line", self.file, number, 0, f"{place}: more than {self.max_line:,} characters")
        for kind, pattern in SIGNS.items():
            for match in pattern.finditer(value):
                self.findings.add(kind, self.file, number, 0, f"{place}: U+{ord(match[0]):04X}")

    def elements(self, value: list[object], number: int, place: str) -> None:
        if not value:
            self.findings.add("empty line", self.file, number, 0, place)
        for element in value:
            if element is None:
                self.findings.add("null value", self.file, number, 0, f"{place}: an element of the list")
            elif isinstance(element, int) and element < 0:
                self.findings.add(
                    "negative number",
                    self.file,
                    number,
                    0,
                    f"{place}: {element} cannot be an id (a series may contain it)",
                )


def located_rows(path: Path, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the rows with these (ascending) numbers, as `located` yields lines; reads only up to the last one."""
    wanted = iter(numbers)
    number = next(wanted, None)
    for row in _rows(path) if numbers else ():
        if number is None:
            return
        if row.line == number:
            yield 0, _text(row.cells).encode("utf-8", "replace")
            number = next(wanted, None)


def _rows(path: Path) -> Iterator[Row]:
    if format_of(path) == "npy":
        for number, row, _ in rows_of(path):
            yield Row(number, {"": row.tolist()})
        return
    file = Parquet(path)
    yield from file.rows(_readable(file))


def _readable(file: Parquet) -> list[str]:
    names = file.schema.names
    return [name for name in names if names.count(name) == 1 and file.kind(name) in ("text", "number", "list")]


def _text(cells: Mapping[str, object]) -> str:
    """Return a row as one text, for comparing and showing."""
    values = (" ".join(map(str, value)) if isinstance(value, list) else value for value in cells.values())
    return "\t".join(str(value) for value in values if value is not None)
