"""Splits series, or the steps of a series, into training and held-out parts.

Without `valid`, one fifth of the series is held out if there are 20 or more, and otherwise the last fifth of each
series. The steps to forecast there are never seen in training, but the steps before them may serve as input.
`data.hold_out` sets another fraction; built-in sets have fixed parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from seqlab.data.builtin.synthetic import synthetic
from seqlab.data.formats.series import VALUE, Found, Layout, Series, series_of
from seqlab.data.randomness import permute
from seqlab.data.reading.readers import sources
from seqlab.data.splits.holding_out import FEWEST_DOCUMENTS
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

HELD_OUT = 0.2


@dataclass(frozen=True)
class SeriesPart:
    """A series to forecast from step `first` on; its values begin `skipped` steps into the original."""

    series: Series
    first: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Parts:
    """Series parts with the names of their variables."""

    parts: list[SeriesPart]
    columns: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Columns that are not variables, and why."""

    def ordered(self, columns: Sequence[str]) -> Parts:
        """Return the parts with the variables in this order, if they have these names."""
        if set(columns) != set(self.columns):
            return self
        order = [self.columns.index(name) for name in columns]
        picked = [replace(part, series=part.series.picked(order)) for part in self.parts]
        return Parts(picked, tuple(columns))


@dataclass(frozen=True)
class AskedSeries:
    """What to read from every file of series: the arguments of `read_parts`."""

    data: DataSettings
    layout: Layout
    reach: int
    whole: bool

    def parts(self, split: Literal["train", "valid"]) -> Parts:
        return read_parts(self.data, split, self.layout, reach=self.reach, whole=self.whole)


def read_parts(
    data: DataSettings, split: Literal["train", "valid"], layout: Layout, *, reach: int, whole: bool
) -> Parts:
    """Return the series of a split; held-out ends include `reach` steps before them. `whole`: series may not be cut."""
    if data.scramble:
        raise DataError("data.scramble shuffles letters, but series are numbers", hint="remove data.scramble")
    given, chosen = sources(data, split), layout.columns is not None
    files: list[Found] = []
    for source in given:
        if isinstance(source, Path):
            files.append(series_of(source, data, layout))
            if layout.row == "step" or files[0].columns != (VALUE,):  # all other files must match the first one
                layout = replace(layout, columns=files[0].columns)
    made = [synthetic(source, split) for source in given if isinstance(source, str)]
    columns = _agreed([*files, *made])
    series = [one for found in files for one in found.series]
    held_out = data.valid is None and bool(series)
    parts = (
        _held_out(series, data.hold_out or HELD_OUT, split, reach, whole)
        if held_out
        else [SeriesPart(s) for s in series]
    )
    left_out = () if chosen or not files else (*files[0].left_out, *_further(files))
    return Parts([*parts, *(SeriesPart(one) for found in made for one in found.series)], columns, left_out)


def _further(files: Sequence[Found]) -> list[str]:
    """Return the columns of all files but the first that it lacks; they are not read."""
    first, *others = (one.header for one in files)
    names = dict.fromkeys(name for header in others for name in header if first and name not in first)
    return [f"'{name}' (not in the first file)" for name in names]


def _agreed(found: Sequence[Found]) -> tuple[str, ...]:
    """Return the names of the variables; all series must have the same number."""
    if not found:
        raise DataError("no data to read", hint="name a file, a folder, a pattern or a built-in data set")
    first = found[0]
    for one in found:
        if len(one.columns) != len(first.columns):
            what = f"the numeric columns are {', '.join(one.columns)}, but {', '.join(first.columns)} in other files"
            raise DataError(what, where=one.series[0].name, hint="choose them with task.columns=[...]")
    return first.columns


def _held_out(
    series: list[Series], share: float, split: Literal["train", "valid"], reach: int, whole: bool
) -> list[SeriesPart]:
    if whole or len(series) >= FEWEST_DOCUMENTS:
        if len(series) < 2:
            what = "a single series cannot be cut to hold out a part"
            raise DataError(what, where=series[0].name, hint="set data.valid")
        count = min(len(series) - 1, max(1, round(share * len(series))))
        chosen = set(permute(np.arange(count), len(series), key=0).tolist())
        return [SeriesPart(one) for number, one in enumerate(series) if (number in chosen) == (split == "valid")]
    return [_end(one, share, reach) if split == "valid" else SeriesPart(_beginning(one, share)) for one in series]


def _cut(series: Series, share: float) -> int:
    return len(series.values) - max(1, round(share * len(series.values)))


def _beginning(series: Series, share: float) -> Series:
    return replace(series, values=series.values[: _cut(series, share)])


def _end(series: Series, share: float, reach: int) -> SeriesPart:
    cut = _cut(series, share)
    start = max(0, cut - reach)
    return SeriesPart(replace(series, values=series.values[start:]), cut - start, start)
