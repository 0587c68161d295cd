"""The answer to each example of a split, in order, however examples are batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.batching.batches import Batch, Examples
from seqlab.data.batching.order import Indices
from seqlab.data.randomness import Key
from seqlab.data.records import Record
from seqlab.errors import SeqlabError
from seqlab.objectives.objective import Objective

TOKENS_A_ROW = 64
"""A batch holds at most this many tokens times the maximum number of rows."""


def each_example(
    split: Examples,
    rows: int,
    device: torch.device,
    ask: Callable[[Batch], list[Any]],
    nothing: Callable[[Record], Any] = lambda record: None,
    first: int | None = None,
) -> Iterator[Any]:
    """Yield what `ask` returns for each example, or for the first `first` of them; `nothing` answers empty examples.

    Examples of similar length share a batch; batches of long examples have fewer rows.
    """
    lengths = np.asarray(getattr(split, "reading", np.ones(len(split), np.int64)))
    records = iter(split.records())
    for _, indices in split.order(rows * 16, seed=0).once():
        indices = indices if first is None else indices[indices < first]
        if not len(indices):
            return
        own = dict(zip(indices.tolist(), records, strict=False))
        empty = split.lengths[indices] == 0
        found = {index: nothing(own[index]) for index in indices[empty].tolist()}
        read = indices[~empty]
        alike = read[np.argsort(lengths[read], kind="stable")]
        for batch in _cut(alike, lengths, rows):
            with torch.no_grad():
                tensors = Batch(split.batch(batch, Key(0, 0)), records=[own[index] for index in batch.tolist()])
                answers = ask(tensors.to(device))
            found |= dict(zip(batch.tolist(), answers, strict=True))
        yield from (found[index] for index in indices.tolist())


def each_row(task: object, method: str, objective: Objective, batch: Batch) -> list[Any]:
    """Return what a method of a task returns for a batch, after checking that it is one thing for each row."""
    found = getattr(task, method)(objective, batch)
    rows, where = len(batch.records), type(task).__name__
    if not isinstance(found, Sequence) or len(found) != rows:
        what = f"{len(found)} of them" if isinstance(found, Sequence) else type(found).__name__
        hint = "return a list with one for each row of the batch"
        raise SeqlabError(f"{method}() returned {what} for {rows} examples", where=where, hint=hint)
    return list(found)


def answers_of(task: object, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
    """Return the answers of a task to a batch, after checking that each has what is printed."""
    found = each_row(task, "answers", objective, batch)
    for record, answer in zip(batch.records, found, strict=True):
        needed = {"text", "answer"} if record.fields else {"answer"}  # a series has no text
        lacking = needed - set(answer if isinstance(answer, Mapping) else ())
        if lacking:
            has = f"there are {', '.join(map(repr, answer))}" if isinstance(answer, Mapping) else f"{answer!r:.40}"
            what = f"answers() returned an answer without {' and '.join(map(repr, sorted(lacking)))} ({has})"
            raise SeqlabError(what, where=type(task).__name__, hint="return a dict with the keys 'text' and 'answer'")
    return found


def _cut(indices: Indices, lengths: NDArray[np.int64], rows: int) -> Iterator[Indices]:
    """Cut examples, shortest first, into batches."""
    start = 0
    for stop in range(1, len(indices) + 1):
        full = stop - start == rows
        if stop == len(indices) or full or (stop + 1 - start) * lengths[indices[stop]] > rows * TOKENS_A_ROW:
            yield indices[start:stop]
            start = stop
