"""What a model is for: from records to batches, and from sums to the figures people read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import nn

from seqlab import registry
from seqlab.data.batching.batches import Batch, Split
from seqlab.data.formats.contents import Asked
from seqlab.errors import RunError
from seqlab.metrics.metric import Better
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.tokenizers import Tokenizer

Totals = Mapping[str, float]
"""Sums over a split: `sum`, `count`, and the parts that the objective reports."""


@dataclass(frozen=True)
class Prompts:
    """What people wrote, as a decoder reads it: how each text begins, and what it is conditioned on."""

    tokens: list[list[int]]
    source: Batch | None = None


def unknown_tokens(tokenizer: Tokenizer, batch: Batch) -> list[int]:
    """How many tokens of what is read, in each row of a batch, are not in the vocabulary."""
    prefix = "source." if "source.tokens" in batch else ""
    tokens, mask = batch[f"{prefix}tokens"], batch[f"{prefix}mask"]
    if tokenizer.unknown_id is None:
        return [0] * len(tokens)
    counts: list[int] = ((tokens == tokenizer.unknown_id) & mask).sum(1).tolist()
    return counts


class Task(ABC):
    """Owns the tokenizer and the labels; makes splits; names the metrics.

    What only some tasks can do is in `tasks/abilities.py`: to answer, to write, to forecast.
    """

    Settings: ClassVar[type[PartSettings]]
    metric: str = "loss"
    """The figure that names the best checkpoint: one of `metrics`, or one that judges texts (`Writes`)."""
    better: Better = "lower"
    """Which values of it are better."""

    @classmethod
    @abstractmethod
    def prepare(cls, recipe: Recipe, tokenizer: Any = None) -> Task:
        """Learn what has to be learnt from the training data before there is a model: labels, and a tokenizer unless
        one is given, that of the run whose weights the training begins with."""

    @classmethod
    @abstractmethod
    def restore(cls, recipe: Recipe, tokenizer: Any, memory: Mapping[str, Any]) -> Task:
        """The same from what a run folder holds: a Tokenizer, or None if `prepare` made none."""

    @classmethod
    def reads(cls, recipe: Recipe) -> Asked | None:
        """The records that it reads of files; None where it reads none (series), or where a task does not say.

        What it says lets the part that is held out be chosen before the training, and written into the run.
        """
        return None

    tokenizer: Tokenizer | None
    """None where numbers are read."""

    def memory(self) -> dict[str, Any]:
        """What a run folder must hold beside the tokenizer (labels, ...), as plain data."""
        return {}

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """What a model must know about the data: `vocab_size`, ..."""

    def head(self, body: nn.Module) -> nn.Module | None:
        """The part of the model that only this task needs."""
        return None

    def check(self, body: nn.Module) -> None:
        """Refuse a model that cannot read what this task gives it (RecipeError)."""
        return None

    @abstractmethod
    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> Split:
        """The examples of a split; `training` says whether to shuffle or to score each exactly once."""

    @abstractmethod
    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        """The figures of an evaluation, `loss` among them."""

    def prompts(self, texts: Sequence[str]) -> Prompts:
        """The texts are beginnings to go on from, unless the task reads them as sources."""
        if self.tokenizer is None:
            raise RunError("this kind of task reads no text", hint="use predict or evaluate")
        return Prompts([[self.tokenizer.end_id, *ids] for ids in self.tokenizer.encode_batch(texts)])

    def signature(self, split: Split) -> dict[str, Any]:
        """What figures must share to be compared."""
        return {}


def reads_symbols(recipe: Recipe) -> bool:
    """Whether its tokenizer reads sequences that are no text."""
    return recipe.tokenizer is not None and registry.find("tokenizer", recipe.tokenizer.kind).unit == "symbol"
