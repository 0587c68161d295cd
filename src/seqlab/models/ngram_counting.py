"""Counts the n-grams of a text and sorts them, in memory or on disk.

A k-gram's id is its index among the sorted keys

    key(w₁ … w_k) = id(w₁ … w_{k−1}) · V + w_k,        id(w) = w,        id() = 0

so that the k-grams that continue the same (k−1)-gram, its children, are adjacent, and a key fits into 64 bits whatever
the order. `<end>` (id 0) closes every document and also precedes its first token: it is the first token of an n-gram
(ARPA's `<s>`) or the last (`</s>`), never in between.

Each order is counted from the ids of the order below at each position of the text. A text that does not fit into memory
is sorted by distribution: its positions are sent to ranges of contexts that do fit, sorted there, and their new ids are
returned. Unlike merging sorted runs, this takes one pass for any number of ranges, and assigns ids on the way.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.data.storage.scratch import Integers, Ranges, Scratch, ScratchColumn
from seqlab.errors import DataError

END = 0
LARGEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Level:
    """The k-grams of a text for one k, in the order of their keys; for k = 1, every id of the vocabulary."""

    key: ScratchColumn
    suffix: ScratchColumn
    """The id of each k-gram without its first token."""
    count: ScratchColumn
    begins: int = 0
    """Number of k-grams that begin a document: they come first, and start with `<end>`."""
    least: int = 0
    """k-grams with a smaller count are pruned."""
    kept: int = 0
    """Number of k-grams that are not pruned."""
    seen: int = 0
    """Number of k-grams in the text."""
    once: int = 0
    """Number of k-grams that occur only once."""

    def __len__(self) -> int:
        return len(self.key)

    def keeps(self, start: int, stop: int) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = self.count.read(start, stop) >= self.least
        return kept


class Text:
    """The tokens of a text, read in pieces. Position 0 is an `<end>` put before them."""

    def __init__(self, tokens: NDArray[np.integer[Any]], vocab_size: int) -> None:
        if tokens.ndim != 1 or len(tokens) == 0:
            raise DataError(f"n-grams need one row of tokens, not an array of shape {tokens.shape}", hint="give a text")
        self.tokens, self.vocab_size = tokens, vocab_size

    def __len__(self) -> int:
        return len(self.tokens) + 1

    def read(self, start: int, stop: int) -> Integers:
        first = [END] if start == 0 else []
        words = np.concatenate([first, self.tokens[max(start - 1, 0) : stop - 1]]).astype(np.int64)
        self._forget()
        return words

    def _forget(self) -> None:
        """Release the pages of a mapped file that were read; otherwise they stay in memory."""
        pages = self.tokens.base
        if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and not self.tokens.flags.writeable:
            pages.madvise(mmap.MADV_DONTNEED)


def count_ngrams(text: Text, thresholds: list[int], scratch: Scratch) -> Iterator[Level]:
    """Yield the n-grams of orders 0, 1, … of documents that each end in `<end>`; the last one may be cut off.

    `thresholds` holds one number per order, from 1 on: n-grams that do not occur more often will be pruned.
    """
    yield _nothing(scratch)
    level = _words(text, scratch)
    yield level
    ids: Text | ScratchColumn = text  # the id of the k-gram that ends at each position, or −1
    for order, threshold in enumerate(thresholds[1:], start=2):
        if len(level) * text.vocab_size > LARGEST:
            what = f"{len(level):,} n-grams of order {order - 1} times {text.vocab_size:,} tokens exceed 64-bit keys"
            raise DataError(what, hint="choose a smaller vocabulary or a lower model.order")
        positions = _Positions(text, ids, scratch, order)
        ranges = Ranges(scratch, _bounds(level.count, scratch), columns=2)
        for context, key, suffix in positions.ngrams():
            ranges.send(context, key, suffix)
        opening = 1 if order == 2 else level.begins  # contexts that begin a document: those that start with `<end>`
        level = _sorted(ranges, threshold, opening * text.vocab_size, scratch)
        ids = positions.named(ranges) if order < len(thresholds) else ids
        ranges.drop()
        yield level


@dataclass
class _Positions:
    """The k-grams that end at each position of a text, given the ids of the (k−1)-grams there."""

    text: Text
    ids: Text | ScratchColumn
    scratch: Scratch
    order: int

    def ngrams(self) -> Iterator[tuple[Integers, Integers, Integers]]:
        """Yield (context, key, suffix) of each, from the beginning of the text to its end."""
        for start, context, there in self._contexts():
            stop = start + len(context)
            context = context[there]
            yield (
                context,
                context * self.text.vocab_size + self.text.read(start, stop)[there],
                self.ids.read(start, stop)[there],
            )

    def named(self, ranges: Ranges) -> ScratchColumn:
        """Return the ids of the k-grams, which the ranges have determined."""
        named = self.scratch.column()
        named.append(np.array([-1]))
        for _, context, there in self._contexts():
            ids = np.full(len(context), -1)
            ids[there] = ranges.collect(context[there])
            named.append(ids)
        if isinstance(self.ids, ScratchColumn):
            self.ids.drop()
        return named

    def _contexts(self) -> Iterator[tuple[int, Integers, NDArray[np.bool_]]]:
        """Yield (first position, contexts of this and the following positions, mask of those that have one)."""
        for start, stop in self.scratch.pieces(len(self.text), start=1):
            context = self.ids.read(start - 1, stop - 1)
            there = context >= 0
            if self.order > 2:  # nothing looks back past the end of a document
                there &= self.text.read(start - 1, stop - 1) != END
            yield start, context, there


def _nothing(scratch: Scratch) -> Level:
    """Return the level of the empty n-gram, which every word continues."""
    level = Level(scratch.column(), scratch.column(), scratch.column(), kept=1, seen=1)
    for column in (level.key, level.suffix, level.count):
        column.append(np.zeros(1, dtype=np.int64))
    return level


def _words(text: Text, scratch: Scratch) -> Level:
    count = np.zeros(text.vocab_size, dtype=np.int64)
    for start, stop in scratch.pieces(len(text), start=1):
        words = text.read(start, stop)
        outside = np.flatnonzero((words < 0) | (words >= text.vocab_size))
        if len(outside):
            what = f"token {start + outside[0] - 1} is {words[outside[0]]}, outside a vocabulary of {text.vocab_size}"
            raise DataError(what, hint="encode the text again")
        count += np.bincount(words, minlength=text.vocab_size)
    level = Level(scratch.column(), scratch.column(), scratch.column(), kept=text.vocab_size)
    level.key.append(np.arange(text.vocab_size))
    level.suffix.append(np.zeros_like(count))
    level.count.append(count)
    return replace(level, seen=int((count > 0).sum()), once=int((count == 1).sum()))


def _bounds(count: ScratchColumn, scratch: Scratch) -> Integers:
    """Return bounds of ranges of contexts. Without its last context, a range takes up to half of the memory."""
    bounds, before, half = [np.zeros(1, dtype=np.int64)], 0, max(scratch.rows // 2, 1)
    for start, stop in scratch.pieces(len(count)):
        running = before + np.cumsum(count.read(start, stop))
        bounds.append(start + 1 + np.flatnonzero(np.diff(running // half, prepend=before // half)))
        before = int(running[-1])
    return np.unique(np.concatenate([*bounds, [max(len(count), 1)]]))


def _sorted(ranges: Ranges, threshold: int, first_within: int, scratch: Scratch) -> Level:
    """Return the different n-grams of the ranges, and tell the ranges the id of each of their rows.

    Keys below `first_within` begin a document.
    """
    level = Level(scratch.column(), scratch.column(), scratch.column(), least=threshold + 1)
    begins = kept = once = 0
    for place, _, _ in ranges:
        before = len(level)
        groups = _groups(ranges, place, before)
        level.key.append(groups.key)
        level.suffix.append(groups.suffix)
        level.count.append(groups.count)
        begins += int(np.searchsorted(groups.key, first_within))
        kept += int((groups.count > threshold).sum())
        once += int((groups.count == 1).sum())
    return replace(level, begins=begins, kept=kept, seen=len(level), once=once)


@dataclass(frozen=True)
class _Groups:
    """Sorted unique keys with their columns, and the index of each row's key."""

    key: Integers
    suffix: Integers
    count: Integers
    member: Integers


