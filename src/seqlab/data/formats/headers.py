"""Assigns columns of a .csv or .tsv file to roles, and decides whether the first line is a header.

Columns given as numbers (from 0, or from the end: -1) mean that the file has no header. In a two-column file without
column settings, source and target are the first and second column, if the first line is not a header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from seqlab.data.formats.aligned import PAIR
from seqlab.errors import DataError

NAME = re.compile(r"\w[\w-]*(?: \w[\w-]*){0,2}")
"""Matches cells that could be a column name: up to three words, and no sentence punctuation."""


class Chosen(NamedTuple):
    columns: dict[str, str]
    """By role."""
    header: bool = True


def choose_columns(
    roles: Sequence[str], named: Mapping[str, str | int], file: str, first_row: Callable[[], list[str]]
) -> Chosen:
    if all(isinstance(named.get(role), int) for role in roles):
        return Chosen({role: str(named[role]) for role in roles}, header=False)
    if set(roles) <= set(PAIR) and not set(roles) & set(named):
        first = first_row()
        if len(first) == len(PAIR) and not set(first) & set(PAIR):
            if all(NAME.fullmatch(cell) for cell in first) and first[0] != first[1]:
                hint = (
                    f"set data.columns={{source: {first[0]}, target: {first[1]}}} if it is a header, "
                    "{source: 0, target: 1} if not"
                )
                what = f"'{first[0]}', '{first[1]}' may be a header or a pair"
                raise DataError(what, where=f"{file}, line 1", hint=hint)
            return Chosen({role: str(PAIR.index(role)) for role in roles}, header=False)
    return Chosen({role: str(named.get(role, role)) for role in roles})
