"""Long work tells how far it is, and whoever wants to see it sets a display around it: the commands do.

A context variable, so that neither tasks nor tokenizers have to hand a display down to where the work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Display(Protocol):
    """Shows one piece of work at a time."""

    def begin(self, what: str, total: int | None) -> None:
        """`total` is in bytes of text, where it is known."""

    def advance(self, done: int) -> None: ...

    def end(self) -> None: ...


_display: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def shown_by(display: Display) -> Iterator[None]:
    """Work inside is shown."""
    before = _display.set(display)
    try:
        yield
    finally:
        _display.reset(before)


@contextmanager
def work(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """To be called with the bytes of text done so far."""
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
    """Of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def readable_size(count: float) -> str:
    """1234567 → 1.2 MB"""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} bytes" if units[0] == "bytes" else f"{count:.1f} {units[0]}"
