"""The n-gram model: the next token given the last n − 1, from counts.

B rows · T positions · V vocabulary · K = order − 1 contexts, one of each length
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from seqlab.errors import DataError
from seqlab.models import ngram_smoothing as smoothing
from seqlab.models.language_model import LanguageModel, Output, State, no_source, real_lengths
from seqlab.models.ngram_smoothing import END, Integers, Tables
from seqlab.recipe import PartSettings

UNSEEN = -1  # instead of a context's id: it was never seen
NOTHING = -2  # the document does not reach back so far

Smoothing = Literal["counts", "add-k", "stupid-backoff", "kneser-ney", "modified-kneser-ney"]


class NGramSettings(PartSettings):
    order: int = Field(default=5, ge=1)
    """Tokens in the longest n-gram: the next one and the order − 1 before it."""
    smoothing: Smoothing = "modified-kneser-ney"
    k: float = Field(default=1.0, gt=0)
    """What add-k adds to each count."""
    backoff: float = Field(default=0.4, gt=0, le=1)
    """What stupid backoff multiplies with for each token that it forgets."""


@dataclass(frozen=True)
class Sizes:
    """How large the tables are, and how sparse; lists have one entry for each order."""

    ngrams: list[int]
    """Different n-grams seen."""
    seen: list[float]
    """Their share of the Vⁿ possible ones."""
    bytes: int
    """Memory that the tables take."""
    unseen: list[float] | None = None
    """The share of the n-grams of another text that were never seen; NaN where it has none of that length."""


class NGram(LanguageModel):
    """score(w | h) = log p(w | h) where hw was seen, else log-backoff(h) + score(w | h less its first token)

    It has no weights: `fit` counts a text and fills the tables (`ngram_smoothing`); before, it is uniform.
    What it carries from token to token are the ids of the contexts of length 1 … K that end there: reading a
    token is a search for each length, and scoring one is another. Each table ends in an entry that is no
    n-gram's, where a search in vain may end; those of backoffs end in two, which NOTHING and UNSEEN index.
    """

    Settings = NGramSettings
    seen: Tensor

    def __init__(self, settings: NGramSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.vocab_size, self.order = settings, vocab_size, settings.order
        nothing = np.zeros(0)
        self.set_tables(
            [nothing.astype(np.int64)] * (self.order - 1),
            Tables(
                [np.full(vocab_size, -math.log(vocab_size)), *[nothing] * (self.order - 1)],
                [np.zeros(vocab_size), *[nothing] * (self.order - 2)][: self.order - 1],
            ),
            np.zeros(vocab_size, dtype=bool),
        )

    def fit(self, tokens: NDArray[np.integer[Any]]) -> None:
        """Learn from one long text of documents that each end in `<end>`; the last may be cut."""
        text = self._checked(tokens)
        levels = smoothing.count_ngrams(text, self.order, self.vocab_size)
        match self.settings.smoothing:
            case "counts":
                tables = smoothing.relative_frequencies(levels)
            case "add-k":
                tables = smoothing.add_k(levels, self.settings.k)
            case "stupid-backoff":
                tables = smoothing.stupid_backoff(levels, self.settings.backoff)
            case "kneser-ney":
                tables = smoothing.kneser_ney(levels, smoothing.one_discount)
            case "modified-kneser-ney":
                tables = smoothing.kneser_ney(levels, smoothing.three_discounts)
        keys = [level.prefix * self.vocab_size + level.word for level in levels[1:]]
        self.set_tables(keys, tables, levels[0].count > 0)

    def set_tables(self, keys: Sequence[Integers], tables: Tables, seen: NDArray[np.bool_]) -> None:
        """Use tables made elsewhere: sorted keys of the orders from 2 on, and which words the text had."""
        place = next((buffer.device for buffer in self.buffers()), None)

        def keep(name: str, values: NDArray[Any], *more: float) -> None:
            kind = torch.float32 if values.dtype.kind == "f" else torch.int64
            full = np.append(values, np.array(more, dtype=values.dtype))
            self.register_buffer(name, torch.as_tensor(full, dtype=kind, device=place))

        self.register_buffer("seen", torch.as_tensor(seen, device=place))
        for order in range(1, self.order + 1):
            if order > 1:
                keep(f"keys_{order}", keys[order - 2], np.iinfo(np.int64).max)
            keep(f"log_probability_{order}", tables.log_probability[order - 1], -math.inf)
            if order < self.order:
                keep(f"log_backoff_{order}", tables.log_backoff[order - 1], 0.0, tables.unseen)

    # ------------------------------------------------------------------ reading and scoring

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        no_source(self, source)
        # A column even for order 1, whose states say nothing: an empty one cannot be reshaped.
        contexts = torch.full((rows, max(self.order - 1, 1)), NOTHING, device=self.seen.device)
        return State({"contexts": contexts}, torch.zeros(rows, dtype=torch.long, device=self.seen.device))

    def forward(self, tokens: Tensor, state: State | None = None, mask: Tensor | None = None) -> Output:
        """States (B, T, K): at each position the ids of the contexts that end there, by length."""
        state = (self.start(rows=len(tokens)) if state is None else state).consume()
        before = state.rows["contexts"]
        columns = [tokens.long()]
        for order in range(2, self.order):
            # The n-gram that ends here is the shorter one that ended one position before, and this token.
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

    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        score: Tensor = self.table("log_probability", 1)[targets]
        for order in range(2, self.order + 1):
            context = states[..., order - 2]
            place, found = self._find(order, context, targets)
            lower = self._lower(order, context, score)
            score = torch.where(found, self.table("log_probability", order)[place], lower)
        return -score

    def logits(self, states: Tensor) -> Tensor:
        """log p of every token: the shortest context's, then each longer one's children written over them."""
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
        """The score of an n-gram that was not seen, from the score that the shorter context gave."""
        if self.settings.smoothing == "add-k":
            # It leaves what is over to all words alike, not to the lower order.
            score = torch.where(context == NOTHING, score, -math.log(self.vocab_size))
        return score + self.table("log_backoff", order - 1)[context]

    def _find(self, order: int, prefix: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
        """Where the n-gram of a context's id and a word is in its table, and whether it is there."""
        keys = self.table("keys", order)
        key = prefix * self.vocab_size + word  # negative, and so not there, for UNSEEN and NOTHING
        place = torch.searchsorted(keys, key.contiguous())
        return place, keys[place] == key

    def _children(self, order: int, context: Tensor) -> tuple[Tensor, Tensor]:
        """All n-grams that continue the contexts (B,): the row and the n-gram's id of each."""
        keys = self.table("keys", order)
        key = context * self.vocab_size
        first, stop = torch.searchsorted(keys, torch.stack([key, key + self.vocab_size]))
        many = stop - first
        row = torch.repeat_interleave(many)
        within = torch.arange(len(row), device=row.device) - (many.cumsum(0) - many)[row]
        return row, first[row] + within

    def table(self, kind: str, order: int) -> Tensor:
        """`keys`, `log_probability` or `log_backoff` of an order, with what is no n-gram's at the end."""
        table: Tensor = getattr(self, f"{kind}_{order}")
        return table

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name, buffer in list(self.named_buffers(recurse=False)):
            saved = state_dict.get(prefix + name)
            any_size = name != "seen" and not name.endswith("_1")  # those are as large as the vocabulary
            if saved is not None and any_size:
                self.register_buffer(name, torch.empty(saved.shape, dtype=buffer.dtype, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *args)

    # ------------------------------------------------------------------ its size

    def sizes(self, tokens: NDArray[np.integer[Any]] | None = None) -> Sizes:
        """How large and how sparse it is, and how much of another text it has not seen."""
        ngrams = [int(self.seen.sum()), *(len(self.table("keys", k)) - 1 for k in range(2, self.order + 1))]
        shares = [count / self.vocab_size**order for order, count in enumerate(ngrams, start=1)]
        total = sum(buffer.nbytes for buffer in self.buffers())
        return Sizes(ngrams, shares, total, None if tokens is None else self._unseen(self._checked(tokens)))

    def _unseen(self, tokens: Integers) -> list[float]:
        words = torch.as_tensor(tokens, device=self.seen.device)
        begun = torch.cat([words.new_tensor([END]), words])[None, :-1]
        contexts = self(begun).states[0]
        shares = [1 - self.seen[words].float().mean().item()]
        for order in range(2, self.order + 1):
            context = contexts[:, order - 2]
            _, found = self._find(order, context, words)
            shares.append(1 - found[context != NOTHING].float().mean().item())
        return shares

    def _checked(self, tokens: NDArray[np.integer[Any]]) -> Integers:
        if tokens.ndim != 1 or len(tokens) == 0:
            raise DataError(f"n-grams are counted in one row of tokens, not in {tokens.shape}", hint="give it a text")
        outside = np.flatnonzero((tokens < 0) | (tokens >= self.vocab_size))
        if len(outside):
            where, token = outside[0], tokens[outside[0]]
            raise DataError(
                f"token {where} is {token}, outside a vocabulary of {self.vocab_size}", hint="encode it anew"
            )
        return tokens.astype(np.int64)
