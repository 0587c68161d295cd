"""What do metrics and their resamples cost, and how often is a difference found where there is none?

Two systems and a reference, a line each. For the second question lines are swapped between the systems at random, so
that neither is better, and each such pair is compared: by the p-value, and by whether the interval leaves out 0. One
thread.

    python benchmarks/metrics.py ONE.txt OTHER.txt REFERENCE.txt        # two minutes
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from seqlab import registry
from seqlab.metrics import Judged
from seqlab.metrics.resampling import RESAMPLES, interval, p_value, resampled_sums

LINES, REPEATS, SWAPS = 1000, 3, 400


def costs(name: str, lines: list[str], references: list[list[str]]) -> tuple[float, float]:
    """Seconds for the statistics of all lines, and for the figures of all resamples: the fastest."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        judged = Judged([name], lines, references, resamples=RESAMPLES)
        between = time.perf_counter()
        assert len(judged.resampled[name]) == RESAMPLES
        found.append((between - start, time.perf_counter() - between))
    statistics, resamples = (min(times) for times in zip(*found, strict=True))
    return statistics, resamples


def found_in_nothing(name: str, one: Judged, other: Judged) -> tuple[float, float]:
    """Shares of swapped pairs with p < 0.05, and with an interval without 0."""
    draw, figure = np.random.default_rng(0), one.metrics[name].figure
    small = outside = 0
    for number in range(SWAPS):
        swapped = draw.random((one.lines, 1)) < 0.5
        tables = [np.where(swapped, one.tables[name], other.tables[name])]
        tables.append(one.tables[name] + other.tables[name] - tables[0])
        ours, theirs = (np.array([figure(row) for row in resampled_sums(table, RESAMPLES, number)]) for table in tables)
        difference = figure(tables[0].sum(axis=0)) - figure(tables[1].sum(axis=0))
        low, high = interval(ours - theirs)
        small += p_value(difference, ours - theirs) < 0.05
        outside += low > 0 or high < 0
    return small / SWAPS, outside / SWAPS


def main(*files: str) -> None:
    one, other, reference = (Path(file).read_text(encoding="utf-8").split("\n")[:LINES] for file in files)
    references = [[line] for line in reference]
    for name in registry.METRICS:
        statistics, resamples = costs(name, one, references)
        print(
            f"{name:8} {LINES} lines {statistics:5.2f} s, {RESAMPLES} resamples {1000 * resamples:4.0f} ms", flush=True
        )
    for name in ("bleu", "rouge-l", "wer"):
        small, outside = found_in_nothing(name, *(Judged([name], lines, references) for lines in (one, other)))
        print(f"{name:8} neither is better: p < 0.05 in {small:.1%}, interval without 0 in {outside:.1%}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
