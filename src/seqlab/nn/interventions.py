"""Changes to what parts note, while a model runs: a head, a unit or a state is set, scaled or replaced.

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
"""One, or several, or all of them."""


@dataclass(frozen=True, kw_only=True)
class Change(ABC):
    """What becomes of a value (..., T, D), or (B, H, T, D) where there are heads; all of it by default.

    Positions are those of a call: one that reads a single token has one, whatever was read before. A recurrence goes
    one by one, and what it notes then is (B, D).
    """

    heads: Index = None
    positions: Index = None
    units: Index = None
    """Numbers of the last dimension; of attention weights, the positions that are looked at."""

    @abstractmethod
    def new(self, old: Tensor, place: _Positions) -> Tensor:
        """What takes the place of the chosen part."""

    def of(self, value: Tensor, place: _Positions) -> Tensor:
        """The whole value with the chosen part changed; gradients flow through it."""
        if self.heads is not None and value.dim() < 4:
            raise SeqlabError("there are no heads in what is noted here", hint="choose positions or units")
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
    """A number, or a tensor that can be expanded to what it replaces."""

    value: float | Tensor

    def new(self, old: Tensor, place: _Positions) -> Tensor:
        return place.of(self.value, old)


@dataclass(frozen=True)
class Scale(Change):
    """A factor, or a tensor of them."""

    factor: float | Tensor

    def new(self, old: Tensor, place: _Positions) -> Tensor:
        return old * place.of(self.factor, old)


@dataclass(frozen=True)
class Replace(Change):
    """A function of the chosen part, (..., T, D); in a recurrence of each step, (B, D)."""

    function: Callable[[Tensor], Tensor]

    def new(self, old: Tensor, place: _Positions) -> Tensor:
        with torch._C.DisableTorchFunction():  # products in it are not those of a cell
            return _expanded(self.function(old).to(old), old)


@contextmanager
def intervene(model: nn.Module, changes: Mapping[tuple[str, str], Change]) -> Iterator[None]:
    """Inside, what parts note is changed, and the model goes on with it: {(module path, name): change}.

    A * in a path stands for anything. A change that nothing was reached by is an error in the end. What a fused kernel
    would not show is computed by plain PyTorch.
    """
    for place in changes:
        if not isinstance(place, tuple) or len(place) != 2:
            raise SeqlabError(f"{place!r} is no place", hint='give a path and a name: ("blocks.3.attend", "heads")')
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
        if name is not None:  # a part that asks about a name is one that can note it
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
                    f"'{path}' noted nothing", hint="it never ran here, or it is a part that notes nothing"
                )
            if name not in noted:
                raise SeqlabError(f"'{path}' notes no '{name}'", hint=nearest(name, noted))
            what = f"no call of '{path}' had position {change.positions}"
            raise SeqlabError(what, hint="positions are counted from the first that a call reads")


class _Positions:
    """Which positions of a value are meant: `here` among its own, `meant` among the `count` that the change names."""

    def __init__(self, index: Index, value: Tensor, steps: Steps | None) -> None:
        self.alone = steps is not None and steps.alone
        length = 1 if self.alone else value.shape[-2]
        first, total = (0, length) if steps is None else (steps.first, steps.count)
        wanted = range(total) if index is None else [one + total if one < 0 else one for one in _listed(index)]
        here = [(number, one - first) for number, one in enumerate(wanted) if first <= one < first + length]
        self.meant, self.here, self.count = [n for n, _ in here], [p for _, p in here], len(wanted)

    def of(self, given: float | Tensor, old: Tensor) -> Tensor:
        """What is given for all positions (..., T, D), or for any of them (..., 1, D), for those that are here."""
        value = torch.as_tensor(given, dtype=old.dtype, device=old.device)
        if value.dim() > 1 and value.shape[-2] == self.count:
            value = value[..., self.meant, :]
        if value.dim() > 1 and self.alone:
            if value.shape[-2] != 1:
                raise _misfit(value, old)
            value = value.squeeze(-2)
        return _expanded(value, old)


def _changed(value: Tensor, chosen: list[tuple[int, list[int]]], change: Callable[[Tensor], Tensor]) -> Tensor:
    """A value with `change` of a part in the place of the part, which is chosen by numbers in some dimensions."""
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
    return SeqlabError(what, hint="give a number, or (B, T, D) or (B, H, T, D) as it is noted")


def _listed(index: int | Sequence[int]) -> list[int]:
    return [index] if isinstance(index, int) else list(index)


def _within(index: int | Sequence[int], size: int, what: str) -> list[int]:
    for one in _listed(index):
        if not -size <= one < size:
            raise SeqlabError(f"there is no {what} {one}", hint=f"there are {size}, counted from 0")
    return [one % size for one in _listed(index)]
