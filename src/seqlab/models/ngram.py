"""The n-gram model: predicts the next token from the last n − 1, by counting.

B rows · T positions · V vocabulary · K = order − 1 contexts, one of each length
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ByteSize, Field, model_validator
from torch import Tensor

from seqlab.data.storage.scratch import Scratch
from seqlab.errors import DataError
from seqlab.models import ngram_smoothing as smoothing
from seqlab.models.language_model import LanguageModel, Output, State, no_source, real_lengths
from seqlab.models.ngram_counting import END, Level, Text, count_ngrams
from seqlab.models.ngram_smoothing import Smoothing
from seqlab.models.ngram_tables import NGramTables, make_tables
from seqlab.recipe import PartSettings

UNSEEN = -1  # stands for the id of a context that was never seen
NOTHING = -2  # stands for a context that would reach beyond the beginning of the document

IN_MEMORY = 45
"""The most bytes that counting in memory takes per token and order: measured for orders 2 to 7."""
ON_DISK = 110
"""Bytes that counting on disk takes per row of a piece."""
READ = 1 << 16
"""Tokens of a text that are looked up at a time."""
ENTRY = 16
"""Bytes per n-gram in the tables: key, log p and log-backoff."""


class NGramSettings(PartSettings):
    order: int = Field(default=5, ge=1)
    """Length of the longest n-gram: the next token and the order − 1 tokens before it."""
    smoothing: Literal["counts", "add-k", "stupid-backoff", "kneser-ney", "modified-kneser-ney"] = "modified-kneser-ney"
    """How to reserve probability for unseen n-grams."""
    k: float = Field(default=1.0, gt=0)
    """Number that add-k adds to each count."""
    backoff: float = Field(default=0.4, gt=0, le=1)
    """Factor of stupid backoff for each context token dropped."""
    prune: tuple[int, ...] = ()
    """Largest count at which n-grams of order 1, 2, … are dropped; the last number holds for all higher orders.
    [0, 0, 1] drops all n-grams of order 3 or more that are seen once."""
    memory: ByteSize = Field(default=ByteSize(2_000_000_000), ge=1000)
    """Memory for counting, such as 2GB; a text that needs more is counted on disk. The tables must fit into it."""

    @model_validator(mode="after")
    def _prunable(self) -> Self:
        if self.prune[:1] not in ((), (0,)) or sorted(self.prune) != list(self.prune):
            raise ValueError("'prune' should begin with 0 (words are kept) and not decrease, such as [0, 0, 1]")
        if any(self.prune) and self.smoothing == "counts":
            raise ValueError("'prune' needs a smoothing that reserves probability for what is dropped, not counts")
        return self

    @property
    def thresholds(self) -> list[int]:
        """One threshold per order."""
        return [self.prune[min(order, len(self.prune) - 1)] if self.prune else 0 for order in range(self.order)]


@dataclass(frozen=True)
class Size:
    """The size and sparsity of the tables of one order."""

    order: int
    ngrams: int
    """Number of different n-grams in the tables; for order 1, of words in the text."""
    possible: int
    """Vⁿ"""
    in_text: int | None
    """Number of different n-grams in the counted text, before pruning; None if unknown."""
    once: int | None
    """Number of n-grams that occur only once in it; None if unknown."""
    bytes: int
    hits: float | None = None
    """Share of another text's n-grams that are in the tables; None if it has none of this length."""


