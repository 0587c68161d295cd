"""The algorithm of WordPiece: merge the pair with the strongest association, not the most frequent pair.

    score(a, b) = count(ab) / (count(a) · count(b)),   proportional to Pr(ab) / (Pr(a) Pr(b)):

per occurrence, this merge raises the likelihood of the text under a unigram model the most.

Schuster and Nakajima 2012, "Japanese and Korean voice search", https://doi.org/10.1109/ICASSP.2012.6289079
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

CONTINUES = "##"
"""The prefix of a piece that does not begin its word."""

EXACT = 2.0**51
"""Ratios p/q and r/s differ by at least 1/(q·s): one part in p·s or more, which is two units in the last place here."""
ROUNDING = 1e-15
"""More than twice the error of a product and a quotient of doubles: 4 · 2⁻⁵³."""

Pair = tuple[int, int]
Word = tuple[list[int], int]


def split_word(word: str) -> list[str]:
    """'the' → t ##h ##e"""
    return [word[0], *(CONTINUES + character for character in word[1:])]


def joined(left: str, right: str) -> str:
    """un + ##able → unable, ##a + ##ble → ##able"""
    return left + right.removeprefix(CONTINUES)


def learn_pieces(
    words: Iterable[tuple[Sequence[str], int]], alphabet: Sequence[str], room: int | None, min_frequency: int | None
) -> list[str]:
    """Return the alphabet, then the merged pieces in the order they are made: `room` in total, or all.

    Each of `words` is a list of symbols of the alphabet and the number of times the word occurs. Pairs seen less often
    than `min_frequency` are not merged; without it, see `_falling`. If scores are equal, the more frequent pair wins,
    then the smaller one in code points.
    """
    pieces = list(alphabet)
    ids = {piece: index for index, piece in enumerate(pieces)}
    pairs = _Pairs([([ids[symbol] for symbol in symbols], count) for symbols, count in words], len(pieces))
    for threshold in [min_frequency] if min_frequency is not None else _falling(max(pairs.counts.values(), default=0)):
        pairs.choose_from(threshold)
        while (room is None or len(pieces) < room) and (best := pairs.best(pieces)) is not None:
            piece = joined(pieces[best[0]], pieces[best[1]])
            if piece not in ids:  # the same piece may already be made of other parts
                ids[piece] = len(pieces)
                pieces.append(piece)
            pairs.merge(best, ids[piece])
    return pieces


def _falling(highest: int) -> Iterator[int]:
    """Yield thresholds: half the highest count, then half of the last one whenever no pair is left, down to 2.

    The ratio favours rare pairs: with a threshold of 2, it fills a small vocabulary with names that occur twice. The
    best fixed threshold depends on the length of the text and on `room`. A falling one needs no choice, and works
    better than the best fixed one (docs/tokenizers.md).
    """
    while highest > 3:
        highest //= 2
        yield highest
    yield 2


class _Pairs:
    """How often each symbol and each pair of neighbours occurs.

    A merge makes its two parts rarer, which raises the score of every other pair that contains them: thousands, for
    a letter. A heap would need an update for each. So scores are not stored: the counts are kept in arrays, and all
    scores are recomputed for each merge, in about 0.1 ms for the pairs that are frequent enough.
    """

    def __init__(self, corpus: list[Word], symbols: int) -> None:
        self.corpus = corpus
        self.symbol_counts = np.zeros(max(1, 2 * symbols))
        self.counts: Counter[Pair] = Counter()
        self.places: defaultdict[Pair, set[int]] = defaultdict(set)  # may name words that no longer have the pair
        for index, (word, count) in enumerate(corpus):
            np.add.at(self.symbol_counts, word, count)
            for pair in pairwise(word):
                self.counts[pair] += count
                self.places[pair].add(index)
        self.table = _Table(0)

    def choose_from(self, min_frequency: int) -> None:
        """From now on, merge only pairs seen at least this often."""
        self.table = _Table(min_frequency)
        for pair, count in self.counts.items():
            self.table.set(pair, count)

    def best(self, pieces: Sequence[str]) -> Pair | None:
        found = self.table.highest(self.symbol_counts)
        return min(found, key=lambda pair: (-self.counts[pair], pieces[pair[0]], pieces[pair[1]]), default=None)

    def merge(self, pair: Pair, made: int) -> None:
        if made >= len(self.symbol_counts):
            self.symbol_counts = np.concatenate([self.symbol_counts, np.zeros_like(self.symbol_counts)])
        changes: Counter[Pair] = Counter()
        merged = 0
        for index in self.places.pop(pair):
            word, count = self.corpus[index]
            before = len(word)
            for old in pairwise(word):
                changes[old] -= count
            _merge_in_place(word, pair, made)
            for new in pairwise(word):
                changes[new] += count
                self.places[new].add(index)
            merged += (before - len(word)) * count
        np.add.at(self.symbol_counts, [*pair, made], [-merged, -merged, merged])
        for changed, change in changes.items():
            if change:
                self.counts[changed] += change
                self.table.set(changed, self.counts[changed])
                if not self.counts[changed]:
                    del self.counts[changed]
                    self.places.pop(changed, None)


class _Table:
    """The pairs that are frequent enough, in parallel arrays."""

    def __init__(self, min_frequency: int) -> None:
        self.min_frequency = min_frequency
        self.pairs: list[Pair] = []
        self.slots: dict[Pair, int] = {}
        self.parts = np.zeros((2, 1024), dtype=np.int64)
        self.counts = np.zeros(1024)

    def set(self, pair: Pair, count: int) -> None:
        slot = self.slots.get(pair)
        if count >= self.min_frequency:
            self._put(pair, count, len(self.pairs) if slot is None else slot)
        elif slot is not None:
            del self.slots[pair]
            last = self.pairs.pop()
            if last != pair:  # the last one fills the gap
                self._put(last, int(self.counts[len(self.pairs)]), slot)

    def _put(self, pair: Pair, count: int, slot: int) -> None:
        if slot == len(self.counts):
            self.parts = np.concatenate([self.parts, np.zeros_like(self.parts)], axis=1)
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
        if slot == len(self.pairs):
            self.pairs.append(pair)
        self.pairs[slot], self.slots[pair] = pair, slot
        self.parts[:, slot], self.counts[slot] = pair, count

    def highest(self, symbol_counts: NDArray[np.float64]) -> list[Pair]:
        """Return the pairs with exactly the highest score.

        Below `EXACT`, different ratios have different quotients, and equal ones the same: products of counts are
        integers of 53 bits, and division is rounded correctly. Beyond that, with pairs of symbols seen millions of
        times, the candidates are compared as exact fractions.
        """
        size = len(self.pairs)
        if not size:
            return []
        left, right = symbol_counts[self.parts[:, :size]]
        products = left * right
        scores = self.counts[:size] / products
        highest = scores.max()
        near = np.flatnonzero(scores >= highest * (1 - ROUNDING))
        if self.counts[near].max() * products[near].max() < EXACT:
            return [self.pairs[slot] for slot in near[scores[near] == highest]]
        exact = {slot: Fraction(int(self.counts[slot]), int(left[slot]) * int(right[slot])) for slot in near.tolist()}
        best = max(exact.values())
        return [self.pairs[slot] for slot, score in exact.items() if score == best]


def _merge_in_place(word: list[int], pair: Pair, made: int) -> None:
    """Merge every occurrence, from left to right."""
    left, right = pair
    index = 0
    while index < len(word) - 1:
        if word[index] == left and word[index + 1] == right:
            word[index : index + 2] = [made]
        index += 1
