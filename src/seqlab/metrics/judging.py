"""Evaluate texts with several metrics: scores, confidence intervals, and differences between systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, nan
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from seqlab import registry
from seqlab.errors import DataError, RecipeError, caution, nearest
from seqlab.metrics.metric import Better, Metric, Numbers
from seqlab.metrics.resampling import SEED, interval, p_value, resampled_sums
from seqlab.recipe import PartSettings
from seqlab.recipe_tree import settings_of

GROUPS = {"rouge": ("rouge-1", "rouge-2", "rouge-l")}
"""Names that stand for several metrics."""


ROW = "return a list or an array of numbers, equally many for each line"
NO_FIGURE = "no figure, because figure() returned no finite number; decide there what a sum of 0 means"


@dataclass(frozen=True)
class Figure:
    """A percentage, and everything needed to compare it with others."""

    value: float
    """NaN if the metric has no figure for these texts, such as 0 / 0."""
    better: Better
    lines: int
    signature: str
    interval: tuple[float, float] | None
    """The 95 % interval, by the bootstrap; None if there were no resamples."""
    parts: dict[str, float]
    """Its components: precisions, counts of edits, ..."""


@dataclass(frozen=True)
class Difference:
    """The figure of one system minus that of another."""

    value: float
    interval: tuple[float, float]
    p_value: float
    better_in: float
    """Share of resamples in which the first system is better."""


def judge(
    names: Sequence[str | PartSettings],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    resamples: int = 0,
    seed: int = SEED,
) -> dict[str, Figure]:
    """Return the figure of each metric, by name.

    `references[i]` are the references of line i, one or more. A metric is given by name (`rouge` stands for three) or
    by settings: `BLEU.Settings(kind="bleu", lowercase=True)`. With `resamples`, such as 1,000, figures have intervals.
    """
    return Judged(names, hypotheses, references, resamples=resamples, seed=seed).figures()


class Judged:
    """The statistics of every line of a text under several metrics. All figures are computed from them."""

    def __init__(
        self,
        names: Sequence[str | PartSettings],
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        *,
        resamples: int = 0,
        seed: int = SEED,
    ) -> None:
        _check(hypotheses, references)
        self.metrics = metrics_of(names)
        self.lines, self.resamples, self.seed = len(hypotheses), resamples, seed
        self.tables: dict[str, Numbers] = {}  # (lines, K) for each metric
        for name, metric in self.metrics.items():
            self.tables[name] = statistics(name, metric, hypotheses, references)
        named = [(name, metric.caution(hypotheses)) for name, metric in self.metrics.items()]
        named += [(name, NO_FIGURE) for name, value in self.values().items() if not isfinite(value)]
        self.cautions = [f"{name}: {said}" for name, said in named if said]
        for said in self.cautions:
            caution(said)
        numbers = {len(those) for those in references}
        each = numbers.pop() if len(numbers) == 1 else None
        self.signatures = {name: metric.signature(each) for name, metric in self.metrics.items()}

    def figures(self) -> dict[str, Figure]:
        found = {}
        for name, metric in self.metrics.items():
            sums = self.tables[name].sum(axis=0)
            between = interval(self.resampled[name]) if self.resamples else None
            found[name] = Figure(
                figure(name, metric, sums),
                metric.better,
                self.lines,
                self.signatures[name],
                between,
                metric.parts(sums),
            )
        return found

    def values(self, lines: slice | NDArray[np.bool_] = slice(None)) -> dict[str, float]:
        """Return only the values, over all lines or some of them."""
        return {
            name: figure(name, metric, self.tables[name][lines].sum(axis=0)) for name, metric in self.metrics.items()
        }

    @cached_property
    def resampled(self) -> dict[str, Numbers]:
        """(resamples,) values of each metric; all metrics share the same draws."""
        widths = [table.shape[1] for table in self.tables.values()]
        sums = resampled_sums(np.hstack(list(self.tables.values())), self.resamples, self.seed)
        pieces = np.split(sums, np.cumsum(widths)[:-1], axis=1)
        return {
            name: np.array([figure(name, metric, row) for row in piece])
            for (name, metric), piece in zip(self.metrics.items(), pieces, strict=True)
        }

    def against(self, other: Judged) -> dict[str, Difference]:
        """Return our figures minus theirs on the same lines, with the same draws for both."""
        mine, theirs = ((one.lines, one.resamples, one.seed, one.signatures) for one in (self, other))
        if mine != theirs or not self.resamples:
            raise DataError("can only compare systems with the same lines, references, metrics and resamples")
        found = {}
        for name, metric in self.metrics.items():
            ours, others = (figure(name, metric, one.tables[name].sum(axis=0)) for one in (self, other))
            differences = self.resampled[name] - other.resampled[name]
            wins = differences > 0 if metric.better == "higher" else differences < 0
            p = p_value(ours - others, differences)
            share = nan if np.isnan(differences).any() else float(wins.mean())
            found[name] = Difference(ours - others, interval(differences), p, share)
        return found


def statistics(name: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Numbers:
    """Return the statistics of all lines, (lines, K), or raise an error if they are not numbers that can be added."""
    rows: list[object] = [metric.statistics(text, those) for text, those in zip(hypotheses, references, strict=True)]
    found = _numbers(rows)
    if found is None or found.ndim != 2 or not np.isfinite(found).all():
        raise RecipeError(f"statistics() returned {_fault(rows)}", where=f"metric '{name}'", hint=ROW)
    return found


def _fault(rows: Sequence[object]) -> str:
    """Say which line has other statistics than a metric must return; one of them has."""
    lengths: list[int] = []
    for number, row in enumerate(rows, 1):
        found = _numbers(row)
        if found is None or found.ndim != 1:
            return f"{_described(row)} for line {number}"
        if not np.isfinite(found).all():
            return f"a number that is not finite for line {number}"
        lengths.append(len(found))
    other = next(number for number, length in enumerate(lengths) if length != lengths[0])
    return f"{lengths[0]} numbers for line 1 and {lengths[other]} for line {other + 1}"


def _numbers(given: object) -> Numbers | None:
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _described(value: object) -> str:
    return "None" if value is None else f"{value!r:.40} ({type(value).__name__})"


def figure(name: str, metric: Metric, sums: Numbers) -> float:
    """Return the figure of sums, NaN if it is not finite; an error if it is not a number."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a figure that is missing is said in one line
        value: object = metric.figure(sums)
    if not isinstance(value, Real):
        raise RecipeError(f"figure() returned {_described(value)}", where=f"metric '{name}'", hint="return a number")
    return float(value) if isfinite(value) else nan


