"""Finds the steps of held-out series that are in the training series too.

A step counts if it is part of a run of consecutive steps, with the same numbers, that is in a training series. A
shorter series counts if all of it is one of the training series. Runs of a constant do not count: a gauge that reads
zero for a day does so on many days.

T steps · C variables
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seqlab.data.formats.series import Numbers

RUN = 16
"""Number of consecutive steps."""
Hashes = NDArray[np.uint64]


def common_steps(train: Sequence[Numbers], valid: Sequence[Numbers]) -> int:
    """Count the steps of the held-out series that are in the training series."""
    count = 0
    for run in sorted({min(RUN, len(values)) for values in valid} - {0}):
        own = [values for values in valid if min(RUN, len(values)) == run]
        others = [_runs(values, run) for values in train if len(values) == run or len(values) > run == RUN]
        known = np.unique(np.concatenate(others)) if others else np.empty(0, np.uint64)
        count += sum(_covered(np.isin(_runs(values, run), known) & ~_constant(values, run), run) for values in own)
    return count


def _runs(values: Numbers, run: int) -> Hashes:
    """Return a hash of each run of consecutive steps."""
    steps = _steps(values)
    found = np.zeros(len(steps) - run + 1, np.uint64)
    for place in range(run):
        found = _mixed(found ^ steps[place : place + len(found)])
    return found


def _steps(values: Numbers) -> Hashes:
    """(T, C) → a hash of each step (T,)"""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # −0 is 0
    found = np.zeros(len(bits), np.uint64)
    for column in bits.T:
        found = _mixed(found ^ column)
    return found


def _mixed(hashes: Hashes) -> Hashes:
    """Mix the bits of each hash: the finaliser of splitmix64, Steele et al. 2014."""
    hashes = (hashes + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def _constant(values: Numbers, run: int) -> NDArray[np.bool_]:
    """Return whether each run has the same numbers at all its steps, as a single step has."""
    same = np.concatenate([[0], np.cumsum((values[1:] == values[:-1]).all(1))])
    return np.asarray(same[run - 1 :] - same[: len(same) - run + 1] == run - 1)


def _covered(found: NDArray[np.bool_], run: int) -> int:
    """Count the steps that are part of a run that was found."""
    edges = np.zeros(len(found) + run, np.int64)
    edges[: len(found)] += found
    edges[run:] -= found
    return int((np.cumsum(edges) > 0).sum())
