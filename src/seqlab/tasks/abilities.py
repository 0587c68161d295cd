"""Abilities that only some tasks have, as protocols. A task has an ability if it has all its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

from seqlab.data.batching.batches import Batch, Split
from seqlab.data.records import Record
from seqlab.decoding.choose import Choose
from seqlab.objectives.objective import Objective
from seqlab.recipe import DataSettings


@runtime_checkable
class Answers(Protocol):
    """A task that answers each example with a class, tags, a forecast or a text. Used by `seqlab predict`."""

    def asked(self, data: DataSettings) -> Split:
        """Return the examples of `data.valid` in order; their answers are not known."""
        ...

    def answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        """Return the answer to each example of a batch with records, as plain data.

        `text` is the input exactly as in its record, and `answer` is the answer on one line. Tasks add other keys.
        """
        ...

    def nothing(self, record: Record) -> dict[str, Any]:
        """Return the answer to an example with nothing to read, such as an empty line."""
        return {"text": "\t".join(record.fields.values()), "answer": ""}


@runtime_checkable
class Writes(Answers, Protocol):
    """A task whose answers are texts, which metrics compare with references."""

    judges: Sequence[str]
    """The metrics that score its answers."""

    def references(self, split: Split) -> list[str]:
        """Return the reference of each example, in order."""
        ...

    def source_lengths(self, split: Split) -> list[int]:
        """Return the length in characters of each example's source, in order; zeros if lengths are meaningless."""
        ...

    def judged(self, objective: Objective, split: Split, rows: int) -> float:
        """Return the value of `metric` when it scores texts; `rows` examples are read together."""
        ...

    def drawn(self, choose: Choose) -> Self:
        """Return a copy of the task that samples the tokens of its answers instead of searching for them."""
        ...


@runtime_checkable
class Forecasts(Answers, Protocol):
    """A task whose answers are the next values of series."""

    def ahead(self, steps: int) -> Self:
        """Return a copy of the task whose answers reach `steps` steps ahead."""
        ...
