"""Numeric series from files: one long series per file, several that a column names, or one series per row.

In .csv, .tsv, .jsonl and .parquet files, columns are variables and each row is a time step; or each row is a series,
with its steps in the columns or in lists. Plain text is a table without a header: numbers separated by blanks or
commas. .npy arrays are (steps,), (steps, variables) or, with one series per row, (series, steps); or (series, steps,
variables).

N series · T steps · C variables
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab.data.formats.arrays import mapped
from seqlab.data.formats.contents import format_in
from seqlab.data.formats.files import lines, pieces, size_of
from seqlab.data.formats.numbers import is_missing, number_in, plain_rows
from seqlab.data.formats.parquet import Parquet
from seqlab.data.formats.rows import Row, parse_rows
from seqlab.data.formats.time_columns import counts_time
from seqlab.errors import DataError, nearest
from seqlab.recipe import DataSettings

Numbers = NDArray[np.float64]
VALUE = "value"
"""The name of the single variable when each row is a series."""


@dataclass(frozen=True)
class Series:
    """A series of values (T, C), with an answer (A,) if whole series have one."""

    name: str
    values: Numbers
    answer: Numbers | None = None
    line: int = 0
    """The line of the file that holds it, if it is a single row."""

    def picked(self, columns: Sequence[int]) -> Series:
        return replace(self, values=self.values[:, columns])


class Found(NamedTuple):
    """The series of a file and the names of their variables."""

    series: list[Series]
    columns: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Columns that are not variables, and why, for the user."""
    header: tuple[str, ...] = ()
    """All columns of a table in which each row is a step."""


@dataclass(frozen=True)
class Layout:
    """The meaning of a table's columns and rows."""

    columns: tuple[str, ...] | None = None
    """The variables; by default, all numeric columns except those that only count time (`time_columns.py`)."""
    keep: tuple[str, ...] = ()
    """Columns that are variables even if they count time: those to forecast."""
    keep_time: bool = False
    """Whether to keep all columns that count time."""
    by: str | None = None
    """The column that names each row's series, if a file has several."""
    row: Literal["step", "series"] = "step"
    answer: str | None = None
    """The column with the answer, if each row is a series."""


def series_of(path: Path, data: DataSettings, layout: Layout) -> Found:
    if size_of(path) == 0:
        raise DataError("empty file", where=str(path), hint="remove it, or add data to it")
    format = format_in(path, data)
    if format in ("npy", "txt") and layout.columns and not any(name.isdecimal() for name in layout.columns):
        layout = replace(layout, columns=None, keep_time=True)  # columns have no names here: use all of them, in order
    if format == "npy":
        return _of_array(path, layout)
    if format == "fasta":
        raise DataError("a .fasta file has letters, not numbers", where=str(path), hint="give a table or an array")
    rows = list(_rows(path, format, data))
    if not rows:
        raise DataError("no rows", where=str(path), hint="remove it, or add data to it")
    if layout.row == "series" or (format == "txt" and data.documents == "line"):
        return _rows_as_series(rows, path, layout, ragged=format == "txt")
    return _rows_as_steps(rows, path, layout)


def _rows(path: Path, format: str, data: DataSettings) -> Iterator[Row]:
    if format == "parquet":
        file = Parquet(path)
        rows: Iterable[Row] = file.rows(file.schema.names)
    elif format == "txt":
        rows = plain_rows(lines(pieces(path), str(path)), empty=data.empty_lines and data.documents == "line")
    else:
        rows = parse_rows(format, lines(pieces(path), str(path)))
    for row in rows:
        if row.fault is not None:
            where = f"{path}, line {row.line}, column {row.column}"
            raise DataError(row.fault, where=where, hint="correct the row")
        yield row


# ---------------------------------------------------------------------- a row is a step


