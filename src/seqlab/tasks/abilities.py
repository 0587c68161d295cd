"""What only some tasks can do. A task has an ability if it has all its members; nothing else asks what kind it is."""

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
    """Answers each example: with a class, tags, a forecast, a text. For `seqlab predict`."""

    def asked(self, data: DataSettings) -> Split:
        """The examples of `data.valid`, first to last, whose answers are not known."""
        ...

    def answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        """What a person reads about each example of a batch with records, as plain data.

        `text` is what was asked, exactly as its record has it, and `answer` the answer in a line; other keys as they
        are.
        """
        ...

    def nothing(self, record: Record) -> dict[str, Any]:
        """The same for an example that has nothing to read, such as an empty line."""
        return {"text": "\t".join(record.fields.values()), "answer": ""}


@runtime_checkable
class Writes(Answers, Protocol):
    """Its answers are texts, which metrics can compare with references."""

    judges: Sequence[str]
    """The metrics that its answers are judged by."""

    def references(self, split: Split) -> list[str]:
        """What should have been written for each example, first to last."""
        ...

    def source_lengths(self, split: Split) -> list[int]:
        """The characters of each example's source, first to last; zeros where that says nothing."""
        ...

    def judged(self, objective: Objective, split: Split, rows: int) -> float:
        """The value of `metric` where it judges texts; so many rows are read together."""
        ...

    def drawn(self, choose: Choose) -> Self:
        """The same task, with answers whose tokens are drawn one by one instead of searched for."""
        ...


@runtime_checkable
class Forecasts(Answers, Protocol):
    """Its answers are the next values of series."""

    def ahead(self, steps: int) -> Self:
        """The same task, with answers that reach so many steps ahead."""
        ...
