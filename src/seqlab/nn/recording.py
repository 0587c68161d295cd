"""A look inside while a model runs: parts `note` what others may want to see, and nothing happens unless someone does.

>>> with record() as tape:
...     model(tokens)
>>> tape["forget"]  # one tensor for every time it was noted
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

Tape = dict[str, list[Tensor]]
_tape: ContextVar[Tape | None] = ContextVar("tape", default=None)


@contextmanager
def record() -> Iterator[Tape]:
    """Everything that is noted inside, by name and in order."""
    tape: Tape = defaultdict(list)
    token = _tape.set(tape)
    try:
        yield tape
    finally:
        _tape.reset(token)


@contextmanager
def unrecorded() -> Iterator[None]:
    token = _tape.set(None)
    try:
        yield
    finally:
        _tape.reset(token)


def recording() -> bool:
    return _tape.get() is not None


def note(**values: Tensor) -> None:
    """Called by parts, with what they have just computed."""
    tape = _tape.get()
    if tape is not None:
        for name, value in values.items():
            tape[name].append(value.detach())
