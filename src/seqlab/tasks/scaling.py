"""Mean and standard deviation (spread) of columns of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqlab.data.formats.series import Numbers


@dataclass(frozen=True)
class Scaling:
    """(x − mean) / spread, column by column."""

    mean: Numbers
    spread: Numbers

    @classmethod
    def of(cls, values: Numbers) -> Scaling:
        """Compute the scaling of rows (N, C); a constant column keeps its unit."""
        spread = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(spread > 0, spread, 1.0))

    @classmethod
    def none(cls, columns: int) -> Scaling:
        return cls(np.zeros(columns), np.ones(columns))

    @classmethod
    def restored(cls, memory: Mapping[str, Any]) -> Scaling:
        return cls(np.array(memory["mean"], dtype=np.float64), np.array(memory["spread"], dtype=np.float64))

    def memory(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "spread": self.spread.tolist()}

    def __call__(self, values: Numbers) -> Numbers:
        return (values - self.mean) / self.spread

    def undone(self, values: Numbers) -> Numbers:
        return values * self.spread + self.mean

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, columns: slice) -> Scaling:
        return Scaling(self.mean[columns], self.spread[columns])
