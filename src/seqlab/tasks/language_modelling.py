"""Language modelling of any text or sequence of symbols, in windows or in streams that carry state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from seqlab.data.batching.batches import Split
from seqlab.data.batching.sequences import Lanes, ScoredLanes, ScoredWindows, Windows
from seqlab.data.formats.contents import Asked
from seqlab.data.reading.readers import cache_key, described, empty_lines, is_small, read, size
from seqlab.data.records import Record
from seqlab.data.storage.store import Column, TokenStore
from seqlab.errors import RecipeError
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.tasks.task import Task, Totals, reads_symbols
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.fitted import fitted

TextSplit = Windows | Lanes | ScoredWindows | ScoredLanes

PIECE = 128
"""Minimum number of positions that evaluation reads at a time when it carries state. The figures do not depend on it,
but the short windows of truncated BPTT would take twice as long."""


class LanguageModelling(Task):
    """Language modelling. Texts become one long array of tokens; every document ends with `<end>`."""

    tokenizer: Tokenizer

    class Settings(PartSettings):
        reading: Literal["windows", "streams"] = "windows"
        """Windows in random order, or parallel streams that carry state from window to window."""
        window: int = Field(default=256, gt=0)
        """Number of tokens in a window; with streams, the length of truncated BPTT."""
        stride: int | None = Field(default=None, gt=0)
        """Distance between evaluation windows; half a window by default. Smaller is slower and scores better."""
        stretch: int | None = Field(default=None, gt=0)
        """Number of tokens after which a training stream restarts from an empty state; never by default. A model that
        rarely starts from an empty state may not learn to, and then fails on every new text."""
        lanes: int = Field(default=8, gt=0)
        """With streams, the number of parts that evaluation reads in parallel, each from an empty state."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer, streams: int, sample: float | None = None) -> None:
        self.settings, self.tokenizer, self.streams, self.sample = settings, tokenizer, streams, sample
        self.stride = settings.stride or max(1, settings.window // 2)
        if self.stride > settings.window:
            raise RecipeError(
                f"'task.stride' {self.stride} is larger than 'task.window' {settings.window}",
                hint="choose a smaller stride: tokens between the windows would never be scored",
            )

    @classmethod
    def prepare(cls, recipe: Recipe, tokenizer: Tokenizer | None = None) -> LanguageModelling:
        return cls.restore(recipe, tokenizer or fitted(recipe.tokenizer, recipe.data), {})

    @classmethod
    def restore(cls, recipe: Recipe, tokenizer: Tokenizer, memory: Mapping[str, Any]) -> LanguageModelling:
        sample = getattr(recipe.tokenizer, "sample", None)
        return cls(cast(LanguageModelling.Settings, recipe.task), tokenizer, recipe.training.batch_size, sample)

    @classmethod
    def reads(cls, recipe: Recipe) -> Asked:
        return Asked(recipe.data, ("text",), reads_symbols(recipe))

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocab_size": self.tokenizer.vocab_size}

    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> TextSplit:
        column = self.column(data, which)
        tokens, window = column.flat, self.settings.window
        empty = empty_lines(data, which)
        note = _left_out(empty, described(data, "train" if data.valid is None else which)) if empty else ""
        if training:
            if self.settings.reading == "streams":
                return Lanes(tokens, window, self.streams, self.settings.stretch, note)
            return Windows(tokens, window, None if self.sample is None else self._recut, note)

        def records() -> Iterator[Record]:
            return self._records(data, which)

        facts = {**self._facts(column, data.documents == "line"), "empty_lines": empty}
        if self.settings.reading == "windows":
            return ScoredWindows(tokens, window, self.stride, self.tokenizer.end_id, facts, note, records)
        lanes = max(1, min(self.settings.lanes, len(tokens) // (4 * window)))
        return ScoredLanes(tokens, max(window, PIECE), lanes, self.tokenizer.end_id, facts, note, records)

    def _recut(self, tokens: NDArray[np.integer], generator: np.random.Generator) -> list[int]:
        """Subword regularisation: a random segmentation of the same text."""
        cut: list[int] = cast(Any, self.tokenizer).resample(tokens.tolist(), generator, self.sample)
        return cut

    def column(self, data: DataSettings, which: Literal["train", "valid"]) -> Column:
        """Read the tokens of a split from the store."""
        key = cache_key(data, which, self.tokenizer.fingerprint)
        store = TokenStore.open(
            lambda: self._records(data, which),
            {"text": self.tokenizer.encode_batch},
            key,
            vocab_size=self.tokenizer.vocab_size,
            end=self.tokenizer.end_id,
            about=described(data, which),
            size=size(data, which),
            keep=not is_small(data, which),
        )
        return store["text"]

    def _records(self, data: DataSettings, which: Literal["train", "valid"]) -> Iterator[Record]:
        return read(data, which, symbols=self.tokenizer.unit == "symbol")

    def _facts(self, column: Column, lines: bool) -> dict[str, int]:
        ends = len(column) if lines else 0  # the `<end>` of a line stands for its newline
        unknown = self.tokenizer.unknown_id
        return {
            "characters": column.characters + ends,
            "bytes": column.bytes + ends,
            "unknown": 0 if unknown is None else int((column.flat == unknown).sum()),
        }

    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        """Return the loss in nats per token, and in bits per character and byte, or per symbol."""
        assert isinstance(split, ScoredWindows | ScoredLanes)
        loss, bits = totals["sum"] / totals["count"], totals["sum"] / math.log(2)
        if self.tokenizer.unit == "symbol":  # `<end>` counts as a symbol, as a newline counts as a character
            units = {"bits_per_symbol": bits / totals["count"]}
        else:
            facts = split.facts
            units = {"bits_per_character": bits / facts["characters"], "bits_per_byte": bits / facts["bytes"]}
        return {
            "loss": loss,
            "perplexity": math.exp(loss) if loss < 700 else math.inf,
            **units,
            "tokens": int(totals["count"]),
            "unknown": split.facts["unknown"],
        }

    def check(self, body: nn.Module) -> None:
        """Check that windows fit into the model's context, and that the model reads sampled text if there is any."""
        counts = hasattr(body, "fit")
        if self.sample is not None and (counts or self.settings.reading == "streams"):
            what = "a count-based model" if counts else "task.reading=streams"
            raise RecipeError(f"{what} cannot read sampled text", where="tokenizer.sample", hint="leave it out")
        if counts and self.tokenizer.end_id != 0:
            what = f"n-grams need <end> as token 0, but in this vocabulary it is token {self.tokenizer.end_id}"
            raise RecipeError(what, where="tokenizer", hint="let seqlab learn a tokenizer, or choose another model")
        context, window = getattr(body, "context", None), self.settings.window
        if context is not None and window > context:
            raise RecipeError(
                f"'task.window' {window} is longer than 'model.context' {context}", hint="make them equal"
            )
        if context is not None and self.settings.reading == "streams":
            raise RecipeError(
                "a model with a limited context cannot read endless streams", hint="set task.reading=windows"
            )

    def signature(self, split: Split) -> dict[str, Any]:
        own = self.settings
        read = {"window": own.window, "stride": self.stride if own.reading == "windows" else own.window}
        if isinstance(split, ScoredLanes):
            read["lanes"] = split.lanes
        signature = {**super().signature(split), "reading": own.reading, **read, "unknown": "scored as one token"}
        empty = getattr(split, "facts", {}).get("empty_lines", 0)
        return {**signature, "empty_lines": f"{empty:,} left out"} if empty else signature


def _left_out(empty: int, where: str) -> str:
    lines = "1 empty line is" if empty == 1 else f"{empty:,} empty lines are"
    return f"{where}: {lines} left out; with data.empty_lines=true, each counts as a lone `<end>`"
