"""Forecasting: the numbers that follow a window of a series, or the number that belongs to a whole series."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqlab.data.batching.batches import Batch, Examples, Split
from seqlab.data.batching.series_windows import Floats, SeriesAnswers, SeriesWindows, WindowShape, places
from seqlab.data.formats.series import Layout, Numbers
from seqlab.data.reading.readers import as_given
from seqlab.data.reading.series_splits import AskedSeries, SeriesPart
from seqlab.data.records import Record
from seqlab.errors import DataError, RecipeError, RunError
from seqlab.models.forecasters import Forecaster
from seqlab.nn.summary import last
from seqlab.objectives.objective import Objective
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.tasks.abilities import Forecasts
from seqlab.tasks.outcomes import Forecasted
from seqlab.tasks.scaling import Scaling
from seqlab.tasks.task import Task, Totals

ERRORS = {"mse": ("squared", 2), "mae": ("absolute", 1), "naive_mse": ("naive_squared", 2)}
"""For each figure: the sum that it is the mean of, and its power of the data's unit."""


class Forecasting(Task, Forecasts):
    """Forecasting. Series become windows of numbers, scaled to mean 0 and spread 1 over the training data."""

    class Settings(PartSettings):
        mode: Literal["last", "every", "answer"] = "last"
        """What to forecast: what follows a window; what follows each of its steps; or the answer of a whole series."""
        window: int = Field(default=50, gt=0)
        """Number of past steps that a forecast is made from. Answers are made from whole series."""
        horizon: int = Field(default=1, gt=0)
        """Number of steps forecast at once."""
        stride: int = Field(default=1, gt=0)
        """Distance in steps between training windows. Evaluation windows begin at every step."""
        columns: list[str] | None = Field(default=None, min_length=1)
        """The variables to read; by default all numeric columns but those that only count time (a year, an index)."""
        targets: list[str] | None = Field(default=None, min_length=1)
        """The variables to forecast, among `columns`; all by default."""
        series: str | None = None
        """The column with the name of the series that a row belongs to."""
        row: Literal["step", "series"] = "step"
        """What a table row holds: one step in time, or a whole series."""
        answer: str | None = None
        """The column with the answer of a series; not needed for built-in sets."""
        normalise: bool = True
        """Whether the model reads (x − mean) / standard deviation. Figures are always in the units of the data."""

        @model_validator(mode="after")
        def _fit_each_other(self) -> Forecasting.Settings:
            if self.mode == "answer" and self.horizon != 1:
                raise ValueError("an answer has no horizon: leave 'horizon' out, or set another mode")
            if self.answer is not None and (self.mode != "answer" or self.row != "series"):
                raise ValueError("'answer' needs mode: answer and row: series")
            return self

    def __init__(self, settings: Settings, columns: list[str], inputs: Scaling, outputs: Scaling, longest: int) -> None:
        self.tokenizer = None
        self.settings, self.columns = settings, columns
        self.inputs, self.outputs, self.longest = inputs, outputs, longest
        self.steps = settings.horizon
        """Number of steps that `answers` look ahead."""
        self.left_out: tuple[str, ...] = ()
        """Columns of the training data that are not read, and why; known only right after the data are read."""

    # ------------------------------------------------------------------ what is learnt from the data

    @classmethod
    def prepare(cls, recipe: Recipe, tokenizer: None = None) -> Forecasting:
        if recipe.tokenizer is not None:
            raise RecipeError("numbers need no tokenizer", where="tokenizer", hint="leave the section out")
        own = cast(Forecasting.Settings, recipe.task)
        read = cls.reads(recipe).parts("train")
        columns = _arranged(list(read.columns), own.targets)
        values = [part.series.values for part in read.ordered(columns).parts]
        inputs = Scaling.of(np.concatenate(values))
        forecast = inputs[: len(own.targets or columns)]
        outputs = Scaling.of(_answers(read.parts)) if own.mode == "answer" else forecast
        task = cls(own, columns, inputs, outputs, max(len(one) for one in values))
        task.left_out = read.left_out
        return task

    @classmethod
    def reads(cls, recipe: Recipe) -> AskedSeries:
        own = cast(Forecasting.Settings, recipe.task)
        return AskedSeries(recipe.data, cls._layout(own, own.columns), own.window, own.mode == "answer")

    @staticmethod
    def _layout(own: Settings, columns: Sequence[str] | None) -> Layout:
        named = None if columns is None else tuple(columns)
        return Layout(named, tuple(own.targets or ()), by=own.series, row=own.row, answer=own.answer)

    @classmethod
    def restore(cls, recipe: Recipe, tokenizer: None, memory: Mapping[str, Any]) -> Forecasting:
        inputs, outputs = (Scaling.restored(memory[name]) for name in ("inputs", "outputs"))
        return cls(cast(Forecasting.Settings, recipe.task), memory["columns"], inputs, outputs, memory["longest"])

    def memory(self) -> dict[str, Any]:
        scalings = {"inputs": self.inputs.memory(), "outputs": self.outputs.memory()}
        return {"columns": self.columns, **scalings, "longest": self.longest}

    @property
    def sizes(self) -> dict[str, int]:
        own = self.settings
        window = self.longest if own.mode == "answer" else own.window
        numbers = {"inputs": len(self.columns), "outputs": len(self.outputs)}
        return {**numbers, "horizon": own.horizon, "window": window}

    def check(self, body: nn.Module) -> None:
        mode = self.settings.mode
        if not isinstance(body, Forecaster):
            hint = "choose a model for series, such as series-recurrent"
            raise RecipeError("this model cannot forecast", where="model.kind", hint=hint)
        if mode == "every" and not body.every_step:
            hint = "set task.mode=last, or model.kind=series-recurrent"
            raise RecipeError("this model can only forecast what follows a whole window", where="model.kind", hint=hint)
        if mode == "answer" and body.needs_past:
            hint = "choose another model.kind"
            raise RecipeError(
                "this model continues a series, so it cannot give an answer", where="model.kind", hint=hint
            )

    # ------------------------------------------------------------------ examples

    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> Examples:
        split = self._examples(data, which, training)
        split.note = self._note(split, training)
        return split

    def _examples(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> Examples:
        own, parts = self.settings, self._read(data, which)
        series, spread = self._scaled(parts), self._scaling_of_outputs.spread.astype(np.float32)
        if own.mode == "answer":  # the naive forecast is the mean of the training answers
            answers, naive = (self._scaling_of_outputs(x) for x in (_answers(parts), self.outputs.mean))
            own_answers, guess = answers.astype(np.float32), naive.astype(np.float32)
            return SeriesAnswers(series, own_answers, guess, spread, training, lambda: map(_series, parts))
        begins = [self._begins(part, own.stride if training else 1) for part in parts]
        numbers = np.repeat(np.arange(len(parts)), [len(one) for one in begins])
        windows = np.stack([numbers, np.concatenate(begins)], axis=1)
        shape = WindowShape(own.window, own.horizon, len(self.outputs), every=own.mode == "every")
        return SeriesWindows(series, windows, shape, spread, training, lambda: _steps(parts, begins))

    def _note(self, split: Examples, training: bool) -> str:
        """Return a note on the columns that are not read and the windows that are cut short."""
        found = []
        if training and self.left_out:
            columns, left_out = _few(self.columns), _few(self.left_out)
            found.append(f"forecasting from {columns}; left out: {left_out} (task.columns=[...] chooses others)")
        if isinstance(split, SeriesWindows) and split.shorter:
            what = f"{split.shorter:,} of {len(split):,} {'training' if training else 'held-out'} windows are shorter"
            advice = " (lower task.window)" if split.shorter == len(split) else ""
            found.append(f"{what} than task.window={self.settings.window}: too few steps come before them{advice}")
        return "; ".join(found)

    def _read(self, data: DataSettings, which: Literal["train", "valid"]) -> list[SeriesPart]:
        own = self.settings
        named = own.columns if own.row == "series" else self.columns
        read = AskedSeries(data, self._layout(own, named), own.window, own.mode == "answer").parts(which)
        if len(read.columns) != len(self.columns):
            own_columns = f"{len(self.columns)} ({', '.join(self.columns)})"
            what = f"the data have {len(read.columns)} columns, but the model reads {own_columns}"
            raise DataError(what, where=read.parts[0].series.name, hint="give the same columns as in training")
        return read.ordered(self.columns).parts

    def _begins(self, part: SeriesPart, stride: int) -> range:
        """Return the steps of a series at which forecasts begin."""
        own, length = self.settings, len(part.series.values)
        found = places(length, part.first, own.window, own.horizon, stride)
        if not found:
            what = f"{length - part.first} steps are too few to forecast {own.horizon}"
            hint = "lower task.horizon, change the held-out share (data.hold_out), or leave the series out"
            raise DataError(what, where=part.series.name, hint=hint)
        return found

    def _scaled(self, parts: Sequence[SeriesPart]) -> list[Floats]:
        scaling = self.inputs if self.settings.normalise else Scaling.none(len(self.columns))
        return [scaling(part.series.values).astype(np.float32) for part in parts]

    @property
    def _scaling_of_outputs(self) -> Scaling:
        return self.outputs if self.settings.normalise else Scaling.none(len(self.outputs))

    # ------------------------------------------------------------------ figures and answers

    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        """Return `loss` in the model's units; the other figures are in the units of the data, for whole windows.

        With several columns, each has its own figures (`mse.temperature`). They are pooled only after dividing each
        column by its spread in training (`scaled_mse`); otherwise the column with the largest numbers would dominate.
        """
        numbers, names = totals["numbers"], self.names
        each = {
            name: {figure: totals[f"{total}.{place}"] * len(names) / numbers for figure, (total, _) in ERRORS.items()}
            for place, name in enumerate(names)
        }
        found = {"loss": totals["sum"] / totals["count"]}
        if len(names) == 1:
            return {**found, **each[names[0]], "numbers": int(numbers)}
        for figure, (_, power) in ERRORS.items():
            scaled = [one[figure] / unit**power for one, unit in zip(each.values(), self.outputs.spread, strict=True)]
            found[f"scaled_{figure}"] = float(np.mean(scaled))
        named = {f"{figure}.{name}": value for name, one in each.items() for figure, value in one.items()}
        return {**found, "numbers": int(numbers), **named}

    @property
    def names(self) -> list[str]:
        """Names of the forecast variables."""
        if self.settings.mode != "answer":
            return self.columns[: len(self.outputs)]
        return ["answer"] if len(self.outputs) == 1 else [f"answer {n}" for n in range(1, len(self.outputs) + 1)]

    def signature(self, split: Split) -> dict[str, Any]:
        own = self.settings
        if own.mode == "answer":
            return {"mode": own.mode, "naive": "the mean of the answers in training"}
        shape = {"mode": own.mode, "window": own.window, "horizon": own.horizon}
        short = cast(SeriesWindows, split).shorter
        return {**shape, **({"shorter windows": short} if short else {}), "naive": "the last value"}

    def outcomes(self, objective: Objective, batch: Batch) -> list[Forecasted]:
        """Return the outcomes after whole windows, in the units of the data."""
        targets, mask = batch["targets"], batch.get("mask")
        every = targets.dim() == 4
        forecasts = cast(Forecaster, objective.body)(batch["inputs"], mask, every)
        targets = targets if every else targets[:, None]
        truth, forecast = (
            self._scaling_of_outputs.undone(last(one, mask if every else None).cpu().numpy().astype(np.float64))
            for one in (targets, forecasts)
        )
        losses = np.square(forecast - truth).sum((1, 2)).tolist()
        each = zip(batch.records, losses, truth.tolist(), forecast.tolist(), strict=True)
        return [Forecasted(record, "", loss, self.names, right, own) for record, loss, right, own in each]

    def ahead(self, steps: int) -> Forecasting:
        """Return a copy that looks this far ahead; beyond the horizon, forecasts are fed back as inputs."""
        own = self.settings
        if own.mode == "answer" and steps > 1:
            raise RunError("a series has only one answer", hint="leave --steps out")
        if steps > own.horizon and len(self.outputs) < len(self.columns):
            hint = f"ask for at most {own.horizon}, or train without task.targets"
            raise RunError("the columns that are read but not forecast are unknown so far ahead", hint=hint)
        other = copy.copy(self)
        other.steps = steps
        return other

    def asked(self, data: DataSettings) -> Examples:
        """Return the end of each series, or all of it if the answer is asked for."""
        parts, nothing = self._read(as_given(data), "valid"), np.zeros(len(self.outputs), dtype=np.float32)
        series = self._scaled(parts)

        def records() -> Iterator[Record]:
            return map(_series, parts)

        if self.settings.mode == "answer":
            return SeriesAnswers(series, np.tile(nothing, (len(parts), 1)), nothing, nothing, False, records)
        ends = np.array([(number, len(one)) for number, one in enumerate(series)])
        shape = WindowShape(self.settings.window, 0, len(nothing))
        split = SeriesWindows(series, ends, shape, nothing, False, records)
        if split.shorter:
            window = self.settings.window
            split.note = f"{split.shorter:,} of {len(split):,} series have fewer steps than task.window={window}"
        return split

    def nothing(self, record: Record) -> dict[str, Any]:
        return {"answer": "", "forecast": {}}

    def answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        body, found = cast(Forecaster, objective.body), []
        names, mask = self.names, batch.get("mask")
        for row, inputs in enumerate(batch["inputs"]):  # one by one: each series is extended by its forecasts
            known = inputs if mask is None else inputs[mask[row]]
            values = self._scaling_of_outputs.undone(self._forecast(body, known).cpu().numpy().astype(np.float64))
            forecast = {name: values[:, place].tolist() for place, name in enumerate(names)}
            shown = {name: " ".join(f"{value:.6g}" for value in column) for name, column in forecast.items()}
            several = (f"{name}: {column}" for name, column in shown.items())
            found.append({"answer": ", ".join(several if len(shown) > 1 else shown.values()), "forecast": forecast})
        return found

    def _forecast(self, body: Forecaster, known: Tensor) -> Tensor:
        """(T, C) → (steps, O)"""
        own, forecasts = self.settings, list[Tensor]()
        window = len(known) if own.mode == "answer" else own.window
        while len(forecasts) * own.horizon < self.steps:
            following = body(known[None, -window:])[0, -1]
            forecasts.append(following)
            known = torch.cat([known, following]) if following.shape[-1] == known.shape[-1] else known
        return torch.cat(forecasts)[: self.steps]


def _series(part: SeriesPart) -> Record:
    """Return the place of a series."""
    file = part.series.name.removesuffix(f", line {part.series.line}")
    return Record({}, file, part.series.line)


def _steps(parts: Sequence[SeriesPart], begins: Sequence[range]) -> Iterator[Record]:
    """Yield the place of each forecast: its first step."""
    for part, own in zip(parts, begins, strict=True):
        for begin in own:
            yield Record({}, part.series.name, part.skipped + begin + 1, counted="step")


def _few(names: Sequence[str]) -> str:
    """Join names, shortening a long list."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _arranged(columns: list[str], targets: list[str] | None) -> list[str]:
    """Put the forecast columns first."""
    for name in targets or ():
        if name not in columns:
            hint = f"choose from {', '.join(columns)}"
            raise RecipeError(f"'{name}' is not among the columns that are read", where="task.targets", hint=hint)
    return list(dict.fromkeys([*(targets or ()), *columns]))


def _answers(parts: Sequence[SeriesPart]) -> Numbers:
    found = []
    for part in parts:
        if part.series.answer is None:
            raise DataError("the series has no answer", where=part.series.name, hint="set task.answer to its column")
        found.append(part.series.answer)
    return np.stack(found)
