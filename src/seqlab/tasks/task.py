"""A task: how records become batches, and how sums become the figures people read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import nn

from seqlab import registry
from seqlab.data.batching.batches import Batch, Examples, Split
from seqlab.data.formats.contents import Asked
from seqlab.data.reading.series_splits import AskedSeries
from seqlab.errors import RecipeError, RunError
from seqlab.metrics.metric import Better
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.tokenizers import Tokenizer

Totals = Mapping[str, float]
"""Sums over a split: `sum`, `count`, and the parts reported by the objective."""


@dataclass(frozen=True)
class Prompts:
    """Prompts as a decoder reads them: the beginning of each text, and what it is conditioned on."""

    tokens: list[list[int]]
    source: Batch | None = None


def unknown_tokens(tokenizer: Tokenizer, batch: Batch) -> list[int]:
    """Count the input tokens of each row that are not in the vocabulary; [] if a batch has no tokens.

    Whatever is called `tokens` or `NAME.tokens` is input, except beside `source.tokens`, which is then all of it.
    """
    named = ["source.tokens"] if "source.tokens" in batch else [one for one in batch if one.split(".")[-1] == "tokens"]
    unknown = -1 if tokenizer.unknown_id is None else tokenizer.unknown_id  # no token is -1
    found = []
    for name in named:
        mask = batch.get(f"{name.removesuffix('tokens')}mask")
        hits = batch[name] == unknown
        found.append((hits if mask is None else hits & mask).flatten(1).sum(1))
    counts: list[int] = torch.stack(found).sum(0).tolist() if found else []
    return counts


def is_task(made: object, kind: type, method: str) -> Task:
    """Return the task that a method of a class made, or raise an error if it is none."""
    if isinstance(made, Task):
        return made
    what = f"{method}() returned {type(made).__name__}"
    raise RecipeError(what, where=kind.__name__, hint="return the task: return cls(...)")


def is_split(made: object, task: object, method: str) -> Split:
    """Return the examples that a method of a task made, or raise an error if they are none."""
    if isinstance(made, Examples) and not hasattr(made, "lengths"):
        what = "its constructor does not call super().__init__(lengths, training)"
        raise RecipeError(what, where=type(made).__name__, hint="give the length of each example")
    if all(callable(getattr(made, name, None)) for name in ("order", "batch", "__len__")):
        return cast(Split, made)
    what, hint = (
        f"{method}() returned {type(made).__name__}",
        "return examples, such as an object of a class of Examples",
    )
    raise RecipeError(what, where=type(task).__name__, hint=hint)


def split_of(task: Task, data: DataSettings, which: Literal["train", "valid"], training: bool) -> Split:
    """Return the examples of a split of a task, checked."""
    return is_split(task.split(data, which, training=training), task, "split")


class Task(ABC):
    """Base class of tasks: owns the tokenizer and the labels, makes the splits and names the metrics.

    Made by `prepare` when training begins and by `restore` when a run is loaded, which pass to the constructor
    whatever the class needs. A task sets `tokenizer`, and its `split` makes batches with what the models read:
    `tokens` and `mask` (True = real token) for an encoder.

    Abilities that only some tasks have (answering, writing, forecasting) are in `tasks/abilities.py`.
    """

    Settings: ClassVar[type[PartSettings]]
    metric: str = "loss"
    """The figure that chooses the best checkpoint: one of `metrics`, or one that scores texts (`Writes`)."""
    better: Better = "lower"
    """Whether lower or higher values of `metric` are better."""

    @classmethod
    @abstractmethod
    def prepare(cls, recipe: Recipe, tokenizer: Any = None) -> Task:
        """Learn what the model depends on from the training data: labels, and a tokenizer. When training starts from
        the weights of another run, that run's tokenizer is given."""

    @classmethod
    @abstractmethod
    def restore(cls, recipe: Recipe, tokenizer: Any, memory: Mapping[str, Any]) -> Task:
        """Rebuild the task from a run folder; `tokenizer` is None if `prepare` made none."""

    @classmethod
    def reads(cls, recipe: Recipe) -> Asked | AskedSeries | None:
        """Return the records or series the task reads from files; None if it does not say.

        With records, the held-out part can be chosen before training and stored in the run. With either, held-out data
        given separately can be compared with the training data.
        """
        return None

    tokenizer: Tokenizer | None
    """None if the task reads numbers."""

    def memory(self) -> dict[str, Any]:
        """Return what a run folder must hold besides the tokenizer (labels, ...), as plain data."""
        return {}

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The sizes a model needs to know about the data: `vocab_size`, ..."""

    def head(self, body: nn.Module) -> nn.Module | None:
        """Return the part of the model that only this task needs."""
        return None

    def check(self, body: nn.Module) -> None:
        """Raise RecipeError if the model cannot read what this task gives it."""
        return None

    @abstractmethod
    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> Split:
        """Return the examples of a split: shuffled if `training`, otherwise each scored exactly once."""

    @abstractmethod
    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        """Return the figures of an evaluation, including `loss`."""

    def prompts(self, texts: Sequence[str]) -> Prompts:
        """Encode texts as prompts to continue; tasks that read sources override this."""
        if self.tokenizer is None:
            raise RunError("this task does not read text", hint="use `seqlab predict` or `seqlab evaluate`")
        return Prompts([[self.tokenizer.end_id, *ids] for ids in self.tokenizer.encode_batch(texts)])

    def signature(self, split: Split) -> dict[str, Any]:
        """Return the facts that two runs must share for their figures to be comparable; by default, the tokenizer."""
        if self.tokenizer is None:
            return {}
        return {"tokenizer": f"{self.tokenizer.kind}-{self.tokenizer.vocab_size}-{self.tokenizer.fingerprint[:8]}"}


def reads_symbols(recipe: Recipe) -> bool:
    """Whether the recipe's tokenizer reads sequences of symbols rather than text."""
    return recipe.tokenizer is not None and registry.find("tokenizer", recipe.tokenizer.kind).unit == "symbol"
