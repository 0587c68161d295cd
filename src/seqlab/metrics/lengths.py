"""Figures by source length: does quality hold up when sources are long?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from seqlab.metrics.judging import Judged

BINS = 5


class Bin(TypedDict):
    """Lines with sources of similar length, and their figures by metric."""

    shortest: int
    longest: int
    lines: int
    figures: dict[str, float]


def by_length(judged: Judged, lengths: Sequence[int]) -> list[Bin]:
    """Split lines into bins of about equal size, shortest sources first; sources of equal length share a bin.

    Bins depend only on the lengths: they are the same for all systems that read the same sources.
    """
    found = np.asarray(lengths)
    ends = np.unique(np.quantile(found, np.arange(1, BINS + 1) / BINS, method="inverted_cdf"))
    number = np.searchsorted(ends, found)
    return [
        Bin(
            shortest=int(found[own].min()),
            longest=int(found[own].max()),
            lines=int(own.sum()),
            figures=judged.values(own),
        )
        for own in (number == one for one in range(len(ends)))
    ]
