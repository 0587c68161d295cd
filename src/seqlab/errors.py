"""Errors for users: one line that says what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class SeqlabError(Exception):
    """An error that the user can fix. The command line prints it as one line and exits with code 2."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.hint = what, where, hint
        line = f"{where}: {what}" if where else what
        super().__init__(" ".join((f"{line}; {hint}" if hint else line).split("\n")))


class RecipeError(SeqlabError):
    """A recipe or an override that is invalid."""


class DataError(SeqlabError):
    """Data that cannot be read."""


class RunError(SeqlabError):
    """A run folder that is missing, damaged, or unsuitable for the request."""


class MemoryFull(RunError):
    """Not enough memory."""


class Caution(UserWarning):
    """A warning to heed before relying on a run or a figure. The command line prints it as one line and continues."""


def caution(message: str) -> None:
    """Issue a Caution that points at the calling line outside seqlab. With several ranks, only the first one warns."""
    if os.environ.get("RANK", "0") != "0":
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "seqlab":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, Caution, stacklevel=level)


COMPLAINTS = ("out of memory", "allocate memory", "not enough memory", "calculation overflowed", "Overflow when unpack")
"""Parts of the messages that torch raises, without a specific exception type, when a tensor is too large."""


@contextmanager
def memory_for(what: str, hint: str) -> Iterator[None]:
    """Turn an out-of-memory error from Python or torch into: `what` does not fit into memory."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        if not isinstance(error, MemoryError) and not any(complaint in str(error) for complaint in COMPLAINTS):
            raise
        raise MemoryFull(f"{what} does not fit into memory", hint=hint) from None


LISTED = 24
"""The most names a hint lists in full; there may be hundreds of columns, recipes or files."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the closest valid one, then all valid names, or the closest few of many."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1)
    near = names if len(names) <= LISTED else difflib.get_close_matches(name, names, n=5, cutoff=0.3) or names[:5]
    more = f", and {len(names) - len(near):,} more" if len(near) < len(names) else ""
    valid = f"valid: {', '.join(near)}{more}"
    return f"did you mean '{close[0]}'? ({valid})" if close else valid


def similar(name: str, names: Iterable[str]) -> str:
    """Return a hint that names up to three close matches, or '' if nothing is close."""
    *others, last = [f"'{one}'" for one in difflib.get_close_matches(name, sorted(names), n=3)] or [""]
    return f"did you mean {', '.join(others)} or {last}?" if others else last and f"did you mean {last}?"
