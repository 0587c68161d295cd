"""Studies that train several recipes with several seeds, optionally along a varied value, and compare one metric."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, field_validator, model_validator

from seqlab.data.reading.readers import fingerprint
from seqlab.errors import RecipeError
from seqlab.recipe import Recipe, Settings, flatten
from seqlab.runs.comparison import Result, result_of
from seqlab.runs.launch import train
from seqlab.studies.study import Report, Study, StudySettings, Watch, unwatched
from seqlab.training.trainer import Diverged

NAME = re.compile(r"[\w.+-]*\w")
"""A name that can be the name of a folder."""
PLACE = re.compile(r"\{(\w+)\}")
"""A placeholder for a value of `along`."""
Point = int | float | str | None
"""A value of `along`; None if nothing is varied."""


def flat(given: Any) -> Any:
    """{'model': {'width': 4}, 'model.depth': 2} → {'model.width': 4, 'model.depth': 2}"""
    if not isinstance(given, dict):
        return given
    found = flatten(given)
    if len(found) < sum(len(flatten({key: value})) for key, value in given.items()):
        raise ValueError("a key is given twice, as a section and with dots: remove one of them")
    for key in ("training.seed", "name"):
        if key in found:
            raise ValueError(f"'{key}' is set by the study itself: leave it out")
    return found


class Arm(Settings):
    """One of the recipes that are compared."""

    recipe: str
    set: dict[str, Any] = Field(default={})
    """Keys of the recipe to change."""
    printed: float | None = None
    """A published figure to compare with."""

    _flat = field_validator("set", mode="before")(flat)


@dataclass(frozen=True)
class ArmAtPoint:
    """One arm at one point, over all seeds."""

    arm: str
    at: Point
    results: list[Result]
    values: list[float]
    diverged: int
    """Number of trainings without a figure, because they diverged."""

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None


class Trainings(Study):
    """A study that trains. `{name}` in its texts stands for each value of `along` in turn."""

    class Settings(StudySettings):
        metric: str
        """The metric to compare, one of those that `seqlab evaluate` prints."""
        also: list[str] = Field(default=[])
        """Other metrics to show beside it."""
        test: str | None = None
        """The data to measure on; the held-out data by default."""
        along: dict[str, list[int | float | str]] = Field(default={}, max_length=1)
        """The value that varies between trainings, and its values: `{steps: [50, 100, 200]}`."""
        baseline: float | dict[int | float | str, float] | None = None
        """The figure of a trivial model, for all values of `along` or for each."""
        set: dict[str, Any] = Field(default={})
        """Keys to change in all recipes, unless an arm sets them."""
        always: dict[str, Any] = Field(default={})
        """Keys to change in all recipes, overriding the arms: `set.key=value` on the command line."""
        seeds: int = Field(default=1, gt=0)
        arms: dict[str, Arm] = Field(min_length=1)

        _flat = field_validator("set", "always", mode="before")(flat)

        @field_validator("arms")
        @classmethod
        def _names_of_folders(cls, arms: dict[str, Arm]) -> dict[str, Arm]:
            for name in arms:
                if not NAME.fullmatch(name):
                    raise ValueError(f"'{name}' cannot name a folder; use letters, digits, - and _")
            return arms

        @model_validator(mode="after")
        def _points_are_known(self) -> Trainings.Settings:
            points = [point for values in self.along.values() for point in values]
            if len({str(point) for point in points}) < len(points):
                raise ValueError("'along' has the same value twice")
            if isinstance(self.baseline, dict) and not self.baseline.keys() <= set(points):
                raise ValueError("'baseline' has a value that is not in 'along'")
            for text in _texts([self.test, self.set, self.always, *(arm.set for arm in self.arms.values())]):
                for name in PLACE.findall(text):
                    if name not in self.along:
                        raise ValueError(f"'{{{name}}}' in '{text}' is not in 'along'")
            return self

    settings: Settings

    def only(self, arms: list[str]) -> Trainings:
        """Return the same study with only some of the arms."""
        for name in arms:
            if name not in self.settings.arms:
                raise RecipeError(f"no arm '{name}'", hint=f"choose from {', '.join(self.settings.arms)}")
        chosen = {name: arm for name, arm in self.settings.arms.items() if name in arms}
        return Trainings(self.settings.model_copy(update={"arms": chosen}))

    def points(self) -> list[Point]:
        """Return the values of `along`."""
        return next(([*values] for values in self.settings.along.values()), [None])

    def recipes(self, arm: str, at: Point) -> list[Recipe]:
        """Return one recipe for each seed."""
        own = self.settings.arms[arm]
        changes = {**self.settings.set, **own.set, **self.settings.always, "name": arm}
        try:
            recipe = Recipe.load(own.recipe).changed(self._filled(changes, at))
        except RecipeError as error:
            where = f"arm '{arm}'" if error.where is None else f"arm '{arm}', {error.where}"
            raise RecipeError(error.what, where=where, hint=error.hint) from None
        return [recipe.changed({"training.seed": seed}) for seed in range(self.settings.seeds)]

    def run(self, out: Path, code: str | os.PathLike[str] | None = None, watch: Watch = unwatched) -> Report:
        planned = [(arm, at, self.recipes(arm, at)) for at in self.points() for arm in self.settings.arms]
        for _, at, (recipe, *_) in planned:  # fail before anything is trained
            if (test := self._filled(self.settings.test, at)) is not None:
                fingerprint(recipe.data.model_copy(update={"valid": test}), "valid")
        threads = torch.get_num_threads()
        cells = []
        for arm, at, recipes in planned:
            name = arm if at is None else f"{arm}-{at}".replace(":", "-")
            results, diverged = [], 0
            for seed, recipe in enumerate(recipes):
                torch.set_num_threads(threads)  # a resumed run may have set its own
                with watch(f"{name}, seed {seed}") as watcher:
                    try:
                        run = train(recipe, out=out / f"{name}-seed{seed}", resume=True, code=code, watcher=watcher)
                    except Diverged as error:
                        watcher.said(str(error))
                        diverged += 1
                        continue
                results.append(result_of(name, seed, run, self._filled(self.settings.test, at)))
                self._check(results[-1])
            values = [float(one.metrics[self.settings.metric]) for one in results]
            cells.append(ArmAtPoint(arm, at, results, values, diverged))
        return self._report(cells)

    def _check(self, one: Result) -> None:
        known = [name for name, value in one.metrics.items() if isinstance(value, int | float)]
        for key, names in (("metric", [self.settings.metric]), ("also", self.settings.also)):
            for name in names:
                if name not in known:
                    raise RecipeError(f"no figure '{name}'", where=key, hint=f"choose from {', '.join(known)}")

    def _filled(self, given: Any, at: Point) -> Any:
        """Fill in placeholders in all texts: `adding:{steps}` → `adding:50`; `{steps}` alone is the value itself."""
        if isinstance(given, str):
            whole = PLACE.fullmatch(given)
            return at if whole and whole[1] in self.settings.along else PLACE.sub(str(at), given)
        if isinstance(given, Mapping):
            return {key: self._filled(value, at) for key, value in given.items()}
        return [self._filled(one, at) for one in given] if isinstance(given, list) else given

    def _baseline(self, at: Point) -> float | None:
        given = self.settings.baseline
        if isinstance(given, dict):
            return None if at is None else given.get(at)
        return given

    # ------------------------------------------------------------------ what was found

    def _report(self, cells: list[ArmAtPoint]) -> Report:
        own = self.settings
        columns: dict[str, list[str]] = {"": [cell.arm for cell in cells]}
        for name in own.along:
            columns[name] = [str(cell.at) for cell in cells]
        name = own.metric.replace("_", " ")
        columns[f"{name}, median" if own.seeds > 1 else name] = _shown(cell.median for cell in cells)
        if own.seeds > 1:
            columns["lowest to highest"] = [
                f"{min(cell.values):.4g} to {max(cell.values):.4g}" if cell.values else "–" for cell in cells
            ]
        if any(cell.diverged for cell in cells):
            columns["diverged"] = [f"{cell.diverged} of {own.seeds}" for cell in cells]
        for name in own.also:
            columns[name.replace("_", " ")] = _shown(_median(cell, name) for cell in cells)
        for name, figures in (
            ("printed", [own.arms[cell.arm].printed for cell in cells]),
            ("baseline", [self._baseline(cell.at) for cell in cells]),
        ):
            if any(figure is not None for figure in figures):
                columns[name] = _shown(figures)
        columns["weights"] = [f"{cell.results[0].parameters:,}" if cell.results else "–" for cell in cells]
        columns["seconds"] = [
            f"{statistics.mean(one.seconds for one in cell.results):.0f}" if cell.results else "–" for cell in cells
        ]
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        data = {"metric": own.metric, "along": own.along, "table": [self._plain(cell) for cell in cells]}
        return Report(list(columns), rows, data, lambda path: self._draw(data, path))

    def _plain(self, cell: ArmAtPoint) -> dict[str, Any]:
        return {
            "arm": cell.arm,
            "at": cell.at,
            "median": cell.median,
            "values": cell.values,
            "diverged": cell.diverged,
            "printed": self.settings.arms[cell.arm].printed,
            "baseline": self._baseline(cell.at),
            "runs": [{key: value for key, value in asdict(one).items() if key != "curve"} for one in cell.results],
        }

    def _draw(self, data: Mapping[str, Any], path: Path) -> None:
        from seqlab.inspection.figures import study_bars, study_lines

        points = self.points()
        draw = study_lines if len(points) > 1 and not any(isinstance(at, str) for at in points) else study_bars
        draw(data, path, self.settings.about[:1].upper() + self.settings.about[1:])


def _texts(given: Any) -> Iterable[str]:
    """Yield all texts in plain data."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping | list):
        for one in given.values() if isinstance(given, Mapping) else given:
            yield from _texts(one)


def _shown(figures: Iterable[float | None]) -> list[str]:
    return ["–" if figure is None else f"{figure:.4g}" for figure in figures]


def _median(cell: ArmAtPoint, metric: str) -> float | None:
    return statistics.median(float(one.metrics[metric]) for one in cell.results) if cell.results else None
