"""Words in columns: one token per line, columns separated by tabs or else blanks, an empty line between sentences.

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

CoNLL-U has ten columns separated by tabs, and lines that are not words: comments (#), several words written as one (ids
such as 1-2), and words that are understood but not written (1.1). In other formats, # is an ordinary word. `-DOCSTART-`
is not a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from seqlab.data.formats.symbol_texts import BLANK, BLANK_INSIDE
from seqlab.data.records import Record
from seqlab.errors import DataError

COLUMNS = {"conll": {"text": 0, "tags": -1}, "conllu": {"text": 1, "tags": 3}}
"""The columns of words and tags unless `data.columns` sets them, from 0, or from the end (-1)."""
NO_WORD = re.compile(r"#|\d+[-.]\d+\t")
DOCUMENT = "-DOCSTART-"
FEWEST = 20
"""Words needed to recognise a file of columns."""


def looks_like_columns(lines: Iterable[str]) -> bool:
    """Return True if lines look like words in columns, whatever the file name: all have the same number of columns."""
    found = [cells_of(line) for line in lines]
    words = [cells for cells in found if cells and cells[0] != DOCUMENT]
    counts = {len(cells) for cells in words}
    apart = any(not cells for cells in found[:-1])
    return len(words) >= FEWEST and len(counts) == 1 and min(counts) > 1 and apart


def columns_of(roles: Iterable[str], named: Mapping[str, str | int], format: str, file: str) -> dict[str, int]:
    """Return the number of each role's column in a file."""
    found = {}
    for role in roles:
        column = named.get(role, COLUMNS[format].get(role))
        if column is None:
            hint = f"set data.columns.{role} to a number, counted from 0 (or -1 from the end)"
            what = f"no column is given for '{role}', and columns have no names in this format"
            raise DataError(what, where=file, hint=hint)
        try:
            found[role] = int(column)
        except ValueError:
            hint = "give a number, counted from 0 (or -1 from the end)"
            what = f"data.columns.{role} is '{column}', but columns have no names in this format"
            raise DataError(what, where=file, hint=hint) from None
    return found


def sentences(lines: Iterable[tuple[int, str]], file: str, columns: Mapping[str, int], format: str) -> Iterator[Record]:
    """Yield one record per sentence: for each role, the contents of its column, separated by blanks."""
    held: dict[str, list[str]] = {role: [] for role in columns}
    first, model = 0, (0, 0)  # the first line of the sentence; the first line of the file with its number of columns
    for number, line in lines:
        cells = cells_of(line)
        if not cells or cells[0] == DOCUMENT:
            if first:
                yield _record(held, file, first)
            held, first = {role: [] for role in columns}, 0
        elif format == "conll" or not NO_WORD.match(line):
            model = model if model[0] else (number, len(cells))
            if len(cells) != model[1]:
                what = f"{len(cells)} columns, but line {model[0]} has {model[1]}"
                raise DataError(what, where=f"{file}, line {number}, column {len(cells)}", hint="correct the line")
            for role, column in columns.items():
                held[role].append(_cell(cells, column, role, f"{file}, line {number}"))
            first = first or number
    if first:
        yield _record(held, file, first)


def cells_of(line: str) -> list[str]:
    """Split a line into cells: at tabs if there are any ("10 000" stays one word), else at blanks; [] if it is
    empty."""
    line = line.removesuffix("\r")
    if not line.strip():
        return []
    return [cell.strip(" ") for cell in line.split("\t")] if "\t" in line else re.split(" +", line.strip(" "))


def _cell(cells: list[str], column: int, role: str, where: str) -> str:
    if not -len(cells) <= column < len(cells):
        what = f"no column {column} for '{role}': the line has {len(cells)}, 0 to {len(cells) - 1}"
        raise DataError(what, where=f"{where}, column {column}", hint=f"set data.columns.{role}")
    if not cells[column]:
        raise DataError(f"'{role}' is empty", where=f"{where}, column {column % len(cells)}", hint="fill it")
    return BLANK.sub(BLANK_INSIDE, cells[column])


def _record(held: Mapping[str, list[str]], file: str, line: int) -> Record:
    return Record({role: " ".join(words) for role, words in held.items()}, file, line)
