"""Errors for people: one line that says what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class SeqlabError(Exception):
    """Something a person can put right. The command line prints it as one line and exits with code 2."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.hint = what, where, hint
        line = f"{where}: {what}" if where else what
        super().__init__(" ".join((f"{line}; {hint}" if hint else line).split("\n")))


class RecipeError(SeqlabError):
    """A recipe, or an override of one, that cannot be run."""


class DataError(SeqlabError):
    """Data that cannot be read."""


class RunError(SeqlabError):
    """A run folder that is not one, is damaged, or does not fit what is asked of it."""


class MemoryFull(RunError):
    """More memory was asked for than there is."""


class Caution(UserWarning):
    """Something that a person should know before they rely on a run or a figure. The command line prints it as one line
    and goes on."""


def caution(message: str) -> None:
    """Warn with a Caution, at the line outside of seqlab that it is about. Of several ranks, the first one warns."""
    if os.environ.get("RANK", "0") != "0":
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "seqlab":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, Caution, stacklevel=level)


COMPLAINTS = ("out of memory", "allocate memory", "not enough memory", "calculation overflowed", "Overflow when unpack")
"""What torch says, in errors of no type of their own, when a tensor is too large for a device or for any."""


@contextmanager
def memory_for(what: str, hint: str) -> Iterator[None]:
    """What an allocator complains of, Python's or torch's, said as: `what` does not fit into memory."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        if not isinstance(error, MemoryError) and not any(complaint in str(error) for complaint in COMPLAINTS):
            raise
        raise MemoryFull(f"{what} does not fit into memory", hint=hint) from None


LISTED = 24
"""A hint lists all valid names if there are no more than this; of columns, recipes or files there may be hundreds."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest valid one, and all of them; where there are many, the nearest few."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    meant = f"did you mean '{close[0]}'? " if close else ""
    if len(names) <= LISTED:
        return f"{meant}(valid: {', '.join(names)})"
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.3) or names[:5]
    return f"{meant}(valid: {', '.join(near)}, and {len(names) - len(near):,} more)"


def similar(name: str, names: Iterable[str]) -> str:
    """A hint that names no more than the few names that are nearest, or none: '' where nothing is near."""
    *others, last = [f"'{one}'" for one in difflib.get_close_matches(name, sorted(names), n=3)] or [""]
    return f"did you mean {', '.join(others)} or {last}?" if others else last and f"did you mean {last}?"