def check_metrics(names: Sequence[str | PartSettings]) -> None:
    """Try metrics out on a few lines, so that a mistake in one is not found at the end of a training."""
    texts = ["a cat sat", "", "the dog ran to the river", "the dog ran to the river"]
    for name, metric in (metrics_of(names) if names else {}).items():
        figure(name, metric, statistics(name, metric, texts, [[text] for text in reversed(texts)]).sum(axis=0))


def metrics_of(names: Sequence[str | PartSettings]) -> dict[str, Metric]:
    """Return metrics by name, each name once."""
    found: dict[str, Metric] = {}
    for named in names:
        for one in GROUPS.get(named, (named,)) if isinstance(named, str) else (named,):
            name = one if isinstance(one, str) else one.kind
            if name not in registry.names("metric"):
                hint = registry.elsewhere(name) or nearest(name.lower(), [*registry.names("metric"), *GROUPS])
                raise RecipeError(f"unknown metric '{name}'", where="metric", hint=hint)
            settings = settings_of("metric", name, "metric")
            cls = registry.find("metric", name)
            if name in found:
                raise RecipeError(f"the metric '{name}' is listed twice", hint="name it once")
            if cls.better not in ("higher", "lower"):
                raise RecipeError(f"'better' is {cls.better!r}", where=f"metric '{name}'", hint="write higher or lower")
            found[name] = cls(settings(kind=name) if isinstance(one, str) else one)
    if not found:
        raise RecipeError("no metric", hint=f"choose from {', '.join(sorted([*registry.names('metric'), *GROUPS]))}")
    return found


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses):,} lines, but references for {len(references):,}")
    if not hypotheses:
        raise DataError("no lines to score", hint="give at least one, which may be empty")
    for number, those in enumerate(references, 1):
        if isinstance(those, str) or not those:
            hint = "give a list of one or more texts for each line"
            raise DataError("has no list of references", where=f"line {number}", hint=hint)
