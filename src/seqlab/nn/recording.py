"""A look inside while a model runs: parts `note` what they compute, and nothing happens unless someone looks.

>>> with record(model, "decoder.blocks.3.attend") as tape:
...     model(tokens)
>>> tape["decoder.blocks.3.attend"]["weights"]  # a list: one tensor (B, H, T, N) for each time that the part ran

What parts note has time before its last dimension: (B, T, D), or (B, H, T, N) where there are heads. Who changes what
is noted is in `interventions.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from threading import Lock
from types import TracebackType
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from seqlab.errors import SeqlabError, nearest

Place = str | tuple[str, str]
"""A module path, where * stands for anything: all that is noted there and below. Or a path and a name: what is noted
under that name exactly there."""


@contextmanager
def record(model: nn.Module, *places: Place) -> Iterator[Tape]:
    """What the parts of a model note inside; everything, where no places are named.

    Recording changes no bit of any result: what a fused kernel does not show is computed beside it. Where there are
    interventions, what is recorded is what the model goes on with.
    """
    tape = _Recording(model, places or ("*",))
    with observing(tape):
        yield tape.tape


class Notes(dict[str, list[Tensor]]):
    """What one part noted: by name, a tensor for each time that it ran."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def __missing__(self, name: str) -> list[Tensor]:
        raise SeqlabError(f"notes no '{name}'", where=self.path or "the model", hint=nearest(name, self))


class Tape(dict[str, Notes]):
    """What was recorded, by module path and name, in the order in which parts ran."""

    def __missing__(self, path: str) -> Notes:
        hint = nearest(path, self) if self else "no part that notes anything ran"
        raise SeqlabError(f"nothing was recorded of '{path}'", hint=hint)


# ---------------------------------------------------------------------- for parts


def note(part: nn.Module, name: str, value: Tensor) -> Tensor:
    """Called by parts with what they have just computed → what they go on with: the same, unless someone changes it."""
    if not _someone or torch.compiler.is_compiling():
        return value
    steps = _steps.get()
    for one in _observers.get():
        value = one.note(part, name, value, steps)
    return value


def recorded(part: nn.Module, name: str | None = None) -> bool:
    """Whether someone records what a part notes under a name; without a name, anything that it or a part below notes.

    For values that are not there otherwise: they are computed beside the result.
    """
    return observed() and _watched(part, name, changing=False)


def changed(part: nn.Module, name: str | None = None) -> bool:
    """Whether someone changes it: then the result is to be made of what `note` returns."""
    return observed() and _watched(part, name, changing=True)


def _watched(part: nn.Module, name: str | None, changing: bool) -> bool:
    return any(one.watches(part, name) for one in _observers.get() if one.changes == changing)


def observed() -> bool:
    """Whether there is anyone at all. Models compiled by the library cannot be looked into."""
    return _someone and not torch.compiler.is_compiling() and bool(_observers.get())


def through_time(count: int, alone: bool = False) -> Steps:
    """For loops over positions: what is noted at each step is put together, and is one tensor over time in the end.

    >>> with through_time(len(x)) as steps:
    ...     for position, one in enumerate(x):
    ...         steps.at(position)

    What is noted inside has one position each; `alone`, it has no dimension for time.
    """
    return Steps(count, alone) if observed() else _UNSEEN


@contextmanager
def unobserved() -> Iterator[None]:
    """Nobody looks at what runs inside."""
    token = _observers.set(())
    try:
        yield
    finally:
        _observers.reset(token)


# ---------------------------------------------------------------------- those who look


class Observer(ABC):
    """Someone who looks at some places of a model while it runs."""

    changes: ClassVar[bool]
    """Whether what is noted becomes something else."""

    def __init__(self, model: nn.Module, places: Sequence[Place]) -> None:
        self.at: dict[nn.Module, list[tuple[str, str | None, int]]] = defaultdict(list)
        """For each part that is looked at: its path, a name (None: any), and the number of the place."""
        parts = dict(model.named_modules(remove_duplicate=False))
        for number, place in enumerate(places):
            pattern, name = (place, None) if isinstance(place, str) else place
            found = _matching(pattern, parts, below=name is None)
            if not found:
                raise SeqlabError(f"the model has no part '{pattern}'", hint=nearest(pattern, filter(None, parts)))
            for path in found:
                self.at[parts[path]].append((path, name, number))
        watched = {path for spots in self.at.values() for path, _, _ in spots}
        above = {path[:dot] for path in watched for dot in range(len(path)) if path[dot] == "."} | {""}
        self.above = {parts[path] for path in above} if watched else set()

    def watches(self, part: nn.Module, name: str | None) -> bool:
        """At what a part notes under a name; without a name, at anything that it or a part below notes."""
        if name is None:
            return part in self.at or part in self.above
        return any(wanted in (None, name) for _, wanted, _ in self.at.get(part, ()))

    @abstractmethod
    def note(self, part: nn.Module, name: str, value: Tensor, steps: Steps | None) -> Tensor:
        """What becomes of a value."""


