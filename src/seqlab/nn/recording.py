"""A look inside while a model runs: parts `note` what others may want to see, and nothing happens unless someone does.

>>> with record() as tape:
...     model(tokens)
>>> tape["forget"]  # one tensor for every time it was noted
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

Tape = dict[str, list[Tensor]]
_tape: ContextVar[Tape | None] = ContextVar("tape", default=None)
Watch = Callable[[object, tuple[Tensor, ...]], None]
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)
_hear: ContextVar[Callable[[str], None] | None] = ContextVar("hear", default=None)


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


@contextmanager
def watch(see: Watch) -> Iterator[None]:
    """`see(cell, state)` after each step of every recurrence inside, which then runs step by step."""
    token = _watch.set(see)
    try:
        yield
    finally:
        _watch.reset(token)


def watching() -> bool:
    return _watch.get() is not None


def stepped(cell: object, state: tuple[Tensor, ...]) -> None:
    """Called after a step, with the state itself: gradients can be asked for."""
    see = _watch.get()
    if see is not None:
        see(cell, state)


@contextmanager
def remarks(hear: Callable[[str], None]) -> Iterator[None]:
    """What parts say about the way they work, each sentence once."""
    said: set[str] = set()

    def once(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            hear(sentence)

    token = _hear.set(once)
    try:
        yield
    finally:
        _hear.reset(token)


def remark(sentence: str) -> None:
    hear = _hear.get()
    if hear is not None:
        hear(sentence)


def note(**values: Tensor) -> None:
    """Called by parts, with what they have just computed."""
    tape = _tape.get()
    if tape is not None:
        for name, value in values.items():
            tape[name].append(value.detach())