def _rows_as_steps(rows: list[Row], path: Path, layout: Layout) -> Found:
    if layout.answer is not None:
        hint = "set task.row=series, or omit task.answer"
        raise DataError("an answer belongs to a whole series, but each row is a step", where=str(path), hint=hint)
    names = list(layout.columns or _columns_of_numbers(rows, path, leave_out={layout.by}))
    groups: dict[str, list[list[float]]] = {}
    for row in rows:
        if layout.columns is None and len(row.cells) != len(rows[0].cells):
            what = f"{len(row.cells)} columns, but the first row has {len(rows[0].cells)}"
            raise DataError(what, where=f"{path}, {row.place}", hint="correct the row, or set task.columns")
        group = "" if layout.by is None else str(_cell(row, layout.by, path))
        groups.setdefault(group, []).append([_number(row, name, path) for name in names])
    found = [Series(f"{path}: {name}" if name else str(path), np.array(steps)) for name, steps in groups.items()]
    header = tuple(rows[0].cells)
    if layout.columns is not None:
        return Found(found, tuple(names), header=header)
    texts = [f"'{name}' (no numbers)" for name in header if name not in (*names, layout.by)]
    return _without_time(Found(found, tuple(names), tuple(texts), header), layout, first=header[0])


def _without_time(found: Found, layout: Layout, first: str) -> Found:
    """Drop the columns that only count time, if others remain; `first` names the table's first column."""
    if layout.keep_time or len(found.columns) == 1:
        return found
    clocks = [
        place
        for place, name in enumerate(found.columns)
        if name not in layout.keep
        and counts_time(name, [one.values[:, place] for one in found.series], first=name == first)
    ]
    if not clocks or len(clocks) == len(found.columns):
        return found
    left = [place for place in range(len(found.columns)) if place not in clocks]
    values = found.series[0].values
    why = [
        f"'{found.columns[place]}' (counts time{', backwards: is the last row the oldest?' if falls else ''})"
        for place in clocks
        for falls in [bool(values[-1, place] < values[0, place])]
    ]
    series = [one.picked(left) for one in found.series]
    columns = tuple(found.columns[place] for place in left)
    return Found(series, columns, (*found.left_out, *why), found.header)


def _columns_of_numbers(rows: Sequence[Row], path: Path, leave_out: set[str | None]) -> list[str]:
    """Return the columns whose first non-empty cell is a number."""
    found = []
    for name in rows[0].cells:
        first = next((cell for row in rows if not is_missing(cell := row.cells.get(name))), None)
        if isinstance(first, list):
            raise DataError(
                f"column '{name}' contains lists", where=f"{path}, {rows[0].place}", hint="set task.row=series"
            )
        if name not in leave_out and number_in(first) is not None:
            found.append(name)
    if not found:
        listed = ", ".join(list(rows[0].cells)[:10]) + (", ..." if len(rows[0].cells) > 10 else "")
        raise DataError("no numeric column", where=str(path), hint=f"the columns are {listed}")
    return found


# ---------------------------------------------------------------------- a row is a series


def _rows_as_series(rows: list[Row], path: Path, layout: Layout, ragged: bool) -> Found:
    """Read each row as a series. `ragged`: every row has its own columns."""
    beside = {layout.by, layout.answer}
    names = layout.columns or tuple(name for name in rows[0].cells if name not in beside)
    lists = [name for name in names if isinstance(rows[0].cells.get(name), list)]
    if not lists and not layout.columns and not ragged:
        names = tuple(_columns_of_numbers(rows, path, leave_out=beside))
    found = []
    for row in rows:
        name = f"{path}, {row.place}" if layout.by is None else f"{path}: {_cell(row, layout.by, path)}"
        if ragged and not row.cells:  # an empty line, which is a row only if it needs an answer
            values = np.zeros((0, 1))
        else:
            values = _lists(row, lists, path) if lists else _steps(row, tuple(row.cells) if ragged else names, path)
        answer = _answer(row, layout.answer, path)
        found.append(Series(name, values, answer, row.line))
    return Found(found, tuple(lists) or (VALUE,))


