"""What a reader gives: one example at a time, with the place it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """One example: its fields by role (`text`; `source` and `target`; `text` and `label`; ...).

    A long plain text comes in several pieces, cut at ends of lines; `ends` is True for the last piece.
    """

    fields: Mapping[str, str]
    file: str
    line: int
    ends: bool = True
