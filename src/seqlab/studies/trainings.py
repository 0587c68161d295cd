"""Several recipes, trained with several seeds, perhaps over growing length: one figure of each."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from seqlab.comparison import Result, result_of
from seqlab.errors import RecipeError
from seqlab.launch import train
from seqlab.recipe import Recipe, Settings, flatten
from seqlab.studies.study import Report, Study, StudySettings, Watch, unwatched

NAME = re.compile(r"[\w.+-]*\w")
"""What can be the name of a folder."""


class Arm(Settings):
    """One of the things that are compared."""

    recipe: str
    set: dict[str, Any] = Field(default={})
    """Keys of the recipe that are different."""
    printed: float | None = None
    """The figure that somebody else has published."""


@dataclass(frozen=True)
class Cell:
    """One arm at one point, over all seeds."""

    arm: str
    at: int | str | None
    results: list[Result]
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Trainings(Study):
    """`{name}` in a text of the study stands for each value of `along` in turn."""

    class Settings(StudySettings):
        metric: str
        """Of those that `seqlab evaluate` prints."""
        also: list[str] = Field(default=[])
        """Others that are shown beside it."""
        test: str | None = None
        """What to measure on; the held-out data by default."""
        along: dict[str, list[int | str]] = Field(default={}, max_length=1)
        """What grows from one training to the next, and its values: `{steps: [50, 100, 200]}`."""
        baseline: float | dict[int | str, float] | None = None
        """The figure of doing nothing clever, for all or for each value."""
        set: dict[str, Any] = Field(default={})
        """Keys that are different in all recipes."""
        seeds: int = Field(default=1, gt=0)
        arms: dict[str, Arm] = Field(min_length=1)

        @field_validator("arms")
        @classmethod
        def _names_of_folders(cls, arms: dict[str, Arm]) -> dict[str, Arm]:
            for name in arms:
                if not NAME.fullmatch(name):
                    raise ValueError(f"'{name}' cannot name a folder; use letters, digits, - and _")
            return arms

    settings: Settings

    def only(self, arms: list[str]) -> Trainings:
        """The same with some of the arms."""
        for name in arms:
            if name not in self.settings.arms:
                raise RecipeError(f"no arm '{name}'", hint=f"there are {', '.join(self.settings.arms)}")
        chosen = {name: arm for name, arm in self.settings.arms.items() if name in arms}
        return Trainings(self.settings.model_copy(update={"arms": chosen}))

    def run(self, out: Path, code: str | os.PathLike[str] | None = None, watch: Watch = unwatched) -> Report:
        planned = [(arm, at, self.recipes(arm, at)) for at in self.points() for arm in self.settings.arms]
        cells = []
        for arm, at, recipes in planned:
            name = arm if at is None else f"{arm}-{at}".replace(":", "-")
            results = []
            for seed, recipe in enumerate(recipes):
                with watch(f"{name}, seed {seed}") as watcher:
                    run = train(recipe, out=out / f"{name}-seed{seed}", resume=True, code=code, watcher=watcher)
                results.append(result_of(name, seed, run, _filled(self.settings.test, self._names(at))))
            cells.append(Cell(arm, at, results, [self._figure(one, self.settings.metric) for one in results]))
        return self._report(cells)

    def points(self) -> list[int | str | None]:
        """The values of what grows."""
        return next(([*values] for values in self.settings.along.values()), [None])

    def _names(self, at: int | str | None) -> dict[str, Any]:
        return dict.fromkeys(self.settings.along, at)

    def recipes(self, arm: str, at: int | str | None) -> list[Recipe]:
        """One for each seed. They are all made before anything is trained."""
        own = self.settings.arms[arm]
        changes = {**flatten(self.settings.set), **flatten(own.set), "name": arm}
        try:
            recipe = Recipe.load(own.recipe).changed(_filled(changes, self._names(at)))
        except RecipeError as error:
            where = f"arm '{arm}'" if error.where is None else f"arm '{arm}', {error.where}"
            raise RecipeError(error.what, where=where, hint=error.hint) from None
        return [recipe.changed({"training.seed": seed}) for seed in range(self.settings.seeds)]

    def _figure(self, one: Result, metric: str) -> float:
        if metric not in one.metrics:
            known = [name for name, value in one.metrics.items() if isinstance(value, int | float)]
            raise RecipeError(f"no figure '{metric}'", where="metric", hint=f"one of {', '.join(known)}")
        return float(one.metrics[metric])

    def _baseline(self, at: int | str | None) -> float | None:
        given = self.settings.baseline
        return (
            given.get(at) if isinstance(given, dict) and at is not None else given if isinstance(given, float) else None
        )

    def _report(self, cells: list[Cell]) -> Report:
        own = self.settings
        columns: dict[str, list[str]] = {"": [cell.arm for cell in cells]}
        for name in own.along:
            columns[name] = [str(cell.at) for cell in cells]
        name = own.metric.replace("_", " ")
        columns[f"{name}, median" if own.seeds > 1 else name] = [f"{cell.median:.4g}" for cell in cells]
        if own.seeds > 1:
            columns["lowest to highest"] = [f"{min(cell.values):.4g} to {max(cell.values):.4g}" for cell in cells]
        for name in own.also:
            medians = [statistics.median(self._figure(one, name) for one in cell.results) for cell in cells]
            columns[name.replace("_", " ")] = [f"{median:.4g}" for median in medians]
        for name, figures in (
            ("printed", [own.arms[cell.arm].printed for cell in cells]),
            ("baseline", [self._baseline(cell.at) for cell in cells]),
        ):
            if any(figure is not None for figure in figures):
                columns[name] = ["–" if figure is None else f"{figure:.4g}" for figure in figures]
        columns["weights"] = [f"{cell.results[0].parameters:,}" for cell in cells]
        columns["seconds"] = [f"{statistics.mean(one.seconds for one in cell.results):.0f}" for cell in cells]
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        data = {
            "metric": own.metric,
            "along": own.along,
            "table": [
                {
                    "arm": cell.arm,
                    "at": cell.at,
                    "median": cell.median,
                    "values": cell.values,
                    "printed": own.arms[cell.arm].printed,
                    "baseline": self._baseline(cell.at),
                    "runs": [
                        {key: value for key, value in asdict(one).items() if key != "curve"} for one in cell.results
                    ],
                }
                for cell in cells
            ],
        }
        return Report(list(columns), rows, data, lambda path: self._draw(data, path))

    def _draw(self, data: Mapping[str, Any], path: Path) -> None:
        from seqlab.inspection.figures import study_bars, study_lines

        points = self.points()
        draw = study_lines if len(points) > 1 and all(isinstance(at, int) for at in points) else study_bars
        draw(data, path, self.settings.about[:1].upper() + self.settings.about[1:])


def _plain(one: Result) -> dict[str, Any]:
    return {key: value for key, value in asdict(one).items() if key != "curve"}


def _filled(given: Any, names: Mapping[str, Any]) -> Any:
    """`adding:{steps}` → `adding:50`, in all texts of what is given."""
    if isinstance(given, str):
        for name, value in names.items():
            given = given.replace(f"{{{name}}}", str(value))
        return int(given) if names and given in map(str, _numbers(names)) else given
    if isinstance(given, Mapping):
        return {key: _filled(value, names) for key, value in given.items()}
    return [_filled(one, names) for one in given] if isinstance(given, list) else given


def _numbers(names: Mapping[str, Any]) -> Iterator[int]:
    """`{steps}` alone is a number where the value is one."""
    return (value for value in names.values() if isinstance(value, int))
