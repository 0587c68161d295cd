"""A fair comparison: the same budget for every recipe, several seeds, one table, one plot."""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seqlab import registry
from seqlab.data.reading.readers import read
from seqlab.errors import RecipeError
from seqlab.inspection.cost import training_operations
from seqlab.metrics.lengths import Bin
from seqlab.recipe import Recipe, single_keys
from seqlab.runs.launch import train
from seqlab.runs.mixing import mix
from seqlab.runs.run import Run
from seqlab.tokenizers.measure import Lost, lost
from seqlab.training.log import read_log
from seqlab.training.trainer import Silence, Watcher

UNITS = ("bits_per_character", "bits_per_symbol", "error", "loss")
"""Metrics for comparing models that write no texts: the first one that all of them have is used."""

FEW_LOST = 0.001
"""Largest difference between the shares of lines that tokenizers change at which results are still comparable. The same
for shares of the characters."""
ALIKE = 0.2
"""Tokenizers drop the same if the shares of characters differ by at most this part of the larger one: each is measured
on the lines in which it knows all tokens."""
FEW_UNKNOWN = 0.001
"""Largest difference between the shares of unknown tokens at which results are still comparable. Even if each unknown
token were 20 bits too cheap, the result would change by 0.02 bits per token, less than from another seed."""


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
    """Training time, without evaluations and samples."""
    data: str
    """Fingerprints of the training data and of the held-out data."""
    curve: list[dict[str, float]] = field(repr=False)
    """Held-out metrics over training time."""
    flops: float | None = None
    """Floating-point operations of the training; None if nothing is learnt by gradients."""
    lost: float = 0.0
    """Share of the held-out lines that the tokenizer does not restore exactly."""
    dropped: dict[str, float] = field(default_factory=dict)
    """Shares of their characters that it does not restore, by kind."""


@dataclass(frozen=True)
class ComparisonRow:
    """One recipe over all seeds: means, and the spread (standard deviation) of the metric compared."""

    name: str
    value: float
    spread: float
    written: dict[str, float]
    """Metrics of the texts it writes, by name."""
    perplexity: float | None
    """None for tasks without one, such as classification, tagging and forecasting."""
    unknown: float
    """Share of the tokens that are `<unk>`."""
    parameters: int
    flops: float | None
    tokens_per_second: float
    seconds: float


def compare(
    recipes: Sequence[str | os.PathLike[str] | Recipe],
    overrides: Mapping[str, Any] | None = None,
    *,
    budget: str | None = "60s",
    seeds: int = 1,
    out: str | os.PathLike[str] = "runs/compare",
    code: str | os.PathLike[str] | None = None,
    watch: Callable[[str], AbstractContextManager[Watcher]] = lambda name: nullcontext(Silence()),
) -> list[Result]:
    """Train each recipe with each seed on the same budget; finished runs in `out` are reused.

    With `budget=None` the recipes and `overrides` say how long: {"training.steps": 500}.
    """
    loaded = [one if isinstance(one, Recipe) else Recipe.load(one) for one in recipes]
    if budget is not None and says_how_long(single_keys(overrides or {})):
        raise RecipeError("both a budget and training.steps or training.budget are given", hint="set budget=None")
    _check_names([recipe.name for recipe in loaded])
    results = []
    for seed in range(seeds):
        for recipe in loaded:
            changes = {**(overrides or {}), "training.seed": seed}
            changes |= {} if budget is None else {"training.budget": budget}
            with watch(f"{recipe.name} (seed {seed})" if seeds > 1 else recipe.name) as watcher:
                folder = Path(out) / f"{recipe.name}-seed{seed}"
                run = train(recipe.changed(changes), out=folder, resume=True, code=code, watcher=watcher)
            results.append(replace(result_of(recipe.name, seed, run), flops=training_cost(run)))
    return results


def says_how_long(overrides: Iterable[tuple[str, Any]]) -> bool:
    """Whether overrides, as keys and values, set the number of steps or the budget of a training."""
    return any(
        key in ("training.steps", "training.budget")
        or (key == "training" and isinstance(value, Mapping) and bool({"steps", "budget"} & {*value}))
        for key, value in overrides
    )


