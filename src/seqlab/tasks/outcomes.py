"""The outcome of each held-out example, as plain data: the truth, the prediction and the place in the file."""

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
    """The model's input, unchanged; empty if it is not text."""
    loss: float
    """Its term in the sum that an evaluation divides by a count: −log p of the truth, or an error."""


@dataclass(frozen=True)
class Classified(Outcome):
    given: Sequence[str]
    """The true label, or all of them if there may be several."""
    probabilities: Mapping[str, float]
    several: bool = False

    @property
    def found(self) -> list[str]:
        if self.several:
            return [label for label, p in self.probabilities.items() if p > 0.5]
        return [max(self.probabilities, key=self.probabilities.__getitem__)]


@dataclass(frozen=True)
class Tagged(Outcome):
    """The words that count, each with its true tag, the predicted tag and the probability of the latter."""

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
    """Number of tokens of the reference, including `<end>`."""
    error: str = ""
    """Why there is no answer, such as a source that is too long."""


@dataclass(frozen=True)
class Forecasted(Outcome):
    """Numbers in the units of the data: one row per step ahead, one column per variable."""

    columns: Sequence[str]
    truth: Sequence[Sequence[float]]
    forecast: Sequence[Sequence[float]]


@dataclass(frozen=True)
class LineRead(Outcome):
    """A line of a text: its tokens, and −log p of each given all the tokens before it."""

    tokens: Sequence[str]
    starts: Sequence[int]
    """The position in the line, in characters, at which each token begins."""
    losses: Sequence[float]


@runtime_checkable
class Examinable(Protocol):
    """A task that can report the outcome of each example of a batch with records."""

    def outcomes(self, objective: Objective, batch: Batch) -> Sequence[Outcome]: ...
