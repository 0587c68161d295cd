"""Learning-rate schedules: pure functions from the step (starting at 1) to a factor of the peak rate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from pydantic import Field, field_validator

from seqlab.recipe import PartSettings


class WarmUp(PartSettings):
    warmup: int | float = Field(default=0, ge=0)
    """Steps over which the rate rises linearly from zero; a value below 1 is a share of all steps."""

    @field_validator("warmup")
    @classmethod
    def _steps_or_share(cls, value: int | float) -> int | float:
        if value > 1 and value != int(value):
            raise ValueError("must be a whole number of steps, or a share of all steps below 1")
        return value


class Schedule(ABC):
    Settings: ClassVar[type[WarmUp]]

    def __init__(self, settings: WarmUp, steps: int) -> None:
        self.settings, self.steps = settings, steps
        share = settings.warmup * (steps if settings.warmup < 1 else 1)
        self.warmup = min(round(share), steps)

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return step / self.warmup
        return self.after(step)

    @abstractmethod
    def after(self, step: int) -> float:
        """Return the factor after the warm-up."""

    def _progress(self, step: int) -> float:
        return (step - self.warmup) / max(1, self.steps - self.warmup)


class Constant(Schedule):
    """1"""

    class Settings(WarmUp):
        pass

    def after(self, step: int) -> float:
        return 1.0


class Linear(Schedule):
    """1 − progress: linear decay to zero, as in BERT."""

    class Settings(WarmUp):
        pass

    def after(self, step: int) -> float:
        return 1.0 - self._progress(step)


class InverseSquareRoot(Schedule):
    """√(warmup / step), as in the first Transformer."""

    class Settings(WarmUp):
        pass

    def after(self, step: int) -> float:
        return math.sqrt(max(1, self.warmup) / step)


class Cosine(Schedule):
    """floor + (1 − floor) (1 + cos(π · progress)) / 2"""

    class Settings(WarmUp):
        floor: float = Field(default=0.1, ge=0, le=1)
        """The share of the learning rate that is left at the end."""

    def after(self, step: int) -> float:
        assert isinstance(self.settings, Cosine.Settings)
        floor = self.settings.floor
        return floor + (1 - floor) * (1 + math.cos(math.pi * self._progress(step))) / 2
