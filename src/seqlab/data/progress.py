"""Progress of long work, shown by whatever display the caller sets, as the commands do.

A context variable, so that tasks and tokenizers need not pass a display down to where the work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Display(Protocol):
    """Shows one piece of work at a time."""

    def begin(self, what: str, total: int | None) -> None:
        """`total` is in bytes of text, if known."""

    def advance(self, done: int) -> None: ...

    def end(self) -> None: ...


_display: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def shown_by(display: Display) -> Iterator[None]:
    """Show the work done inside on a display."""
    before = _display.set(display)
    try:
        yield
    finally:
        _display.reset(before)


@contextmanager
def work(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the bytes of text done so far."""
    display = _display.get()
    if display is None:
        yield lambda done: None
        return
    display.begin(what, total)
    try:
        yield display.advance
    finally:
        display.end()


def bytes_of(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def readable_size(count: float) -> str:
    """1234567 → 1.2 MB"""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} bytes" if units[0] == "bytes" else f"{count:.1f} {units[0]}"