def _groups(ranges: Ranges, place: int, before: int) -> _Groups:
    """Return the n-grams of a range and answer its rows with their ids; `before` n-grams precede the range."""
    if ranges.size(place) <= ranges.scratch.rows:
        groups = _grouped(*next(ranges.rows(place), np.zeros((2, 0), dtype=np.int64)))
        ranges.answer(place, before + groups.member)
        return groups
    # The last context alone has too many rows for memory, but no more children than there are words.
    nothing = np.zeros(0, dtype=np.int64)
    parts = [replace(_grouped(key, suffix), member=nothing) for key, suffix in ranges.rows(place)]
    key, suffix, count = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("key", "suffix", "count")
    )
    groups = _grouped(key, suffix)
    for keys, _ in ranges.rows(place):
        ranges.answer(place, before + np.searchsorted(groups.key, keys))
    return replace(groups, count=np.bincount(groups.member, count, len(groups.key)).astype(np.int64))


def _grouped(key: Integers, suffix: Integers) -> _Groups:
    """Like `np.unique`, whose stable sort takes more than twice as long; here, rows with equal keys are equal."""
    order = np.argsort(key)
    key = key[order]
    new = np.append(True, key[1:] != key[:-1])[: len(key)]
    first = np.flatnonzero(new)
    member = np.empty_like(order)
    member[order] = np.cumsum(new) - 1
    return _Groups(key[first], suffix[order[first]], np.diff(first, append=len(key)), member)
