"""Windows of series with the steps that follow them, and whole series with answers.

B rows · T steps · C variables, of which the first O are forecast · H horizon
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from seqlab.data.batching.batches import Batch, Examples
from seqlab.data.batching.order import Indices
from seqlab.data.randomness import Key
from seqlab.data.records import Record

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class WindowShape:
    """The length of a window, the steps and variables to forecast, and whether to forecast after every step."""

    window: int
    horizon: int
    outputs: int
    every: bool = False


class SeriesWindows(Examples):
    """`inputs` (B, T, C), with a `mask` (B, T) if lengths differ, and `targets` (B, H, O).

    `targets` are (B, T, H, O) if every step has its own. `naive` (B, O) is the last value, and `spread` (O,) the unit
    of all values. `places` (N, 2) holds series numbers and the steps where their forecasts begin.
    """

    def __init__(
        self,
        series: Sequence[Floats],
        places: NDArray[np.int64],
        shape: WindowShape,
        spread: Floats,
        training: bool,
        records: Callable[[], Iterable[Record]] = tuple,
    ) -> None:
        super().__init__(np.minimum(places[:, 1], shape.window).tolist(), training)
        self.series, self.places, self.shape, self.spread = series, places, shape, torch.from_numpy(spread)
        self._records = records

    def records(self) -> Iterable[Record]:
        return self._records()

    @property
    def shorter(self) -> int:
        """The number of windows shorter than requested."""
        return int((self.places[:, 1] < self.shape.window).sum())

    def batch(self, indices: Indices, key: Key) -> Batch:
        own, rows = self.shape, [(self.series[number], begin) for number, begin in self.places[indices]]
        inputs = [values[max(0, begin - own.window) : begin] for values, begin in rows]
        if own.every:
            targets = [self._after_every_step(values, begin) for values, begin in rows]
        else:
            targets = [values[begin : begin + own.horizon, : own.outputs] for values, begin in rows]
        naive = torch.from_numpy(np.stack([values[begin - 1, : own.outputs] for values, begin in rows]))
        return Batch(_inputs(inputs), targets=_stacked(targets), naive=naive, spread=self.spread)

    def _after_every_step(self, values: Floats, begin: int) -> Floats:
        """Return the targets after every step (T, H, O)."""
        own = self.shape
        following = values[max(0, begin - own.window) + 1 : begin + own.horizon, : own.outputs]
        return sliding_window_view(following, own.horizon, axis=0).transpose(0, 2, 1)


class SeriesAnswers(Examples):
    """Whole series with one answer each: `inputs` and `mask` as above, `targets` (B, 1, O), and one `naive` guess."""

    def __init__(
        self,
        series: Sequence[Floats],
        answers: Floats,
        naive: Floats,
        spread: Floats,
        training: bool,
        records: Callable[[], Iterable[Record]] = tuple,
    ) -> None:
        super().__init__([len(one) for one in series], training)
        self.series, self.answers = series, torch.from_numpy(answers)
        self.naive, self.spread = torch.from_numpy(naive), torch.from_numpy(spread)
        self._records = records

    def records(self) -> Iterable[Record]:
        return self._records()

    def batch(self, indices: Indices, key: Key) -> Batch:
        targets = self.answers[torch.from_numpy(indices)][:, None]
        naive = self.naive.expand(len(indices), -1)
        return Batch(_inputs([self.series[i] for i in indices]), targets=targets, naive=naive, spread=self.spread)


def _inputs(arrays: Sequence[Floats]) -> dict[str, torch.Tensor]:
    lengths = torch.tensor([len(one) for one in arrays])
    inputs = {"inputs": _stacked(arrays)}
    longest = int(lengths.max())
    if int(lengths.min()) < longest:
        inputs["mask"] = torch.arange(longest) < lengths[:, None]
    return inputs


def _stacked(arrays: Sequence[Floats]) -> torch.Tensor:
    """Stack arrays, padded with zeros where their lengths differ."""
    longest = max(len(array) for array in arrays)
    filled = [np.pad(a, ((0, longest - len(a)), *[(0, 0)] * (a.ndim - 1))) if len(a) < longest else a for a in arrays]
    return torch.from_numpy(np.stack(filled))


def places(length: int, first: int, window: int, horizon: int, stride: int) -> range:
    """Return where the forecasts of a series begin: the last one ends with the series, and each follows a whole window.

    Forecasts start at `first` or later, if that is not 0; a series too short for a whole window yields one shorter
    window.
    """
    last = length - horizon
    earliest = first or max(1, min(window, last))
    if last < earliest:
        return range(0)
    return range(earliest + (last - earliest) % stride, last + 1, stride)
