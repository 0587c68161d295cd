"""What became of each held-out example, as plain data: what is right, what was found, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from seqlab.data.batching.batches import Batch
from seqlab.data.records import Record
from seqlab.objectives.objective import Objective


@dataclass(frozen=True)
class Outcome:
    record: Record
    text: str
    """What the model read, as it was given; empty where that is no text."""
    loss: float
    """Its part of the sum that evaluations divide by a count: −log p of what is right, or an error."""


@dataclass(frozen=True)
class Classified(Outcome):
    given: Sequence[str]
    """The right label; or, where there may be several, all of them."""
    probabilities: Mapping[str, float]
    several: bool = False

    @property
    def found(self) -> list[str]:
        if self.several:
            return [label for label, p in self.probabilities.items() if p > 0.5]
        return [max(self.probabilities, key=self.probabilities.__getitem__)]


@dataclass(frozen=True)
class Tagged(Outcome):
    """The words that count, each with its right tag, the one that was chosen, and how probable that is."""

    words: Sequence[str]
    given: Sequence[str]
    found: Sequence[str]
    probabilities: Sequence[float]
    marks_spans: bool


@dataclass(frozen=True)
class Written(Outcome):
    answer: str
    reference: str
    tokens: int
    """Of the reference, with its end."""


@dataclass(frozen=True)
class Forecasted(Outcome):
    """Numbers in the units of the data: a row for each step ahead, a column for each variable."""

    columns: Sequence[str]
    truth: Sequence[Sequence[float]]
    forecast: Sequence[Sequence[float]]


@dataclass(frozen=True)
class LineRead(Outcome):
    """A line of a text: its tokens, and −log p of each after all that came before it."""

    tokens: Sequence[str]
    starts: Sequence[int]
    """The character of the line that each begins at."""
    losses: Sequence[float]


@runtime_checkable
class Examinable(Protocol):
    """A task that can say what became of each example of a batch with records."""

    def outcomes(self, objective: Objective, batch: Batch) -> Sequence[Outcome]: ...
