"""What the weights of a run were trained on: its own data, and those of the runs that it began with or mixes.

A run records the latter in its `environment`, so that evaluations can compare other data with all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from seqlab import registry
from seqlab.data.checks.leaks import Reads, Trained
from seqlab.data.formats.contents import Asked
from seqlab.data.formats.series import Layout
from seqlab.data.reading.series_splits import AskedSeries
from seqlab.recipe import DataSettings, Recipe

KEY = "ancestors"
"""Where the `environment` has the record: by run folder, what was read, and the beginning of its fingerprint."""


def reads(recipe: Recipe) -> Reads | None:
    """Return the records or series that a recipe reads."""
    found: Reads | None = registry.find("task", recipe.task.kind).reads(recipe)
    return found


def trained(recipe: Recipe, own: DataSettings | None = None) -> list[Trained]:
    """Return what a run was trained on, itself or by its ancestors; a mixture was trained by its parts alone."""
    known = recipe.environment.get(KEY, {})
    others = [Trained(_restored(one), one["fingerprint"], run) for run, one in known.items()]
    asked = reads(recipe if own is None else recipe.model_copy(update={"data": own}))
    if asked is None or (others and recipe.model.kind == "mixture"):
        return others
    return [Trained(asked, str(recipe.environment.get("data", "")).rpartition("-")[0]), *others]


def trained_by(runs: Mapping[str, Recipe]) -> list[Trained]:
    """Return what these runs, by folder, and their ancestors were trained on."""
    each = [(run, one) for run, recipe in runs.items() for one in trained(recipe) if one.on.data.train]
    return [one._replace(run=one.run or run) for run, one in each]


def record(found: Sequence[Trained]) -> dict[str, Any]:
    """Return what the `environment` of a run remembers of them."""
    return {KEY: {one.run: _recorded(one) for one in found}} if found else {}


def _recorded(one: Trained) -> dict[str, Any]:
    """Return plain data."""
    how = asdict(one.on) | {"data": one.on.data.model_dump(mode="json", exclude_none=True)}
    return {"fingerprint": one.fingerprint, **_plain(how)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(own) for key, own in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _restored(one: Mapping[str, Any]) -> Reads:
    data = DataSettings.model_validate(one["data"])
    if "layout" in one:
        lists = {key: tuple(value) for key, value in one["layout"].items() if isinstance(value, list)}
        layout: dict[str, Any] = {**one["layout"], **lists}
        return AskedSeries(data, Layout(**layout), one["reach"], one["whole"])
    return Asked(data, tuple(one["roles"]), one["symbols"], tuple(one["answers"]))
