"""Words in columns: a token a line, its columns apart by tabs or else by blanks, an empty line between sentences.

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

CoNLL-U has ten columns apart by tabs, and lines that are no words: comments (#), several words written as one (ids as
1-2), words that are understood but not written (1.1). Elsewhere # is a word like any other. `-DOCSTART-` is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from seqlab.data.formats.symbol_texts import BLANK, BLANK_INSIDE
from seqlab.data.records import Record
from seqlab.errors import DataError

COLUMNS = {"conll": {"text": 0, "tags": -1}, "conllu": {"text": 1, "tags": 3}}
"""Where words and tags stand unless `data.columns` says otherwise: from 0, or from the end (-1)."""
NO_WORD = re.compile(r"#|\d+[-.]\d+\t")
DOCUMENT = "-DOCSTART-"
FEWEST = 20
"""Words that are enough to know a file of columns by."""


def looks_like_columns(lines: Iterable[str]) -> bool:
    """Whether lines are words in columns, though the name of their file does not say so: all have as many columns."""
    found = [cells_of(line) for line in lines]
    words = [cells for cells in found if cells and cells[0] != DOCUMENT]
    counts = {len(cells) for cells in words}
    apart = any(not cells for cells in found[:-1])
    return len(words) >= FEWEST and len(counts) == 1 and min(counts) > 1 and apart


def columns_of(roles: Iterable[str], named: Mapping[str, str | int], format: str, file: str) -> dict[str, int]:
    """The number of each role's column in a file."""
    found = {}
    for role in roles:
        column = named.get(role, COLUMNS[format].get(role))
        if column is None:
            hint = f"add data.columns.{role}, a number that counts from 0 (or, from the end, -1)"
            raise DataError(f"which column is '{role}'? A file of columns has no names", where=file, hint=hint)
        try:
            found[role] = int(column)
        except ValueError:
            hint = "give a number that counts from 0 (or, from the end, -1)"
            what = f"data.columns.{role} is '{column}', but columns have no names here"
            raise DataError(what, where=file, hint=hint) from None
    return found


def sentences(lines: Iterable[tuple[int, str]], file: str, columns: Mapping[str, int], format: str) -> Iterator[Record]:
    """A record a sentence: for each role what stands in its column, with blanks between the words."""
    held: dict[str, list[str]] = {role: [] for role in columns}
    first, model = 0, (0, 0)  # the first line of the sentence; a line of the file and how many columns it has
    for number, line in lines:
        cells = cells_of(line)
        if not cells or cells[0] == DOCUMENT:
            if first:
                yield _record(held, file, first)
            held, first = {role: [] for role in columns}, 0
        elif format == "conll" or not NO_WORD.match(line):
            model = model if model[0] else (number, len(cells))
            if len(cells) != model[1]:
                what = f"{len(cells)} columns where line {model[0]} has {model[1]}"
                raise DataError(what, where=f"{file}, line {number}, column {len(cells)}", hint="put the line right")
            for role, column in columns.items():
                held[role].append(_cell(cells, column, role, f"{file}, line {number}"))
            first = first or number
    if first:
        yield _record(held, file, first)


def cells_of(line: str) -> list[str]:
    """Where there is a tab, blanks belong to words ("10 000"); an empty line has none."""
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
