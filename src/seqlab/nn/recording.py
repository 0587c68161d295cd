"""Records what happens inside a model while it runs: parts `note` what they compute, at no cost unless observed.

>>> with record(model, "decoder.blocks.3.attend") as tape:
...     model(tokens)
>>> tape["decoder.blocks.3.attend"]["weights"]  # a list: one tensor (B, H, T, N) per call of the part

In noted values, time is the dimension before the last: (B, T, D), or (B, H, T, N) with heads. Interventions, which
change noted values, are in `interventions.py`.
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
"""A module path, in which * matches anything, for everything noted there and below; or a path and a name, for what is
noted under that name exactly there."""


@contextmanager
def record(model: nn.Module, *places: Place) -> Iterator[Tape]:
    """Record what the parts of a model note within the context; everything, if no places are given.

    Recording changes no bit of any result: values hidden inside a fused kernel are computed separately. With
    interventions, the changed values are recorded.
    """
    tape = _Recording(model, places or ("*",))
    with observing(tape):
        yield tape.tape


class Notes(dict[str, list[Tensor]]):
    """What one part noted: for each name, one tensor per call of the part."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def __missing__(self, name: str) -> list[Tensor]:
        raise SeqlabError(f"notes no '{name}'", where=self.path or "the model", hint=nearest(name, self))


class Tape(dict[str, Notes]):
    """What was recorded, by module path and name, in the order in which the parts ran."""

    def __missing__(self, path: str) -> Notes:
        hint = nearest(path, self) if self else "no part that notes anything ran"
        raise SeqlabError(f"nothing was recorded for '{path}'", hint=hint)


# ---------------------------------------------------------------------- for parts


def note(part: nn.Module, name: str, value: Tensor) -> Tensor:
    """Note a value that a part has just computed; return what the part continues with, changed by any intervention."""
    if not _someone or torch.compiler.is_compiling():
        return value
    steps = _steps.get()
    for one in _observers.get():
        value = one.note(part, name, value, steps)
    return value


def recorded(part: nn.Module, name: str | None = None) -> bool:
    """Whether what a part notes under a name is recorded; without a name, anything noted by it or a part below.

    For values that the result does not need: they are computed only if they are recorded.
    """
    return observed() and _watched(part, name, changing=False)


def changed(part: nn.Module, name: str | None = None) -> bool:
    """Whether it is changed by an intervention, so that the result must be computed from what `note` returns."""
    return observed() and _watched(part, name, changing=True)


def _watched(part: nn.Module, name: str | None, changing: bool) -> bool:
    return any(one.watches(part, name) for one in _observers.get() if one.changes == changing)


def observed() -> bool:
    """Whether there are any observers. Models compiled by `torch.compile` cannot be observed."""
    return _someone and not torch.compiler.is_compiling() and bool(_observers.get())


def through_time(count: int, alone: bool = False) -> Steps:
    """For loops over positions: concatenate what is noted at each step into one tensor over time.

    >>> with through_time(len(x)) as steps:
    ...     for position, one in enumerate(x):
    ...         steps.at(position)

    Each value noted inside has one position; if `alone`, it has no time dimension.
    """
    return Steps(count, alone) if observed() else _UNSEEN


@contextmanager
def unobserved() -> Iterator[None]:
    """Within the context, nothing is observed."""
    token = _observers.set(())
    try:
        yield
    finally:
        _observers.reset(token)


# ---------------------------------------------------------------------- observers


class Observer(ABC):
    """Observes some places of a model while it runs."""

    changes: ClassVar[bool]
    """Whether it changes noted values."""

    def __init__(self, model: nn.Module, places: Sequence[Place]) -> None:
        self.at: dict[nn.Module, list[tuple[str, str | None, int]]] = defaultdict(list)
        """For each observed part: its path, a name (None for any), and the index of the place."""
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
        """Whether it observes what a part notes under a name; without a name, anything noted by it or a part below."""
        if name is None:
            return part in self.at or part in self.above
        return any(wanted in (None, name) for _, wanted, _ in self.at.get(part, ()))

    @abstractmethod
    def note(self, part: nn.Module, name: str, value: Tensor, steps: Steps | None) -> Tensor:
        """Receive a noted value; return it, or its replacement."""


def _matching(pattern: str, paths: Collection[str], below: bool) -> list[str]:
    """Return the paths that match a pattern; if `below`, also those of all parts inside them."""
    if not below and pattern in paths:  # the usual case, without a pass over all parts
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
"""Observers that change values come first, so that the others see the changed values."""
_someone, _count, _counting = False, 0, Lock()
"""Whether anything is observed in any thread. Without observers, checking this is the only cost."""


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
    """A loop over positions and what has been noted in it so far."""

    def __init__(self, count: int, alone: bool) -> None:
        self.alone, self.position = alone, 0
        self.outer, self.own = _steps.get(), count
        self.count: int = count if self.outer is None else count * self.outer.count
        self.kept: dict[object, tuple[Keep, list[tuple[int, Tensor]]]] = {}

    def at(self, position: int) -> None:
        """Begin the step of a position; steps may come in any order."""
        self.position = position

    @property
    def first(self) -> int:
        """Where values noted now begin, among the `count` positions of the outermost loop."""
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
    """A loop that is not observed."""

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
    """Pass remarks of parts about how they work to `hear`, each sentence once."""
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
