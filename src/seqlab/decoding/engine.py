"""The decoding loop: requests join at any step, proceed each in its own way, and leave when they are done.

B rows · V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from seqlab.decoding.reading import Reading, advance, check_prompts, no_room, places_of_attention, read
from seqlab.models.language_model import LanguageModel

Grown = list[tuple[int, int]]
"""The rows of a request after a step, in order: the index of the row that each extends, and its new token."""


class Request(ABC):
    """A requested text and its progress. It starts with one row and may have any number later."""

    prompt: Sequence[int]
    with_attention: bool = False
    """Whether it needs the attention of its rows to the source."""
    error: Exception | None = None
    """Why it left before it was done."""

    @property
    @abstractmethod
    def group(self) -> Hashable:
        """Requests of the same class and group, with the same number of rows, advance together."""

    @classmethod
    @abstractmethod
    def grow(cls, requests: Sequence[Self], reading: Reading) -> list[Grown]:
        """Choose how each request of a group continues; return an empty list for those that are done.

        `reading` holds the rows of all requests; the rows of one request are adjacent. An error is raised before any
        request is changed: the engine then calls this for each of them alone, to find out which one fails.
        """

    @abstractmethod
    def text(self, row: int) -> Sequence[int]:
        """Return the prompt and all tokens so far of one row."""


@dataclass
class _Place:
    """The place of a request in the batch: its first row, its number of rows, and how they continue."""

    request: Request
    first: int
    rows: int
    grown: Grown = field(default_factory=list)


class Engine:
    """Decodes requests in one batch, with the same results as if each were alone.

    >>> engine = Engine(model)
    >>> engine.admit([Writing([0, 5], Greedy(), limit=20)])
    >>> while engine.step(): ...

    A request that fails leaves with its `error`, and the others continue.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.waiting: list[tuple[list[Request], Mapping[str, Tensor] | None]] = []
        self.places: list[_Place] = []
        self.reading: Reading | None = None

    def admit(self, requests: Sequence[Request], source: Mapping[str, Tensor] | None = None) -> None:
        """Add requests, which join at the next step; each row of `source` belongs to equally many, in their order."""
        if not requests:
            return
        check_prompts(self.model, [request.prompt for request in requests])
        if any(request.with_attention for request in requests):
            places_of_attention(self.model)
        if source is not None and any(len(requests) % max(1, len(tensor)) for tensor in source.values()):
            raise ValueError(f"{len(requests)} requests, and a source of another number of rows")
        self.waiting.append((list(requests), source))

    def leave(self, request: Request) -> None:
        """Remove a request before it is done; its memory is freed at the next step."""
        self.places = [place for place in self.places if place.request is not request]
        self.waiting = [_without(request, *each) for each in self.waiting]

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Advance every request by one token. Return those that advanced or failed; empty when none is left."""
        with_attention = any(request.with_attention for request in self.requests)
        failed = self._advance(with_attention)
        while self.waiting:
            failed += self._join(*self.waiting.pop(0), with_attention)
        first = 0
        for place in self.places:
            place.first, first = first, first + place.rows
        moved = [place.request for place in self.places]
        for group in self._groups():
            self._grow(group)
        self.places = [place for place in self.places if place.grown]
        return moved + failed

    @property
    def requests(self) -> list[Request]:
        """All requests, including those that wait for the next step."""
        waiting = [request for requests, _ in self.waiting for request in requests]
        return [place.request for place in self.places] + waiting

    def _advance(self, with_attention: bool) -> list[Request]:
        """Read the chosen tokens of the requests that remain; return those that fail."""
        before, self.reading = self.reading, None
        if before is None or not self.places:
            return []
        failed = self._overrun(before)
        rows = [place.first + row for place in self.places for row, _ in place.grown]
        if not rows:
            return failed
        device = before.states.device
        tokens = torch.tensor([token for place in self.places for _, token in place.grown], device=device)
        for place in self.places:
            place.rows = len(place.grown)
        try:
            state = before.state
            if rows != list(range(len(before.states))):
                state = state.reorder(torch.tensor(rows, device=device))
                if len(self.places) < state.sources:
                    state = state.compact()
            self.reading = advance(self.model, tokens, state, self._text, with_attention)
        except Exception as error:  # such as no memory: the state is lost, and with it all requests
            failed += _failed(self.places, error)
            self.places = []
        return failed

    def _overrun(self, before: Reading) -> list[Request]:
        """Take out the requests that read a source and have filled the model's context."""
        context, state = self.model.context, before.state
        if context is None or state.owner is None:
            return []
        full = {row for row, length in enumerate(state.lengths.tolist()) if length >= context}
        over = [place for place in self.places if any(place.first + row in full for row, _ in place.grown)]
        failed = _failed(over, no_room())
        self.places = [place for place in self.places if place.grown]
        return failed

    def _join(
        self, requests: list[Request], source: Mapping[str, Tensor] | None, with_attention: bool
    ) -> list[Request]:
        """Read the prompts and the sources of new requests; return those that fail."""
        if not requests:
            return []
        try:
            new = read(self.model, [request.prompt for request in requests], source, with_attention)
        except Exception as error:
            if len(requests) == 1:
                requests[0].error = error
                return requests
            alone = [_of(requests, source, [row]) for row in range(len(requests))]
            each = (self._join(one, own, with_attention) for one, own in alone)
            return [one for failed in each for one in failed]
        self.reading = new if self.reading is None else self.reading.join(new)
        self.places += [_Place(request, 0, 1) for request in requests]
        return []

    def _grow(self, group: Sequence[_Place]) -> None:
        """Choose how the requests of a group continue; a request that fails does not."""
        assert self.reading is not None
        rows = [row for place in group for row in range(place.first, place.first + place.rows)]
        requests = [place.request for place in group]
        try:
            grown = type(requests[0]).grow(requests, self.reading.of(rows))
        except Exception as error:
            if len(group) == 1:
                _failed(group, error)
            else:
                for place in group:
                    self._grow([place])
            return
        for place, found in zip(group, grown, strict=True):
            place.grown = found

    def _text(self, row: int) -> Sequence[int]:
        """Return everything that a row has read, including the last chosen token."""
        texts = [(place.request, number) for place in self.places for number in range(place.rows)]
        request, number = texts[row]
        return request.text(number)

    def _groups(self) -> list[list[_Place]]:
        groups: dict[Hashable, list[_Place]] = {}
        for place in self.places:
            groups.setdefault((type(place.request), place.rows, place.request.group), []).append(place)
        return list(groups.values())


def succeeded(requests: Sequence[Request]) -> Sequence[Request]:
    """Return requests that advanced, or raise the error of the first one that failed."""
    for request in requests:
        if request.error is not None:
            raise request.error
    return requests


def _failed(places: Sequence[_Place], error: Exception) -> list[Request]:
    for place in places:
        place.grown, place.request.error = [], error
    return [place.request for place in places]


def _without(
    request: Request, requests: list[Request], source: Mapping[str, Tensor] | None
) -> tuple[list[Request], Mapping[str, Tensor] | None]:
    keep = [number for number, one in enumerate(requests) if one is not request]
    if len(keep) == len(requests):
        return requests, source
    return _of(requests, source, keep)


def _of(
    requests: list[Request], source: Mapping[str, Tensor] | None, rows: list[int]
) -> tuple[list[Request], Mapping[str, Tensor] | None]:
    """Return some requests, and a row of the source for each."""
    chosen = [requests[row] for row in rows]
    if source is None:
        return chosen, None
    return chosen, {
        name: tensor[[row * len(tensor) // len(requests) for row in rows]] for name, tensor in source.items()
    }
