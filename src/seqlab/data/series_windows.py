"""Windows of series, and what follows them.

B rows · T steps of a window · C variables, the O that are forecast first · H horizon
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from seqlab.data.batches import Batch, Examples
from seqlab.data.order import Indices
from seqlab.data.randomness import Key

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Window:
    """The steps from `start` to `stop` of a series (…, C), what is to be said of them (H, O), the naive guess (O,)."""

    series: Floats
    start: int
    stop: int
    targets: Floats
    naive: Floats


class SeriesWindows(Examples):
    """`inputs` (B, T, C), with a `mask` (B, T) where they differ in length, `targets` (B, H, O), `naive` (B, O).

    `targets` are (B, T, H, O) where every step has some. `spread` (O,) is the unit that they are in.
    """

    def __init__(self, windows: Sequence[Window], spread: Floats, training: bool, every: bool = False) -> None:
        super().__init__([window.stop - window.start for window in windows], training)
        self.windows, self.spread, self.every = windows, torch.from_numpy(spread), every

    def batch(self, indices: Indices, key: Key) -> Batch:
        chosen = [self.windows[index] for index in indices]
        inputs = [one.series[one.start : one.stop] for one in chosen]
        targets = [_at_every_step(one) for one in chosen] if self.every else [one.targets for one in chosen]
        lengths = torch.tensor([len(one) for one in inputs])
        batch = Batch(
            inputs=_stacked(inputs),
            targets=_stacked(targets),
            naive=torch.from_numpy(np.stack([one.naive for one in chosen])),
            spread=self.spread,
        )
        longest = int(lengths.max())
        if int(lengths.min()) < longest:
            batch["mask"] = torch.arange(longest) < lengths[:, None]
        return batch


def _stacked(arrays: Sequence[Floats]) -> torch.Tensor:
    """Filled up with zeros where they differ in length."""
    longest = max(len(array) for array in arrays)
    filled = [np.pad(a, ((0, longest - len(a)), *[(0, 0)] * (a.ndim - 1))) if len(a) < longest else a for a in arrays]
    return torch.from_numpy(np.stack(filled))


def _at_every_step(window: Window) -> Floats:
    """(T, H, O): after each step of a window, the H that follow it."""
    horizon, outputs = window.targets.shape
    followed = window.series[window.start + 1 : window.stop + horizon, :outputs]
    return sliding_window_view(followed, horizon, axis=0).transpose(0, 2, 1)


def places(length: int, first: int, window: int, horizon: int, stride: int) -> range:
    """Where the forecasts of a series begin: the last of them ends with the series, whole windows come before each.

    From `first` on, if it is not 0; a series too short for a whole window gives one that is shorter.
    """
    last = length - horizon
    earliest = first or max(1, min(window, last))
    if last < earliest:
        return range(0)
    return range(earliest + (last - earliest) % stride, last + 1, stride)
