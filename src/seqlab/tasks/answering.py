"""The answer to each example of a split, in order, however examples are batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.batching.batches import Batch, Examples
from seqlab.data.batching.order import Indices
from seqlab.data.randomness import Key
from seqlab.data.records import Record
from seqlab.errors import SeqlabError

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
            if len(answers) != len(batch):
                hint = "return one for each row of the batch"
                raise SeqlabError(f"{len(answers)} answers to {len(batch)} examples", hint=hint)
            found |= dict(zip(batch.tolist(), answers, strict=True))
        yield from (found[index] for index in indices.tolist())


def _cut(indices: Indices, lengths: NDArray[np.int64], rows: int) -> Iterator[Indices]:
    """Cut examples, shortest first, into batches."""
    start = 0
    for stop in range(1, len(indices) + 1):
        full = stop - start == rows
        if stop == len(indices) or full or (stop + 1 - start) * lengths[indices[stop]] > rows * TOKENS_A_ROW:
            yield indices[start:stop]
            start = stop
