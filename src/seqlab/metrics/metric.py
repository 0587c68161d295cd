"""The interface of all metrics: statistics of each line that can be added, and a figure computed from their sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

import seqlab
from seqlab.recipe import PartSettings

Better = Literal["higher", "lower"]
Numbers = NDArray[np.float64]


class Metric(ABC):
    """statistics of a line, (K,) → their sums over the lines of a text, (K,) → the figure of the text

    The statistics hold everything about a line, so resampling lines only takes sums, without comparing texts again.
    Figures are percentages.
    """

    Settings: ClassVar[type[PartSettings]] = PartSettings
    better: ClassVar[Better] = "higher"

    def __init__(self, settings: PartSettings) -> None:
        self.settings = settings

    @abstractmethod
    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        """Return the statistics of one line with one or more references; any of these texts may be empty."""

    @abstractmethod
    def figure(self, sums: Numbers) -> float:
        """Return the figure of a text from the sums of its lines' statistics."""

    def signature(self, references: int | None) -> str:
        """Return all that a figure depends on, in sacreBLEU's format; None: the number of references varies by line."""
        settings = self.settings.model_dump(exclude={"kind"})
        return joined(self.settings.kind, references, {name: str(value) for name, value in settings.items()})

    def caution(self, hypotheses: Sequence[str]) -> str | None:
        """Return what makes the figure of these texts doubtful, or None."""
        return None

    def parts(self, sums: Numbers) -> dict[str, float]:
        """Return the components of the figure."""
        return {}


class Lower(PartSettings):
    """A metric that can ignore case."""

    lowercase: bool = False


def signed(name: str, references: int | None, settings: Mapping[str, str]) -> str:
    """Return the signature of a metric that is implemented here."""
    return joined(name, references, {**settings, "version": f"seqlab-{seqlab.__version__}"})


def joined(name: str, references: int | None, settings: Mapping[str, str]) -> str:
    fields = {"nrefs": "var" if references is None else str(references), **settings}
    return "|".join([name, *(f"{key}:{value}" for key, value in fields.items())])


def case(settings: Lower) -> str:
    return "lc" if settings.lowercase else "mixed"