def mixed(results: Sequence[Result], out: str | os.PathLike[str]) -> Result:
    """Mix several runs and return the result.

    The weights are fitted on the held-out data, which flatters the mixture a little. Its seconds are those of all its
    parts together; its curve is a single point, where the last of them ends.
    """
    run = mix([one.folder for one in results], out)
    found, unit = result_of("mixture", 0, run), predicted(results)
    end = max(one.curve[-1]["seconds"] for one in results)
    return replace(
        found,
        seconds=sum(one.seconds for one in results),
        curve=[{"step": 1, "seconds": end, unit: found.metrics[unit]}],
    )


def training_cost(run: Run) -> float | None:
    """Return the FLOPs of a training; None if nothing is learnt by gradients."""
    if not any(weight.requires_grad for weight in run.objective.parameters()):
        return None
    split = run.task.split(run.recipe.data, "train", training=True)
    steps = max(entry["step"] for entry in run.log)
    return training_operations(run.objective, split, run.recipe.training, steps)


def _check_names(names: list[str]) -> None:
    """Check the names of recipes, which also name folders and rows of the table."""
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"several recipes are called '{name}'", hint="give each recipe a different `name`")
        if not re.fullmatch(r"[\w.-]*\w", name):
            raise RecipeError(f"'{name}' cannot name a folder", hint="set `name` to letters, digits, - and _")


def unit(results: Sequence[Result]) -> str:
    """Return the metric they are ranked by: the first one of the texts they write, or how well they predict."""
    return next(iter(written(results)), predicted(results))


def predicted(results: Sequence[Result]) -> str:
    return next(name for name in UNITS if all(name in one.metrics for one in results))


def written(results: Sequence[Result]) -> list[str]:
    """Return the metrics of written texts that all results have, in the order of the first result."""
    known = registry.names("metric")
    return [name for name in results[0].metrics if name in known and all(name in one.metrics for one in results)]


def rows(results: Sequence[Result]) -> list[ComparisonRow]:
    """Return the rows of the table, best first."""
    by, metrics = unit(results), written(results)
    table = []
    for name in dict.fromkeys(one.name for one in results):
        own = [one for one in results if one.name == name]
        values = [one.metrics[by] for one in own]
        table.append(
            ComparisonRow(
                name,
                statistics.mean(values),
                statistics.stdev(values) if len(values) > 1 else 0.0,
                {metric: statistics.mean(one.metrics[metric] for one in own) for metric in metrics},
                _mean([one.metrics.get("perplexity") for one in own]),
                statistics.mean(map(_unknown, own)),
                own[0].parameters,
                _mean([one.flops for one in own]),
                statistics.mean(one.tokens_per_second for one in own),
                statistics.mean(one.seconds for one in own),
            )
        )
    higher = by in metrics and registry.find("metric", by).better == "higher"
    return sorted(table, key=lambda row: row.value, reverse=higher)


def by_length(results: Sequence[Result]) -> list[Bin]:
    """Return the ranking metric by source length: in each bin, one mean over all seeds per recipe.

    Recipes whose sources differ from those of the majority are left out. The result is empty if there is only one bin.
    """
    apart, by = _apart(results, _sources), unit(results)
    alike = [one for one in results if one.name not in apart]
    bins: list[Bin] = alike[0].metrics.get("by_length", []) if alike and by in written(results) else []
    found: list[Bin] = []
    for number, own in enumerate(bins if len(bins) > 1 else []):
        figures: dict[str, list[float]] = {}
        for one in alike:
            figures.setdefault(one.name, []).append(one.metrics["by_length"][number]["figures"][by])
        found.append({**own, "figures": {name: statistics.mean(values) for name, values in figures.items()}})
    return found


