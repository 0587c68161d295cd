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

from seqlab.decoding.reading import Reading, advance, check_prompts, read
from seqlab.models.language_model import LanguageModel

Grown = list[tuple[int, int]]
"""The rows of a request after a step, in order: the index of the row that each extends, and its new token."""


class Request(ABC):
    """A requested text and its progress. It starts with one row and may have any number later."""

    prompt: Sequence[int]
    with_attention: bool = False
    """Whether it needs the attention of its rows to the source."""

    @property
    @abstractmethod
    def group(self) -> Hashable:
        """Requests of the same class and group, with the same number of rows, advance together."""

    @classmethod
    @abstractmethod
    def grow(cls, requests: Sequence[Self], reading: Reading) -> list[Grown]:
        """Choose how each request of a group continues; return an empty list for those that are done.

        `reading` holds the rows of all requests; the rows of one request are adjacent.
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
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.waiting: list[tuple[list[Request], Mapping[str, Tensor] | None]] = []
        self.places: list[_Place] = []
        self.reading: Reading | None = None

    def admit(self, requests: Sequence[Request], source: Mapping[str, Tensor] | None = None) -> None:
        """Add requests, which join at the next step; `source` has one row per request."""
        check_prompts(self.model, [request.prompt for request in requests])
        self.waiting.append((list(requests), source))

    def leave(self, request: Request) -> None:
        """Remove a request before it is done; its memory is freed at the next step."""
        self.places = [place for place in self.places if place.request is not request]
        self.waiting = [_without(request, *each) for each in self.waiting]

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Advance every request by one token. Return those that advanced; empty when there is nothing left to do."""
        with_attention = any(request.with_attention for request in self.requests)
        reading = self._advanced(with_attention)
        for requests, source in self.waiting:
            if requests:
                new = read(self.model, [request.prompt for request in requests], source, with_attention)
                reading = new if reading is None else reading.join(new)
                self.places += [_Place(request, 0, 1) for request in requests]
        self.waiting, self.reading = [], reading
        if reading is None:
            return []
        first = 0
        for place in self.places:
            place.first, first = first, first + place.rows
        for group in self._groups():
            rows = [row for place in group for row in range(place.first, place.first + place.rows)]
            requests = [place.request for place in group]
            for place, grown in zip(group, type(requests[0]).grow(requests, reading.of(rows)), strict=True):
                place.grown = grown
        moved = [place.request for place in self.places]
        self.places = [place for place in self.places if place.grown]
        return moved

    @property
    def requests(self) -> list[Request]:
        """All requests, including those that wait for the next step."""
        waiting = [request for requests, _ in self.waiting for request in requests]
        return [place.request for place in self.places] + waiting

    def _advanced(self, with_attention: bool) -> Reading | None:
        """Read the chosen tokens of the requests that remain."""
        before, self.reading = self.reading, None
        if before is None or not self.places:
            return None
        rows = [place.first + row for place in self.places for row, _ in place.grown]
        device = before.states.device
        tokens = torch.tensor([token for place in self.places for _, token in place.grown], device=device)
        state = before.state
        if rows != list(range(len(before.states))):
            state = state.reorder(torch.tensor(rows, device=device))
            if len(self.places) < state.sources:
                state = state.compact()
        for place in self.places:
            place.rows = len(place.grown)
        return advance(self.model, tokens, state, self._text, with_attention)

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


def _without(
    request: Request, requests: list[Request], source: Mapping[str, Tensor] | None
) -> tuple[list[Request], Mapping[str, Tensor] | None]:
    keep = [number for number, one in enumerate(requests) if one is not request]
    if len(keep) == len(requests):
        return requests, source
    return [requests[number] for number in keep], (
        None if source is None else {name: tensor[keep] for name, tensor in source.items()}
    )