class NGram(LanguageModel):
    """score(w | h) = log p(w | h) if hw was seen, else log-backoff(h) + score(w | h without its first token)

    It has no weights: `fit` counts a text and fills the tables (`ngram_smoothing`); before that, it is uniform.
    Its state holds the ids of the contexts of length 1 … K that end at a token: reading a token takes one search
    per length, and scoring one takes another. Each table ends in a dummy entry, where failed searches may end;
    backoff tables end in two, which NOTHING and UNSEEN index.
    """

    Settings = NGramSettings
    seen: Tensor
    """Which words occur in the text."""
    census: Tensor
    """(order, 2): number of n-grams in the text, and of those that occur only once; −1 if unknown."""

    def __init__(self, settings: NGramSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.vocab_size, self.order = settings, vocab_size, settings.order
        self.normalised = settings.smoothing != "stupid-backoff"
        nothing = np.zeros(0)
        self.set_tables(
            NGramTables(
                [nothing.astype(np.int64)] * (self.order - 1),
                [np.full(vocab_size, -math.log(vocab_size)), *[nothing] * (self.order - 1)],
                [np.zeros(vocab_size), *[nothing] * (self.order - 2)][: self.order - 1],
                np.zeros(vocab_size, dtype=bool),
            )
        )

    def fit(self, tokens: NDArray[np.integer[Any]], folder: Path | None = None) -> None:
        """Count one long text of documents that each end in `<end>`; the last one may be cut off.

        If the text is too large for memory, write files into `folder`, which is removed afterwards.
        """
        text, memory = Text(tokens, self.vocab_size), int(self.settings.memory)
        if len(text) * self.order * IN_MEMORY <= memory:
            self.set_tables(self._counted(text, Scratch(sys.maxsize)))
            return
        folder = folder or Path(tempfile.mkdtemp(prefix="ngrams-"))
        try:
            with Scratch(memory // ON_DISK, folder) as scratch:
                self.set_tables(self._counted(text, scratch))
        except OSError as error:
            what = f"cannot count on disk ({error.strerror or error})"
            hint = "free disk space (about 15 times the text), or raise model.memory"
            raise DataError(what, where=str(folder), hint=hint) from None

    def _counted(self, text: Text, scratch: Scratch) -> NGramTables:
        levels: list[Level] = []
        for level in count_ngrams(text, self.settings.thresholds, scratch):
            levels.append(level)
            needed = ENTRY * sum(level.kept for level in levels)
            if needed > self.settings.memory:
                order, limit = len(levels) - 1, self.settings.memory
                raise DataError(
                    f"tables up to order {order} take {needed:,} bytes, more than 'model.memory' {limit:,}",
                    hint="prune rare n-grams with model.prune=[0,0,1], or raise model.memory",
                )
        return make_tables(levels, self._smoothing(), scratch)

    def _smoothing(self) -> Smoothing:
        match self.settings.smoothing:
            case "counts":
                return smoothing.relative_frequencies()
            case "add-k":
                return smoothing.add_k(self.settings.k)
            case "stupid-backoff":
                return smoothing.stupid_backoff(self.settings.backoff)
            case "kneser-ney":
                return smoothing.kneser_ney(smoothing.one_discount)
            case "modified-kneser-ney":
                return smoothing.kneser_ney(smoothing.three_discounts)

    def set_tables(self, tables: NGramTables) -> None:
        """Use the given tables, made here or elsewhere."""
        place = next((buffer.device for buffer in self.buffers()), None)

        def keep(name: str, values: NDArray[Any], *more: float) -> None:
            kind = torch.float32 if values.dtype.kind == "f" else torch.int64
            full = np.append(values, np.array(more, dtype=values.dtype))
            self.register_buffer(name, torch.as_tensor(full, dtype=kind, device=place))

        unknown = [(-1, -1)] * self.order
        self.register_buffer("census", torch.tensor(tables.census or unknown, device=place))
        self.register_buffer("seen", torch.as_tensor(tables.seen, device=place))
        for order in range(1, self.order + 1):
            if order > 1:
                keep(f"keys_{order}", tables.keys[order - 2], np.iinfo(np.int64).max)
            keep(f"log_probability_{order}", tables.log_probability[order - 1], -math.inf)
            if order < self.order:
                keep(f"log_backoff_{order}", tables.log_backoff[order - 1], 0.0, tables.unseen)

    # ------------------------------------------------------------------ reading and scoring

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        no_source(self, source)
        # One column even for order 1, whose states are unused: an empty tensor could not be reshaped.
        contexts = torch.full((rows, max(self.order - 1, 1)), NOTHING, device=self.seen.device)
        return State({"contexts": contexts}, torch.zeros(rows, dtype=torch.long, device=self.seen.device))

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        no_source(self, source)
        """States (B, T, K): at each position, the ids of the contexts that end there, by length."""
        state = (self.start(rows=len(tokens)) if state is None else state).consume()
        before = state.rows["contexts"]
        columns = [tokens.long()]
        for order in range(2, self.order):
            # The n-gram that ends here is the shorter one that ends one position before, plus this token.
            prefix = torch.cat([before[:, order - 2, None], columns[-1]], dim=1)[:, :-1]
            place, found = self._find(order, prefix, tokens)
            column = torch.where(found, place, prefix.clamp(max=UNSEEN))
            columns.append(column.masked_fill(tokens == END, NOTHING))
        states = torch.stack(columns, dim=-1)
        lengths = real_lengths(tokens, mask)
        history = torch.cat([before[:, None], states], dim=1)
        state.rows["contexts"] = history[torch.arange(len(tokens), device=lengths.device), lengths]
        state.lengths = state.lengths + lengths
        return Output(states, state)

    def losses(self, states: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        assert not smoothing  # nothing here is trained by gradients
        score: Tensor = self.table("log_probability", 1)[targets]
        for order in range(2, self.order + 1):
            context = states[..., order - 2]
            place, found = self._find(order, context, targets)
            lower = self._lower(order, context, score)
            score = torch.where(found, self.table("log_probability", order)[place], lower)
        return -score

    def logits(self, states: Tensor) -> Tensor:
        """log p of every token: start with the shortest context, then overwrite with the children of longer ones."""
        contexts = states.reshape(-1, states.shape[-1])
        scores = self.table("log_probability", 1)[:-1].expand(len(contexts), -1).clone()
        for order in range(2, self.order + 1):
            context = contexts[:, order - 2]
            scores = self._lower(order, context[:, None], scores)
            row, child = self._children(order, context)
            word = self.table("keys", order)[child] % self.vocab_size
            scores[row, word] = self.table("log_probability", order)[child]
        return scores.reshape(*states.shape[:-1], self.vocab_size)

    def _lower(self, order: int, context: Tensor, score: Tensor) -> Tensor:
        """Return the score of an unseen n-gram, given its score in the shorter context."""
        if self.settings.smoothing == "add-k":
            # It shares the rest equally among all words, not by the lower order.
            score = torch.where(context == NOTHING, score, -math.log(self.vocab_size))
        return score + self.table("log_backoff", order - 1)[context]

    def _find(self, order: int, prefix: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
        """Find the n-gram of a context's id and a word: its place in the table, and whether it exists."""
        keys = self.table("keys", order)
        key = prefix * self.vocab_size + word  # negative, and so never found, for UNSEEN and NOTHING
        place = torch.searchsorted(keys, key.contiguous())
        return place, keys[place] == key

    def _children(self, order: int, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return all n-grams that continue the contexts (B,): the row and the id of each."""
        keys = self.table("keys", order)
        key = context * self.vocab_size
        first, stop = torch.searchsorted(keys, torch.stack([key, key + self.vocab_size]))
        many = stop - first
        row = torch.repeat_interleave(many)
        within = torch.arange(len(row), device=row.device) - (many.cumsum(0) - many)[row]
        return row, first[row] + within

    def table(self, kind: str, order: int) -> Tensor:
        """Return `keys`, `log_probability` or `log_backoff` of an order, with the dummy entries at the end."""
        table: Tensor = getattr(self, f"{kind}_{order}")
        return table

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Load tables of any size, except those whose size is the vocabulary's. On the CPU they are not copied: the
        checkpoint's tables are memory-mapped, so that only what is used is read."""
        for name, buffer in list(self.named_buffers(recurse=False)):
            saved = state_dict.get(prefix + name)
            any_size = name not in ("seen", "census") and not name.endswith("_1")
            if saved is not None and (any_size or saved.shape == buffer.shape):
                self.register_buffer(name, saved.to(buffer.device, buffer.dtype))
        super()._load_from_state_dict(state_dict, prefix, *args)

    # ------------------------------------------------------------------ its size

    @torch.no_grad()
    def sizes(self, tokens: NDArray[np.integer[Any]] | None = None) -> list[Size]:
        """Return the size and sparsity of each order, and its share of another text's n-grams."""
        hits = [None] * self.order if tokens is None else self._hits(Text(tokens, self.vocab_size))
        sizes = []
        for order, (in_text, once) in enumerate(self.census.tolist(), start=1):
            ngrams = len(self.table("keys", order)) - 1 if order > 1 else int(self.seen.sum())
            tables = [buffer for name, buffer in self.named_buffers() if name.endswith(f"_{order}")]
            sizes.append(
                Size(
                    order=order,
                    ngrams=ngrams,
                    possible=self.vocab_size**order,
                    in_text=None if in_text < 0 else in_text,
                    once=None if once < 0 else once,
                    bytes=sum(table.nbytes for table in tables),
                    hits=hits[order - 1],
                )
            )
        return sizes

    def _hits(self, text: Text) -> list[float | None]:
        found, of = torch.zeros(2, self.order, dtype=torch.long)
        state = self.start()
        for start in range(1, len(text), READ):
            row = torch.as_tensor(text.read(start - 1, min(start + READ, len(text))), device=self.seen.device)
            output = self(row[None, :-1], state)
            state, words = output.state, row[1:]
            found[0] += self.seen[words].sum().cpu()
            of[0] += len(words)
            for order in range(2, self.order + 1):
                context = output.states[0, :, order - 2]
                found[order - 1] += self._find(order, context, words)[1].sum().cpu()
                of[order - 1] += (context != NOTHING).sum().cpu()
        return [hits / all_ if all_ else None for hits, all_ in zip(found.tolist(), of.tolist(), strict=True)]
