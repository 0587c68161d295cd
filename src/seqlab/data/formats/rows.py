"""Rows of JSON Lines files and tables. A row that cannot be parsed carries its fault, and reading continues."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from seqlab.data.formats.files import LONGEST_LINE

Lines = Iterable[tuple[int, str]]


@dataclass(frozen=True)
class Row:
    """A row by column, or its fault at `line`, `column` (both from 1)."""

    line: int
    cells: Mapping[str, object] = field(default_factory=dict)
    fault: str | None = None
    column: int = 1
    group: int | None = None
    """The row group, for .parquet files, where `line` counts rows."""

    @property
    def place(self) -> str:
        return f"line {self.line}" if self.group is None else f"row group {self.group}, row {self.line}"


def parse_rows(format: str, lines: Lines, header: bool = True) -> Iterator[Row]:
    """Yield the rows of a `jsonl`, `csv` or `tsv` file."""
    return json_rows(lines) if format == "jsonl" else table_rows(lines, format == "tsv", header)


def first_row(format: str, lines: Lines) -> list[str]:
    """Return the cells of the first row of a `csv` or `tsv` file; none if it is missing or broken."""
    return next((values for _, values, row in _parsed(lines, format == "tsv") if values or row), [])


def json_rows(lines: Lines) -> Iterator[Row]:
    """Yield one row per line with a JSON object; blank lines are skipped."""
    for number, text in lines:
        if not text.strip():
            continue
        try:
            cells = json.loads(text)
        except json.JSONDecodeError as error:
            yield Row(number, fault=f"invalid JSON ({error.msg})", column=error.colno)
        except (RecursionError, ValueError) as error:  # nested too deeply, or a number with too many digits
            yield Row(number, fault=f"invalid JSON ({error})")
        else:
            if isinstance(cells, dict):
                yield Row(number, cells)
            else:
                yield Row(number, fault=f"a JSON {type(cells).__name__}, but each line must be an object {{...}}")


def table_rows(lines: Lines, tabs: bool, header: bool = True) -> Iterator[Row]:
    """Yield the rows below a header line; without one, columns are numbered "0", "1", ... and "-1", "-2", ...

    Blank lines are skipped. With commas, fields may be quoted with " and may then contain line ends. With tabs, nothing
    is quoted: text/tab-separated-values forbids tabs inside fields, and files in the wild contain lone quotes.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    names: list[str] | None = None
    for first, values, row in _parsed(lines, tabs):
        if row is not None:
            yield row
        elif not values:
            continue
        elif names is None and header:
            names = values
            if len(set(names)) < len(names):
                yield Row(first, fault=f"a column appears twice in the header ({', '.join(names)})")
        elif names is not None and len(values) != len(names):
            yield Row(
                first, fault=f"{len(values)} fields, but the {'header' if header else 'first row'} has {len(names)}"
            )
        elif header:
            yield Row(first, dict(zip(names or (), values, strict=True)))
        else:
            names = names or values
            yield Row(first, {str(place): values[place] for place in range(-len(values), len(values))})


def _parsed(lines: Lines, tabs: bool) -> Iterator[tuple[int, list[str], Row | None]]:
    """Yield (first line, values, None) for each row, or (first line, [], the fault)."""
    raw: list[str] = []  # the lines of the current row
    number = 0

    def fed() -> Iterator[str]:
        nonlocal number
        for number, text in lines:  # noqa: B007
            raw.append(f"{text}\n")
            yield raw[-1]

    reader = _reader(fed(), tabs)
    while True:
        raw.clear()
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            first = number - len(raw) + 1
            yield first, [], _explained("".join(raw), first, str(error), tabs)
        else:
            yield number - len(raw) + 1, values, None


def _reader(lines: Iterable[str], tabs: bool) -> Iterator[list[str]]:
    if tabs:
        return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    return csv.reader(lines, strict=True)


def _explained(text: str, first: int, message: str, tabs: bool) -> Row:
    """Locate a fault by bisection, since the parser does not report where: later text never mends it."""
    if "unexpected end" in message or "field limit" in message:
        return Row(first, fault="a quote opened in this row is never closed")
    good, bad = 0, len(text)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _breaks(text[:middle], tabs):
            bad = middle
        else:
            good = middle
    before = text[: bad - 1]
    line, column = first + before.count("\n"), bad - 1 - before.rfind("\n")
    return Row(line, fault=f"broken row ({message})", column=column)


def _breaks(text: str, tabs: bool) -> bool:
    try:
        for _ in _reader(io.StringIO(text, newline=""), tabs):
            pass
    except csv.Error as error:
        return "unexpected end" not in str(error)
    return False
