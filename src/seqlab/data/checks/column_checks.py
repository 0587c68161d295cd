"""Finds faults in table columns: non-numeric cells among numbers, and columns that forecasts leave out.

A column is numeric if its first non-empty cell is a number, as forecasts read it, and so are nine of ten others. A
table with such columns, and none with longer texts, is taken to hold series; there, a cell without a number stops
training.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

from seqlab.data.formats.numbers import is_missing, number_in
from seqlab.data.formats.rows import Row
from seqlab.data.formats.time_columns import MANY, counts_time

TEXT = 30
"""Average number of characters per cell above which a column holds text rather than names, dates or labels."""
SEEN = 10_000
"""Numbers per column to examine when deciding whether it counts time."""

Report = dict[str, tuple[int, list[tuple[int, str]]]]
"""By kind: the number of findings, and the first of them as (line, what)."""


@dataclass
class _Column:
    first_is_number: bool | None = None
    numbers: int = 0
    others: int = 0
    characters: int = 0
    holes: int = 0
    """Cells that are empty or not numbers."""
    places: list[tuple[int, str]] = field(default_factory=list)
    lists: bool = False
    begin: array[float] = field(default_factory=lambda: array("d"))

    @property
    def is_number(self) -> bool:
        return bool(self.first_is_number) and self.others <= self.numbers / 9

    @property
    def is_text(self) -> bool:
        return self.others > 0 and self.characters > TEXT * self.others


class Columns:
    """Collects a few statistics about each column while rows are added."""

    def __init__(self, keep: int) -> None:
        self.keep, self.columns = keep, dict[str, _Column]()
        self.line, self.rows = 1, 0

    def add(self, row: Row) -> None:
        if not self.rows:
            self.line = row.line
        self.rows += 1
        for name, cell in row.cells.items():
            column = self.columns.setdefault(name, _Column())
            if isinstance(cell, list):
                column.lists = True
                for place, element in enumerate(cell, 1):
                    self._cell(column, row, f"column '{name}', element {place}", element)
            else:
                self._cell(column, row, f"column '{name}'", cell)

    def _cell(self, column: _Column, row: Row, where: str, cell: object) -> None:
        number, missing = number_in(cell), is_missing(cell)
        if number is not None:
            column.numbers += 1
            if len(column.begin) < SEEN:
                column.begin.append(number)
        elif not missing:
            column.others += 1
            column.characters += len(cell) if isinstance(cell, str) else TEXT + 1
        if column.first_is_number is None and not missing:
            column.first_is_number = number is not None
        if number is None:
            column.holes += 1
            if len(column.places) < self.keep:
                what = "a missing value" if missing else f"not a number but {cell!r:.40}"
                column.places.append((row.line, f"{where}: {what}"))

    def are_numbers(self) -> bool:
        """Return True if all columns are numeric."""
        return bool(self.columns) and all(column.is_number for column in self.columns.values())

    def findings(self) -> Report:
        numbers = {name: column for name, column in self.columns.items() if column.is_number}
        series = bool(numbers) and not any(column.is_text for column in self.columns.values())
        holes = [place for column in numbers.values() for place in column.places]
        count = sum(column.holes for column in numbers.values())
        found: Report = {"missing number" if series else "empty cell": (count, sorted(holes)[: self.keep])}
        if series and self.rows >= MANY:
            left_out = [(self.line, f"'{name}' {why}") for name, why in self._left_out(numbers)]
            found["column left out"] = len(left_out), left_out[: self.keep]
        return {kind: (total, places) for kind, (total, places) in found.items() if total}

    def _left_out(self, numbers: dict[str, _Column]) -> list[tuple[str, str]]:
        why = "has no numbers: forecasts leave it out"
        texts = [(name, why) for name in self.columns if name not in numbers]
        first = next(iter(self.columns))
        clocks = [
            (name, "counts time: forecasts leave it out, unless task.columns=[...] names it")
            for name, column in numbers.items()
            if not column.lists
            and not column.holes
            and counts_time(name, [np.array(column.begin)], first=name == first)
        ]
        return texts + (clocks if len(clocks) < len(numbers) else [])
