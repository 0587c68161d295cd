"""Interventions: set, scale or replace heads, units or states while a model runs.

>>> with intervene(model, {("decoder.blocks.3.attend", "heads"): Scale(0, heads=2)}):
...     model(tokens)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqlab.errors import SeqlabError, nearest
from seqlab.nn.recording import Observer, Steps, observing

Index = int | Sequence[int] | None
"""One index, several, or None for all."""


@dataclass(frozen=True, kw_only=True)
class Change(ABC):
    """A change to a noted value (..., T, D), or (B, H, T, D) with heads; to all of it by default.

    Positions are counted within a call: a call that reads one token has one position, whatever was read before.
    Recurrent loops note one step at a time, as (B, D).
    """

    heads: Index = None
    positions: Index = None
    units: Index = None
    """Indices in the last dimension; for attention weights, the positions attended to."""

    @abstractmethod
    def new(self, old: Tensor, place: _Positions) -> Tensor:
        """Return the replacement for the chosen part."""

    def of(self, value: Tensor, place: _Positions) -> Tensor:
        """Return the whole value with the chosen part changed; gradients flow through it."""
        if self.heads is not None and value.dim() < 4:
            raise SeqlabError("the value noted here has no heads", hint="choose positions or units")
        chosen: dict[int, list[int]] = {}
        if self.heads is not None:
            chosen[-3] = _within(self.heads, value.shape[-3], "head")
        if self.positions is not None and not place.alone:
            chosen[-2] = place.here
        if self.units is not None:
            chosen[-1] = _within(self.units, value.shape[-1], "unit")
        return _changed(value, list(chosen.items()), lambda part: self.new(part, place))


@dataclass(frozen=True)
class Set(Change):
    """Sets the chosen part to a number, or to a tensor that can be expanded to its shape."""

    value: float | Tensor

    def new(self, old: Tensor, place: _Positions) -> Tensor:
        return place.of(self.value, old)


@dataclass(frozen=True)
class Scale(Change):
    """Multiplies the chosen part by a factor, or by a tensor of factors."""

    factor: float | Tensor

    def new(self, old: Tensor, place: _Positions) -> Tensor:
        return old * place.of(self.factor, old)


@dataclass(frozen=True)
class Replace(Change):
    """Replaces the chosen part, (..., T, D), by a function of it; in a recurrent loop, step by step, (B, D)."""

    function: Callable[[Tensor], Tensor]

    def new(self, old: Tensor, place: _Positions) -> Tensor:
        with torch._C.DisableTorchFunction():  # its products are not products of the cell
            return _expanded(self.function(old).to(old), old)


@contextmanager
def intervene(model: nn.Module, changes: Mapping[tuple[str, str], Change]) -> Iterator[None]:
    """Within the context, change what parts note; the model continues with it: {(module path, name): change}.

    A * in a path matches anything. A change that never applied raises an error on exit. Values hidden inside a fused
    kernel are computed by plain PyTorch instead.
    """
    for place in changes:
        if not isinstance(place, tuple) or len(place) != 2:
            raise SeqlabError(f"{place!r} is not a place", hint='give a path and a name: ("blocks.3.attend", "heads")')
    one = _Interventions(model, changes)
    with observing(one):
        yield
    one.check()


class _Interventions(Observer):
    changes = True

    def __init__(self, model: nn.Module, changes: Mapping[tuple[str, str], Change]) -> None:
        super().__init__(model, list(changes))
        self.items = list(changes.items())
        self.reached: set[int] = set()
        self.noted: dict[int, set[str]] = defaultdict(set)

    def watches(self, part: nn.Module, name: str | None) -> bool:
        if name is not None:  # a part that asks about a name can note it
            for _, _, number in self.at.get(part, ()):
                self.noted[number].add(name)
        return super().watches(part, name)

    def note(self, part: nn.Module, name: str, value: Tensor, steps: Steps | None) -> Tensor:
        for path, wanted, number in self.at.get(part, ()):
            self.noted[number].add(name)
            change = self.items[number][1]
            place = _Positions(change.positions, value, steps)
            if wanted == name and place.here:
                try:
                    value = change.of(value, place)
                except SeqlabError as error:
                    raise SeqlabError(error.what, where=f"{path}, {name}", hint=error.hint) from None
                self.reached.add(number)
        return value

    def check(self) -> None:
        for number, ((path, name), change) in enumerate(self.items):
            if number in self.reached:
                continue
            if not (noted := self.noted[number]):
                raise SeqlabError(
                    f"'{path}' noted nothing", hint="it did not run here, or it is a part that notes nothing"
                )
            if name not in noted:
                raise SeqlabError(f"'{path}' notes no '{name}'", hint=nearest(name, noted))
            what = f"no call of '{path}' had position {change.positions}"
            raise SeqlabError(what, hint="positions are counted from the first one that a call reads")


class _Positions:
    """The positions that a change selects: `here` within the value, `meant` within the `count` that it names."""

    def __init__(self, index: Index, value: Tensor, steps: Steps | None) -> None:
        self.alone = steps is not None and steps.alone
        length = 1 if self.alone else value.shape[-2]
        first, total = (0, length) if steps is None else (steps.first, steps.count)
        wanted = range(total) if index is None else [one + total if one < 0 else one for one in _listed(index)]
        here = [(number, one - first) for number, one in enumerate(wanted) if first <= one < first + length]
        self.meant, self.here, self.count = [n for n, _ in here], [p for _, p in here], len(wanted)

    def of(self, given: float | Tensor, old: Tensor) -> Tensor:
        """The part of `given` for the positions that are here; it has all (..., T, D), or one for any (..., 1, D)."""
        value = torch.as_tensor(given, dtype=old.dtype, device=old.device)
        if value.dim() > 1 and value.shape[-2] == self.count:
            value = value[..., self.meant, :]
        if value.dim() > 1 and self.alone:
            if value.shape[-2] != 1:
                raise _misfit(value, old)
            value = value.squeeze(-2)
        return _expanded(value, old)


def _changed(value: Tensor, chosen: list[tuple[int, list[int]]], change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a value with `change` applied to the part that `chosen` selects: indices in some of its dimensions."""
    if not chosen:
        return change(value)
    (dim, numbers), *rest = chosen
    index = torch.tensor(numbers, dtype=torch.long, device=value.device)
    return value.index_copy(dim, index, _changed(value.index_select(dim, index), rest, change))


def _expanded(value: Tensor, old: Tensor) -> Tensor:
    try:
        return value.expand(old.shape)
    except RuntimeError:
        raise _misfit(value, old) from None


def _misfit(value: Tensor, old: Tensor) -> SeqlabError:
    what = f"a value of shape {tuple(value.shape)} does not fit {tuple(old.shape)}"
    return SeqlabError(what, hint="give a number, or a tensor (B, T, D) or (B, H, T, D) like the noted value")


def _listed(index: int | Sequence[int]) -> list[int]:
    return [index] if isinstance(index, int) else list(index)


def _within(index: int | Sequence[int], size: int, what: str) -> list[int]:
    for one in _listed(index):
        if not -size <= one < size:
            raise SeqlabError(f"there is no {what} {one}", hint=f"there are {size}, counted from 0")
    return [one % size for one in _listed(index)]