def _lists(row: Row, names: Sequence[str], path: Path) -> Numbers:
    """Read a row whose cells are lists: the steps of one variable each."""
    columns = []
    for name in names:
        cell = _cell(row, name, path)
        if not isinstance(cell, list):
            what = f"column '{name}' is not a list but {cell!r:.40}"
            raise DataError(what, where=f"{path}, {row.place}", hint="write [1, 2, 3]")
        columns.append(
            [_checked(one, f"{path}, {row.place}, column '{name}', element {n}") for n, one in enumerate(cell, 1)]
        )
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in zip(names, columns, strict=True))
        what = f"lists of different lengths ({lengths})"
        raise DataError(
            what, where=f"{path}, {row.place}", hint="give all variables of a series the same number of steps"
        )
    return np.array(columns, dtype=np.float64).T


def _steps(row: Row, names: Sequence[str], path: Path) -> Numbers:
    """Read a row whose cells are steps; shorter series have empty cells at the end."""
    while names and is_missing(row.cells.get(names[-1])):
        names = names[:-1]
    if not names:
        raise DataError("a series without steps", where=f"{path}, {row.place}", hint="remove the row")
    return np.array([[_number(row, name, path)] for name in names])


def _answer(row: Row, name: str | None, path: Path) -> Numbers | None:
    """Return the answer of a row; None if it is missing."""
    cell = None if name is None else row.cells.get(name)
    if is_missing(cell):
        return None
    given = cell if isinstance(cell, list) else [cell]
    return np.array([_checked(one, f"{path}, {row.place}, column '{name}'") for one in given])


# ---------------------------------------------------------------------- arrays


def _of_array(path: Path, layout: Layout) -> Found:
    for key, value in {"task.series": layout.by, "task.answer": layout.answer}.items():
        if value is not None:
            raise DataError(f"an array has no column '{value}'", where=str(path), hint=f"omit {key}, or give a table")
    array = mapped(path)
    if array.dtype.kind not in "iufb":
        raise DataError(f"the array has the type {array.dtype}", where=str(path), hint="give an array of numbers")
    if array.ndim == 0 or array.ndim > 3 or array.size == 0:
        hint = "reshape it to (steps,), (steps, variables) or (series, steps, variables)"
        raise DataError(f"the array has the shape {array.shape}", where=str(path), hint=hint)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 2:
        array = array[:, :, None] if layout.row == "series" else array[None]
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        number, step, variable = (int(place) + 1 for place in bad[0])
        where = f"{path}, series {number}, step {step}, column {variable}"
        raise DataError("a NaN or infinite value", where=where, hint="fill it, or cut the series there")
    names = tuple(str(place + 1) for place in range(array.shape[2]))
    chosen = layout.columns or names
    if missing := [name for name in chosen if name not in names]:
        raise DataError(
            f"no column '{missing[0]}'", where=str(path), hint=f"the columns of an array are {', '.join(names)}"
        )
    picked = np.asarray(array[:, :, [int(name) - 1 for name in chosen]], dtype=np.float64)
    several = len(picked) > 1
    series = [Series(f"{path}, row {n}" if several else str(path), one) for n, one in enumerate(picked, 1)]
    found = Found(series, tuple(chosen))
    return found if layout.columns is not None else _without_time(found, layout, first=names[0])


# ---------------------------------------------------------------------- cells


def _cell(row: Row, name: str, path: Path) -> object:
    if name not in row.cells:
        raise DataError(f"no column '{name}'", where=f"{path}, {row.place}", hint=nearest(name, row.cells))
    return row.cells[name]


def _number(row: Row, name: str, path: Path) -> float:
    return _checked(_cell(row, name, path), f"{path}, {row.place}, column '{name}'")


def _checked(cell: object, where: str) -> float:
    number = number_in(cell)
    if number is None:
        what = "a missing value" if is_missing(cell) else f"not a number but {cell!r:.40}"
        hint = "fill it, remove the row, or choose other columns with task.columns=[...]"
        raise DataError(what, where=where, hint=hint)
    return number
