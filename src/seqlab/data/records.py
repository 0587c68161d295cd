"""Records, which readers yield one by one with their origins, and documents, which make up built-in sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from seqlab.errors import DataError


@dataclass(frozen=True)
class Record:
    """One example: its fields by role (`text`; `source` and `target`; `text` and `label`; ...).

    A long plain text comes in several pieces, cut at line ends; `ends` is True for the last piece. A sequence of
    non-text symbols is also stored as text: the symbols separated by blanks.
    """

    fields: Mapping[str, str]
    file: str
    line: int
    ends: bool = True
    counted: str = "line"
    """What `line` counts, from 1: lines of text or rows of a table."""

    @property
    def place(self) -> str:
        return f"{self.file}, {self.counted} {self.line}"

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Make errors raised inside name this record's place, unless they already name one."""
        try:
            yield
        except DataError as error:
            where = error.where or self.place
            raise DataError(error.what, where=where, hint=error.hint) from None


@dataclass(frozen=True)
class Document:
    """One document of a built-in set."""

    name: str
    fields: Mapping[str, str]
    """By role, unless `data.columns` says otherwise; the same roles in all documents of a set."""
    key: str | None = None
    """The key that decides whether it is held out, shared by documents that belong together; its name by default."""
