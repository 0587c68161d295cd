"""Columns of numbers that only count time: a year, an index, seconds since 1970. They say when, and are no series.

Where the rule is wrong, it should keep a column. A column counts time if its numbers rise (or fall) at every step, in
each series of the table, and one of these holds:

- its whole name says time (`year`, `date`, `timestamp`, ...);
- a word of its name says time (`open_time`), and its steps are of about the same size, as those of months are;
- its name is that of an index (`t`, `id`, `day`, none at all), and its steps are all the same;
- it is the first column of ten steps or more, whatever its name, and its steps are all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TIMES = {"date", "datetime", "ds", "epoch", "time", "timestamp", "unix", "year"}
INDICES = {
    *("", "day", "frame", "hour", "id", "idx", "index", "minute", "month", "no", "nr", "number", "obs", "observation"),
    *("period", "quarter", "row", "sample", "second", "step", "t", "unnamed", "week"),
}
FEWEST = 3
"""Of fewer steps nothing can be said."""
MANY = 10
"""Steps that are enough to know a column by its numbers alone."""


def counts_time(name: str, series: Sequence[NDArray[np.float64]], first: bool) -> bool:
    """Whether a column only counts time; `series` (T,) are its numbers in each series of the table."""
    longest = max(len(one) for one in series)
    steps = np.concatenate([np.diff(one) for one in series])
    if longest < FEWEST or not ((steps > 0).all() or (steps < 0).all()):
        return False
    sizes = np.abs(steps)
    middle = float(np.median(sizes))
    even = bool((np.abs(sizes - middle) <= 1e-6 * middle).all())
    about_even = bool(((sizes >= 0.8 * middle) & (sizes <= 1.25 * middle)).all())
    words = [word.lower().removesuffix("s") or word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
    whole = "".join(words)
    if whole in TIMES:
        return True
    if TIMES & set(words):
        return about_even
    return even and (whole in INDICES or (first and longest >= MANY))
