"""What a reader gives: one example at a time, with the place it came from; and what built-in sets are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from seqlab.errors import DataError


@dataclass(frozen=True)
class Record:
    """One example: its fields by role (`text`; `source` and `target`; `text` and `label`; ...).

    A long plain text comes in several pieces, cut at ends of lines; `ends` is True for the last piece. A sequence
    of symbols that are no text is a text too: the symbols with blanks between them.
    """

    fields: Mapping[str, str]
    file: str
    line: int
    ends: bool = True
    counted: str = "line"
    """What `line` counts, from 1: lines of a text, rows of a table."""

    @property
    def place(self) -> str:
        return f"{self.file}, {self.counted} {self.line}"

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Errors inside, where they name no place, name this one."""
        try:
            yield
        except DataError as error:
            where = error.where or self.place
            raise DataError(error.what, where=where, hint=error.hint) from None


@dataclass(frozen=True)
class Document:
    """One of a built-in set."""

    name: str
    fields: Mapping[str, str]
    """By the role that each plays unless `data.columns` says otherwise; the same ones in all documents of a set."""
    key: str | None = None
    """What decides whether it is held out; its name, unless others are to go with it."""
