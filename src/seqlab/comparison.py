"""A fair comparison: the same budget for every recipe, several seeds, one table, one plot."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqlab.errors import RecipeError
from seqlab.launch import train
from seqlab.recipe import Recipe
from seqlab.run import Run
from seqlab.training.log import read_log
from seqlab.training.trainer import Silence, Watcher

UNITS = ("bits_per_character", "bits_per_symbol", "error", "loss")
"""What models are compared by: the first of these that all of them have."""


@dataclass(frozen=True)
class Result:
    """One training of one recipe."""

    name: str
    seed: int
    folder: str
    metrics: dict[str, Any]
    parameters: int
    tokens_per_second: float
    seconds: float
    """Of training; evaluations and samples are not in them."""
    curve: list[dict[str, float]] = field(repr=False)
    """Held-out figures over training time."""


@dataclass(frozen=True)
class Row:
    """One recipe over all seeds: means, and the spread (standard deviation) of the figure compared."""

    name: str
    value: float
    spread: float
    perplexity: float | None
    """None where there is none: of classes, tags, forecasts."""
    unknown: float
    """The share of the tokens that are `<unk>`."""
    parameters: int
    tokens_per_second: float
    seconds: float


def compare(
    recipes: Sequence[str | os.PathLike[str] | Recipe],
    overrides: Mapping[str, Any] | None = None,
    *,
    budget: str = "60s",
    seeds: int = 1,
    out: str | os.PathLike[str] = "runs/compare",
    code: str | os.PathLike[str] | None = None,
    watch: Callable[[str], AbstractContextManager[Watcher]] = lambda name: nullcontext(Silence()),
) -> list[Result]:
    """Train each recipe with each seed under one budget; finished runs in `out` are taken as they are."""
    loaded = [one if isinstance(one, Recipe) else Recipe.load(one) for one in recipes]
    _check_names([recipe.name for recipe in loaded])
    results = []
    for seed in range(seeds):
        for recipe in loaded:
            changes = {**(overrides or {}), "training.seed": seed, "training.budget": budget}
            with watch(f"{recipe.name} (seed {seed})" if seeds > 1 else recipe.name) as watcher:
                folder = Path(out) / f"{recipe.name}-seed{seed}"
                run = train(recipe.changed(changes), out=folder, resume=True, code=code, watcher=watcher)
            results.append(result_of(recipe.name, seed, run))
    return results


def _check_names(names: list[str]) -> None:
    """Names of recipes are names of folders, and lines of the table."""
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"several recipes are called '{name}'", hint="give each a `name` of its own")
        if not re.fullmatch(r"[\w.-]*\w", name):
            raise RecipeError(f"'{name}' cannot name a folder", hint="set `name` to letters, digits, - and _")


def unit(results: Sequence[Result]) -> str:
    return next(name for name in UNITS if all(name in one.metrics for one in results))


def rows(results: Sequence[Result]) -> list[Row]:
    """The table, best first."""
    by = unit(results)
    table = []
    for name in dict.fromkeys(one.name for one in results):
        own = [one for one in results if one.name == name]
        values = [one.metrics[by] for one in own]
        table.append(
            Row(
                name,
                statistics.mean(values),
                statistics.stdev(values) if len(values) > 1 else 0.0,
                statistics.mean(one.metrics["perplexity"] for one in own) if "perplexity" in own[0].metrics else None,
                statistics.mean(map(_unknown, own)),
                own[0].parameters,
                statistics.mean(one.tokens_per_second for one in own),
                statistics.mean(one.seconds for one in own),
            )
        )
    return sorted(table, key=lambda row: row.value)


def cautions(results: Sequence[Result]) -> list[str]:
    """Why the figures do not compare, in words; nothing where they do."""
    found = []
    if len({_unknown(one) for one in results}) > 1:
        found.append("the shares of unknown tokens differ, and <unk> is easily guessed: these figures do not compare")
    odd = dict.fromkeys(one.name for one in results if "scores" in one.metrics.get("signature", {}))
    if odd:
        found.append(f"scores of {', '.join(odd)} are no probabilities: they do not compare")
    return found


def _unknown(one: Result) -> float:
    share: float = one.metrics.get("unknown", 0) / max(1, one.metrics.get("tokens", 1))
    return share


def result_of(name: str, seed: int, run: Run, data: str | None = None) -> Result:
    """What a training has come to, measured on held-out data, or on other data."""
    seconds = sum(entry.get("seconds", 0.0) for entry in run.timing)
    tokens = max((entry.get("tokens", 0) for entry in run.log), default=0)
    metrics = run.evaluate(data)
    return Result(
        name,
        seed,
        str(run.folder),
        metrics,
        run.parameters,
        tokens / max(seconds, 1e-9),
        seconds,
        curve(run.folder),
    )


def curve(folder: Path) -> list[dict[str, float]]:
    """Held-out figures of a run: step, seconds of training until then, and the metrics."""
    clock: dict[int, float] = {}
    total = 0.0
    for entry in read_log(folder / "timing.jsonl"):
        total += entry.get("seconds", 0.0)
        clock[entry["step"]] = total
    points = []
    for entry in read_log(folder / "log.jsonl"):
        if "valid" in entry:
            until = [seconds for step, seconds in clock.items() if step <= entry["step"]]
            points.append({"step": entry["step"], "seconds": max(until, default=total), **entry["valid"]})
    return points
