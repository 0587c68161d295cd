"""The algorithm of byte-pair encoding: learn merges of neighbouring symbols from counted words; apply them.

Counting all pairs again after every merge would cost merges × corpus. Only the words that contain the merged
pair change, so counts are updated from those words, and a queue knows the most frequent pair. This does not use
the `tokenizers` library's trainer because it is faster (benchmarks/bpe.py), trains on words that are already
counted, in bounded memory, and lets the caller decide ties.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add
from typing import Any

WORD_END = " "  # inside symbols; shown as </w>. A space, because no word can contain one
MOST_SYMBOLS = 500_000  # of a vocabulary; enough code points for them all, even with the characters of every script

Pair = tuple[str, str]


def shown(symbol: str) -> str:
    """Write a symbol as in papers: 'e ' → 'e</w>'."""
    return symbol.replace(WORD_END, "</w>")


def split_word(word: str, word_end: str) -> list[str]:
    """'the' → t h e</w> ("glued") or t h e </w> ("apart")."""
    return [*word, WORD_END] if word_end == "apart" else [*word[:-1], word[-1] + WORD_END]


Tie = Callable[[str, int], Any]
"""Decides between equally frequent pairs: the largest `tie(symbol, number)` of the left symbol wins, then of the right
one. Symbols are numbered in the order they are made, after those that the words start from."""


def largest_name(symbol: str, number: int) -> tuple[str, bool]:
    """Prefer the lexicographically largest pair; a word that spells </w> sorts after one that ends."""
    return shown(symbol), symbol.endswith(WORD_END)


def known_first(alphabet: Iterable[str]) -> Tie:
    """Prefer the pair of symbols that were known first: those of the alphabet, then in the order they were made."""
    places = {symbol: place for place, symbol in enumerate(alphabet)}
    return lambda symbol, number: -places.get(symbol, len(places) + number)


def learn_merges(
    words: Iterable[tuple[Sequence[str], int]],
    alphabet: Iterable[str],
    room: int | None,
    min_frequency: int,
    tie: Tie = largest_name,
) -> list[Pair]:
    """Merge the most frequent pair until `room` symbols are known or no pair is frequent enough.

    Each of `words` is a list of symbols and the number of times the word occurs.
    """
    corpus = _Corpus(words)
    signs, symbols = corpus.signs, corpus.signs.symbols
    queue = _Queue(corpus, min_frequency, tie)
    known = set(alphabet)
    merges: dict[Pair, None] = {}
    room = MOST_SYMBOLS if room is None else room
    while (pair := queue.pop()) is not None:
        left, right = symbols[ord(pair[0])], symbols[ord(pair[1])]
        symbol = left + right
        if len(known) >= room and symbol not in known:
            break
        merges[left, right] = None  # a pair that returns, because its parts were made another way, keeps its rank
        known.add(symbol)
        queue.put(corpus.merge(pair, signs[symbol]))
    return list(merges)


class _Signs(dict[str, str]):
    """A character for every symbol: chr(n) for the n-th one requested.

    Frequent symbols come first, so that Python stores their words with one byte per character.
    """

    def __init__(self) -> None:
        self.symbols: list[str] = []

    def __missing__(self, symbol: str) -> str:
        self[symbol] = sign = chr(len(self.symbols))
        self.symbols.append(symbol)
        return sign


class _Corpus:
    """Words, and how often each pair of neighbours occurs in them.

    A word is a string with one sign for each symbol, and a pair is a string of two signs: `str.split` finds every
    occurrence, from left to right.
    """

    def __init__(self, words: Iterable[tuple[Sequence[str], int]]) -> None:
        self.signs = _Signs()
        self.words: list[str] = []
        self.weights: list[int] = []
        places: defaultdict[str, list[int]] = defaultdict(list)
        for index, (symbols, count) in enumerate(words):
            word = "".join(map(self.signs.__getitem__, symbols))
            self.words.append(word)
            self.weights.append(count)
            for pair in map(add, word, word[1:]):
                places[pair].append(index)
        self.places = dict(places)  # the words that contain a pair, though some may have lost it since
        self.counts = {pair: sum(map(self.weights.__getitem__, indices)) for pair, indices in places.items()}

    def merge(self, pair: str, new: str) -> list[str]:
        """Replace a pair by `new` everywhere; return the pairs that have become more frequent."""
        words, left, right = self.words, pair[0], pair[1]
        before: defaultdict[str, list[int]] = defaultdict(list)  # the words in which a sign precedes the pair
        after: defaultdict[str, list[int]] = defaultdict(list)
        doubled: list[int] = []  # the words in which the pair precedes itself
        for index in set(self.places.pop(pair)):
            parts = words[index].split(pair)
            if len(parts) == 1:
                continue
            words[index] = new.join(parts)
            if first := parts[0]:
                before[first[-1]].append(index)
            if last := parts[-1]:
                after[last[0]].append(index)
            if len(parts) > 2:
                for part in parts[1:-1]:
                    if part:
                        after[part[0]].append(index)
                        before[part[-1]].append(index)
                    else:
                        doubled.append(index)
        grown = [self._replace(sign + left, sign + new, indices) for sign, indices in before.items()]
        grown += [self._replace(right + sign, new + sign, indices) for sign, indices in after.items()]
        if doubled:
            grown.append(self._replace(right + left, new + new, doubled))
        self.counts.pop(pair, None)
        return grown

    def _replace(self, old: str, new: str, indices: list[int]) -> str:
        """Replace one pair by another in the counts, once for each time that a word is listed."""
        counts, places, total = self.counts, self.places, sum(map(self.weights.__getitem__, indices))
        if new in counts:
            counts[new] += total
            places[new] += indices
        else:
            counts[new], places[new] = total, indices
        if left := counts[old] - total:
            counts[old] = left
        else:
            del counts[old]
            places.pop(old, None)
        return new


class _Queue:
    """The pairs of a corpus, the most frequent first.

    There is a bucket of pairs for each count, and only the highest bucket is sorted. When the count of a pair grows,
    the pair moves to its new bucket at once. When it falls, the pair moves only when its turn comes. Late in training,
    thousands of pairs are equally frequent, so one bucket lasts a long time.
    """

    def __init__(self, corpus: _Corpus, min_frequency: int, tie: Tie) -> None:
        self.counts, self.ties = corpus.counts, _Ties(corpus.signs.symbols, tie)
        self.least = min_frequency
        self.buckets: dict[int, list[str]] = {}
        self.heights: list[int] = []  # a heap of −count, one for each bucket
        self.count, self.open = 0, list[tuple[Any, Any, str]]()  # the sorted bucket, winner last
        self.put(self.counts)

    def put(self, pairs: Iterable[str]) -> None:
        counts, buckets = self.counts, self.buckets
        for pair in pairs:
            count = counts.get(pair, 0)
            if count == self.count:
                insort(self.open, self._entry(pair))
            elif count in buckets:
                buckets[count].append(pair)
            elif count >= self.least:
                buckets[count] = [pair]
                heapq.heappush(self.heights, -count)

    def pop(self) -> str | None:
        while True:
            while self.heights and (not self.open or -self.heights[0] > self.count):
                self._open_highest()
            if not self.open:
                return None
            pair = self.open.pop()[2]
            if self.counts.get(pair) == self.count:
                return pair
            self.put([pair])

    def _open_highest(self) -> None:
        """Sort the highest bucket, after closing the one that was open if anything is left in it."""
        left = [pair for _, _, pair in self.open]
        self.open = []
        self.count, closed = -heapq.heappop(self.heights), self.count
        if left:
            self.buckets[closed] = left
            heapq.heappush(self.heights, -closed)
        fallen = []
        for pair in set(self.buckets.pop(self.count)):
            count = self.counts.get(pair, 0)
            if count == self.count:
                self.open.append(self._entry(pair))
            elif count < self.count:
                fallen.append(pair)
        self.put(fallen)
        self.open.sort()

    def _entry(self, pair: str) -> tuple[Any, Any, str]:
        return self.ties[pair[0]], self.ties[pair[1]], pair


class _Ties(dict[str, Any]):
    """The key that decides ties, for each sign."""

    def __init__(self, symbols: Sequence[str], tie: Tie) -> None:
        self.symbols, self.tie = symbols, tie

    def __missing__(self, sign: str) -> Any:
        self[sign] = value = self.tie(self.symbols[ord(sign)], ord(sign))
        return value


def apply_merges(symbols: Sequence[str], ranks: Mapping[Pair, int]) -> list[str]:
    """Apply merges in the order they were learnt, each one everywhere from left to right.

    Symbols form a linked list (`before`, `after`; a symbol that was merged into another is ""), and `starts` holds the
    places of the pair of each rank, so that a long word of n symbols takes about n log n steps.
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