def cautions(results: Sequence[Result]) -> list[str]:
    """Explain why the results are not comparable, and repeat the notes of the evaluations; empty if all is well."""
    found = []
    if odd := _apart(results, lambda one: one.data.partition("-")[0]):
        found.append(f"{', '.join(odd)}: trained on different data from the rest")
    if odd := _apart(results, _measured_on):
        found.append(f"{', '.join(odd)}: measured on different data from the rest: the results are not comparable")
    cuts = {one.metrics.get("signature", {}).get("tokenizer") for one in results if "perplexity" in one.metrics}
    if len(cuts) > 1 and predicted(results) == "loss":
        found.append("loss and perplexity are per token, and the tokenizers differ: they are not comparable")
    shares = [_unknown(one) for one in results]
    if max(shares) - min(shares) > FEW_UNKNOWN:
        found.append("the shares of unknown tokens differ, and <unk> is easy to guess: the results are not comparable")
    if predicted(results) == "bits_per_character":
        found += _losses(results)
    odd = list(dict.fromkeys(one.name for one in results if "scores" in one.metrics.get("signature", {})))
    if odd:
        found.append(f"scores of {', '.join(odd)} are not probabilities: they are not comparable")
    return list(dict.fromkeys([*found, *(f"{one.name}: {note}" for one in results for note in _notes(one))]))


def _notes(one: Result) -> list[str]:
    """Return the notes of its evaluation, without the one that a caution makes for all results."""
    notes: list[str] = one.metrics.get("notes", [])
    return [note for note in notes if note != one.metrics.get("signature", {}).get("scores")]


def _losses(results: Sequence[Result]) -> list[str]:
    """Say which tokenizers drop part of the text, if others do not drop the same."""
    shares = [one.lost for one in results]
    if min(shares) > FEW_LOST:
        return _different_losses(results)
    if max(shares) - min(shares) <= FEW_LOST:
        return []
    odd = [f"{one.name} ({one.lost:.0%} of the lines)" for one in results if one.lost > min(shares) + FEW_LOST]
    what = "drop case, spaces or line ends, which then need not be predicted: their bits per character are too low"
    return [f"the tokenizers of {', '.join(dict.fromkeys(odd))} {what}"]


def _different_losses(results: Sequence[Result]) -> list[str]:
    kinds = sorted({kind for one in results for kind in one.dropped})
    if all(_alike([one.dropped.get(kind, 0.0) for one in results]) for kind in kinds):
        return []
    each = {one.name: [f"{100 * share:.1f} % {kind}" for kind, share in one.dropped.items()] for one in results}
    named = ", ".join(f"{name} ({', '.join(shares)})" for name, shares in each.items())
    what = "which then need not be predicted: their bits per character are not comparable"
    return [f"the tokenizers of {named} drop different parts of the text, {what}"]


def _alike(shares: Sequence[float]) -> bool:
    return max(shares) - min(shares) <= max(FEW_LOST, ALIKE * max(shares))


def _apart(results: Sequence[Result], fact: Callable[[Result], str]) -> list[str]:
    """Return the recipes for which a fact differs from that of the majority."""
    ((usual, _),) = Counter(map(fact, results)).most_common(1)
    return list(dict.fromkeys(one.name for one in results if fact(one) != usual))


def _measured_on(one: Result) -> str:
    return one.data.partition("-")[2]


def _sources(one: Result) -> str:
    """Identify the data it was measured on, and the bins of source lengths."""
    bins: list[Bin] = one.metrics.get("by_length", [])
    return f"{_measured_on(one)} {[(own['shortest'], own['longest'], own['lines']) for own in bins]}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def _unknown(one: Result) -> float:
    share: float = one.metrics.get("unknown", 0) / max(1, one.metrics.get("tokens", 1))
    return share


def result_of(name: str, seed: int, run: Run, data: str | None = None) -> Result:
    """Return the result of a training, measured on its held-out data or on other data."""
    seconds = sum(entry.get("seconds", 0.0) for entry in run.timing)
    tokens = max((entry.get("tokens", 0) for entry in run.log), default=0)
    metrics = run.evaluate(data, lengths=True)
    found = _lost(run, data) if "bits_per_character" in metrics else Lost(0.0, {})
    return Result(
        name,
        seed,
        str(run.folder),
        metrics,
        run.parameters,
        tokens / max(seconds, 1e-9),
        seconds,
        str(run.recipe.environment.get("data", "")),
        curve(run.folder),
        lost=found.lines,
        dropped=found.characters,
    )


def _lost(run: Run, data: str | None) -> Lost:
    settings = run.recipe.data if data is None else run.recipe.data.model_copy(update={"valid": data})
    return lost(run.tokenizer, (record.fields["text"] for record in read(settings, "valid")))


def curve(folder: Path) -> list[dict[str, float]]:
    """Return the learning curve of a run: step, seconds of training so far, and held-out metrics."""
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
