"""Builds the tables of an n-gram model from sorted n-grams, order by order, in memory or on disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from seqlab.data.storage.scratch import Integers, Numbers, Ranges, Scratch, ScratchColumn
from seqlab.models.ngram_counting import Level
from seqlab.models.ngram_smoothing import Children, Estimate, Flags, Smoothing


@dataclass(frozen=True)
class NGramTables:
    """log p(w | h) of each n-gram hw and the log-backoff of each context h, by order; natural logarithms.

    score(w | h) = log p(w | h) where hw is in the table, else log-backoff(h) + score(w | h')
    """

    keys: list[Integers]
    """For orders 2 and up, sorted: the keys of `ngram_counting`, with ids counted among the n-grams kept."""
    log_probability: list[Numbers]
    log_backoff: list[Numbers]
    """For all orders but the highest: their n-grams are the contexts."""
    seen: Flags
    """Which words occur in the text."""
    unseen: float = 0.0
    """The log-backoff of a context that was never seen."""
    census: list[tuple[int, int]] = field(default_factory=list)
    """For each order, the number of n-grams in the text and of those that occur only once. Empty if unknown."""


def make_tables(levels: list[Level], smoothing: Smoothing, scratch: Scratch) -> NGramTables:
    """Make tables from the n-grams of orders 0, 1, …, which are consumed."""
    orders: list[_Order] = []
    vocab_size, seen = len(levels[1]), levels[1].count.read() > 0
    lower = scratch.column(np.float64)
    lower.append(np.array([1 / vocab_size]))
    for number in range(1, len(levels)):
        longer = levels[number + 1] if number + 1 < len(levels) else None
        order = _Order(levels[number - 1], levels[number], longer, smoothing, scratch, vocab_size)
        order.smooth(lower)
        lower.drop()
        lower = order.probability
        orders.append(order)
    return NGramTables(
        [order.key.read() for order in orders[1:]],
        [order.log_probability.read() for order in orders],
        [order.log_backoff.read() for order in orders[1:]],
        seen,
        math.log(smoothing.unseen) if smoothing.unseen else -math.inf,
        [(level.seen, level.once) for level in levels[1:]],
    )


@dataclass(frozen=True)
class _Piece:
    """The n-grams in [start, stop), which are all that continue the contexts in [first, last)."""

    start: int
    stop: int
    first: int
    last: int
    key: Integers


@dataclass
class _Order:
    """Smooths one order, whose contexts are the order below, and writes columns for the tables.

    Ids here count all n-grams. In the tables, which hold only those that are kept, they are renumbered.
    """

    contexts: Level
    level: Level
    longer: Level | None
    smoothing: Smoothing
    scratch: Scratch
    vocab_size: int

    def __post_init__(self) -> None:
        self.key = self.scratch.column()
        self.log_probability = self.scratch.column(np.float32)
        self.log_backoff = self.scratch.column(np.float32)
        self.probability = self.scratch.column(np.float64)  # of all n-grams, by their ids, for the order above this

    def smooth(self, lower: ScratchColumn) -> None:
        """Fill the columns, given the probabilities of the order below."""
        counts = self._counts()
        histogram = self._histogram(counts)
        found = self._looked_up(lower)
        named = 0  # contexts kept so far
        for piece in self._pieces():
            kept = self.level.keeps(piece.start, piece.stop)
            contexts_kept = self.contexts.keeps(piece.first, piece.last)
            prefix, word = np.divmod(piece.key, self.vocab_size)
            children = Children(
                contexts=piece.last - piece.first,
                prefix=prefix - piece.first,
                count=counts.read(piece.start, piece.stop),
                kept=kept,
                lower=found.collect(self.level.suffix.read(piece.start, piece.stop)[kept]),
                vocab_size=self.vocab_size,
            )
            names = named + np.cumsum(contexts_kept) - 1
            named += int(contexts_kept.sum())
            self.key.append(names[children.prefix[kept]] * self.vocab_size + word[kept])
            self._append(self.smoothing.estimate(children, histogram), kept, contexts_kept)
        found.drop()
        for column in (self.contexts.key, self.contexts.suffix, self.contexts.count, counts):
            if column is not self.level.count:  # the order above still needs it
                column.drop()

    def _append(self, estimate: Estimate, kept: Flags, contexts_kept: Flags) -> None:
        with np.errstate(divide="ignore"):  # log 0 = −∞ for words that were never seen
            self.log_probability.append(np.log(estimate.probability))
            self.log_backoff.append(np.log(estimate.backoff[contexts_kept]))
        if self.longer is not None:
            probability = np.full(len(kept), np.nan)  # NaN for pruned n-grams, which no kept one looks up
            probability[kept] = estimate.probability
            self.probability.append(probability)

    def _counts(self) -> ScratchColumn:
        """Return how often each n-gram was seen or, for Kneser-Ney's a, how many different tokens came before it."""
        if not self.smoothing.company or self.longer is None:
            return self.level.count
        before = Ranges(self.scratch, self.scratch.even_bounds(len(self.level)))
        for start, stop in self.scratch.pieces(len(self.longer)):
            before.send(self.longer.suffix.read(start, stop))
        counts = self.scratch.column()
        for place, first, last in before:
            count = np.zeros(last - first, dtype=np.int64)
            for (suffix,) in before.rows(place):
                count += np.bincount(suffix - first, minlength=last - first)
            begins = min(max(self.level.begins - first, 0), last - first)
            count[:begins] = self.level.count.read(first, first + begins)
            counts.append(count)
        before.drop()
        return counts

    def _histogram(self, counts: ScratchColumn) -> Integers:
        """Return the number of n-grams with a count of 0, 1, 2, 3, 4, and 5 or more."""
        total = np.zeros(6, dtype=np.int64)
        for start, stop in self.scratch.pieces(len(counts)):
            total += np.bincount(np.minimum(counts.read(start, stop), 5), minlength=6)
        return total

    def _looked_up(self, lower: ScratchColumn) -> Ranges:
        """Look up, for each n-gram that is kept, the probability of the n-gram without its first token."""
        found = Ranges(self.scratch, self.scratch.even_bounds(len(lower)), answers=np.float64)
        for start, stop in self.scratch.pieces(len(self.level)):
            found.send(self.level.suffix.read(start, stop)[self.level.keeps(start, stop)])
        for place, first, last in found:
            probability = lower.read(first, last)
            for (suffix,) in found.rows(place):
                found.answer(place, probability[suffix - first])
        return found

    def _pieces(self) -> Iterator[_Piece]:
        """Yield all n-grams and contexts in pieces that fit into memory, cut between contexts."""
        start = first = 0
        while start < len(self.level):
            stop = min(start + self.scratch.rows, len(self.level))
            key = self.level.key.read(start, stop)
            if stop < len(self.level):
                last = int(key[-1]) // self.vocab_size  # its children may continue, so leave it to the next piece
                if key[0] >= last * self.vocab_size:  # unless the piece holds nothing else: at most V children
                    last += 1
                    key = self.level.key.read(start, min(start + self.vocab_size, len(self.level)))
                key = key[: np.searchsorted(key, last * self.vocab_size)]
            else:
                last = int(key[-1]) // self.vocab_size + 1
            yield _Piece(start, start + len(key), first, last, key)
            start, first = start + len(key), last
        for after, last in self.scratch.pieces(len(self.contexts), start=first):  # contexts that nothing continues
            yield _Piece(start, start, after, last, np.zeros(0, dtype=np.int64))
