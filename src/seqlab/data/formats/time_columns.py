"""Detects numeric columns that only count time: a year, an index, seconds since 1970. They are not series.

In doubt, a column is kept. A column counts time if its numbers rise (or fall) at every step, in every series of the
table, and one of these holds:

- its whole name means time (`year`, `date`, `timestamp`, ...);
- a word of its name means time (`open_time`), and its steps are roughly equal, like those of months;
- its name is that of an index (`t`, `id`, `day`, or empty), and its steps are all equal;
- it is the first column of a table with ten or more steps, whatever its name, and its steps are all equal.
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
"""The fewest steps that allow a decision."""
MANY = 10
"""Steps needed to decide by the numbers alone."""


def counts_time(name: str, series: Sequence[NDArray[np.float64]], first: bool) -> bool:
    """Return True if a column only counts time; `series` (T,) holds its numbers in each series of the table."""
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
