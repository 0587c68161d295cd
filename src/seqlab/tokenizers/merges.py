"""The algorithm of byte-pair encoding: learn merges of neighbouring symbols from counted words; apply them.

Counting all pairs again after every merge would cost merges × corpus. Only the words that contain the merged
pair change, so counts are kept up to date from those words, and a heap knows the most frequent pair.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

WORD_END = " "  # inside symbols, where people read </w>: a blank, because no word can contain one

Pair = tuple[str, str]
Entry = tuple[int, tuple[int, ...], tuple[int, ...], Pair]


def shown(symbol: str) -> str:
    """A symbol as it is written in papers: 'e ' → 'e</w>'."""
    return symbol.replace(WORD_END, "</w>")


def split_word(word: str, word_end: str) -> list[str]:
    """'the' → t h e</w> ("glued") or t h e </w> ("apart")."""
    return [*word, WORD_END] if word_end == "apart" else [*word[:-1], word[-1] + WORD_END]


def learn_merges(
    words: Iterable[tuple[Sequence[str], int]], alphabet: Iterable[str], room: int | None, min_frequency: int
) -> list[Pair]:
    """Merge the most frequent pair until `room` symbols are known or no pair is frequent enough.

    `words` are symbols and how often the word occurs. Ties go to the lexicographically largest pair.
    """
    corpus = [(list(symbols), count) for symbols, count in words]
    pairs = _PairCounts(corpus)
    known = set(alphabet)
    merges: dict[Pair, None] = {}
    while (best := pairs.most_frequent()) is not None:
        pair, count = best
        symbol = "".join(pair)
        full = room is not None and len(known) >= room and symbol not in known
        if count < min_frequency or full:
            break
        merges[pair] = None  # a pair that comes back, because its parts were made another way, keeps its rank
        known.add(symbol)
        pairs.merge(pair)
    return list(merges)


class _PairCounts:
    """How often each pair of neighbours occurs in the corpus, and in which words."""

    def __init__(self, corpus: list[tuple[list[str], int]]) -> None:
        self.corpus = corpus
        self.counts: Counter[Pair] = Counter()
        self.places: defaultdict[Pair, set[int]] = defaultdict(set)  # may name words that no longer have the pair
        for index, (symbols, count) in enumerate(corpus):
            for pair in pairwise(symbols):
                self.counts[pair] += count
                self.places[pair].add(index)
        self.order: dict[str, tuple[int, ...]] = {}
        self.heap = [self._entry(pair) for pair in self.counts]
        heapq.heapify(self.heap)

    def most_frequent(self) -> tuple[Pair, int] | None:
        """Entries whose count has changed are thrown away; one that fell is put back where it belongs."""
        while self.heap:
            negative_count, _, _, pair = heapq.heappop(self.heap)
            count = self.counts[pair]
            if count == -negative_count:
                return pair, count
            if 0 < count < -negative_count:
                heapq.heappush(self.heap, self._entry(pair))
        return None

    def merge(self, pair: Pair) -> None:
        changes: Counter[Pair] = Counter()
        for index in self.places.pop(pair):
            symbols, count = self.corpus[index]
            for old in pairwise(symbols):
                changes[old] -= count
            _merge_in_place(symbols, pair)
            for new in pairwise(symbols):
                changes[new] += count
                self.places[new].add(index)
        for changed, change in changes.items():
            self.counts[changed] += change
            if change > 0:
                heapq.heappush(self.heap, self._entry(changed))
            elif self.counts[changed] == 0:
                del self.counts[changed]
                self.places.pop(changed, None)

    def _entry(self, pair: Pair) -> Entry:
        """Sorts by falling count, then by falling order of the pair's symbols."""
        return -self.counts[pair], self._falling(pair[0]), self._falling(pair[1]), pair

    def _falling(self, symbol: str) -> tuple[int, ...]:
        """Compares the other way round than the symbol; the last 1 makes 'ab' come after 'abc'."""
        if symbol not in self.order:
            self.order[symbol] = (*(-ord(character) for character in shown(symbol)), 1)
        return self.order[symbol]


def _merge_in_place(symbols: list[str], pair: Pair) -> None:
    """Every occurrence, from left to right."""
    left, right = pair
    index = 0
    while index < len(symbols) - 1:
        if symbols[index] == left and symbols[index + 1] == right:
            symbols[index : index + 2] = [left + right]
        index += 1


def apply_merges(symbols: Sequence[str], ranks: Mapping[Pair, int]) -> list[str]:
    """Of all merges that apply, the one learnt first is made everywhere, from left to right; then the next.

    Symbols are a linked list (`before`, `after`; a symbol that was swallowed is ""), and `starts` remembers
    where the pair of each rank stands, so that a long word of n symbols takes about n log n steps.
    """
    parts = list(symbols)
    before, after = list(range(-1, len(parts) - 1)), list(range(1, len(parts) + 1))
    starts: dict[int, list[int]] = {}
    queue: list[int] = []

    def notice(index: int) -> None:
        if index < 0 or after[index] == len(parts):
            return
        rank = ranks.get((parts[index], parts[after[index]]))
        if rank is not None:
            if rank not in starts:
                heapq.heappush(queue, rank)
            starts.setdefault(rank, []).append(index)

    for index in range(len(parts)):
        notice(index)
    while queue:
        rank = heapq.heappop(queue)
        for index in sorted(starts.pop(rank)):
            following = after[index]
            if not parts[index] or following == len(parts) or ranks.get((parts[index], parts[following])) != rank:
                continue  # an earlier merge took one of the two
            parts[index] += parts[following]
            parts[following] = ""
            after[index] = after[following]
            if after[index] < len(parts):
                before[after[index]] = index
            notice(before[index])
            notice(index)
    return [part for part in parts if part]