def _matching(pattern: str, paths: Collection[str], below: bool) -> list[str]:
    """The paths that a pattern stands for; `below`, those of parts inside of these as well."""
    if not below and pattern in paths:  # the usual case, which need not look at every part
        return [pattern]
    return [one for one in paths if fnmatchcase(one, pattern) or (below and fnmatchcase(one, f"{pattern}.*"))]


class _Recording(Observer):
    changes = False

    def __init__(self, model: nn.Module, places: Sequence[Place]) -> None:
        super().__init__(model, places)
        self.tape = Tape()

    def note(self, part: nn.Module, name: str, value: Tensor, steps: Steps | None) -> Tensor:
        for path in dict.fromkeys(path for path, wanted, _ in self.at.get(part, ()) if wanted in (None, name)):
            keep = self._keeper(path, name)
            keep(value.detach()) if steps is None else steps.put((self, path, name), keep, value.detach())
        return value

    def _keeper(self, path: str, name: str) -> Callable[[Tensor], None]:
        def keep(value: Tensor) -> None:
            self.tape.setdefault(path, Notes(path)).setdefault(name, []).append(value)

        return keep


_observers: ContextVar[tuple[Observer, ...]] = ContextVar("lookers", default=())
"""Those who change things come first: the others see what became of them."""
_someone, _count, _counting = False, 0, Lock()
"""Whether anyone looks at anything, in whatever thread: all that it costs where nobody does."""


@contextmanager
def observing(one: Observer) -> Iterator[None]:
    token = _observers.set(tuple(sorted([*_observers.get(), one], key=lambda observer: not observer.changes)))
    _count_observers(1)
    try:
        yield
    finally:
        _count_observers(-1)
        _observers.reset(token)


def _count_observers(more: int) -> None:
    global _someone, _count
    with _counting:
        _count += more
        _someone = _count > 0


# ---------------------------------------------------------------------- loops over time

Keep = Callable[[Tensor], None]


class Steps:
    """A loop over positions, and what was noted in it so far."""

    def __init__(self, count: int, alone: bool) -> None:
        self.alone, self.position = alone, 0
        self.outer, self.own = _steps.get(), count
        self.count: int = count if self.outer is None else count * self.outer.count
        self.kept: dict[object, tuple[Keep, list[tuple[int, Tensor]]]] = {}

    def at(self, position: int) -> None:
        """A step begins, in whatever order they come."""
        self.position = position

    @property
    def first(self) -> int:
        """The position of the first value in the outermost loop, which has `count` of them."""
        return self.position if self.outer is None else self.outer.first * self.own + self.position

    def put(self, key: object, keep: Keep, value: Tensor) -> None:
        self.kept.setdefault(key, (keep, []))[1].append((self.position, value))

    def __enter__(self) -> Self:
        self.token = _steps.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        _steps.reset(self.token)
        for key, (keep, values) in self.kept.items() if kind is None else ():
            in_order = [value for _, value in sorted(values, key=lambda one: one[0])]
            whole = torch.stack(in_order, -2) if self.alone else torch.cat(in_order, -2)
            keep(whole) if self.outer is None else self.outer.put(key, keep, whole)


class _Unseen(Steps):
    """A loop that nobody looks at."""

    def __init__(self) -> None: ...

    def at(self, position: int) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None: ...


_UNSEEN = _Unseen()
_steps: ContextVar[Steps | None] = ContextVar("steps", default=None)


# ---------------------------------------------------------------------- remarks

_hear: ContextVar[Callable[[str], None] | None] = ContextVar("hear", default=None)


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
