"""From a text to the tables of an n-gram model: counting, and ways to give to what was not seen.

A k-gram's id is its place among the sorted keys

    key(w₁ … w_k) = id(w₁ … w_{k−1}) · V + w_k,        id(w) = w,        id() = 0

so that the k-grams which continue one (k−1)-gram, its children, stand side by side. `<end>` (id 0) closes
every document and is also what its first token follows: it stands first in an n-gram (ARPA's `<s>`) or last
(`</s>`), never inside. In the formulas h is a context, h' the same without its first token, c a count and V
the size of the vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

END = 0


@dataclass(frozen=True)
class Counts:
    """The k-grams of a text for one k, in the order of their keys; for k = 1, every id of the vocabulary."""

    prefix: Integers
    """The id of each k-gram without its last token."""
    word: Integers
    """Its last token."""
    suffix: Integers
    """The id of each k-gram without its first token."""
    count: Integers
    begins: NDArray[np.bool_]
    """Whether it begins a document, that is, with `<end>`."""

    def per_context(self, values: Integers | Floats, contexts: int) -> Floats:
        """Values of k-grams summed over the children of each of `contexts` contexts."""
        return np.bincount(self.prefix, values, contexts).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Tables:
    """log p(w | h) of each n-gram hw and the log-backoff of each context h, by order; natural logarithms.

    score(w | h) = log p(w | h) where hw was seen, else log-backoff(h) + score(w | h')
    """

    log_probability: list[Floats]
    log_backoff: list[Floats]
    """Of the orders below the highest: what they hold are the contexts."""
    unseen: float = 0.0
    """The log-backoff of a context that was never seen."""


def count_ngrams(tokens: Integers, order: int, vocab_size: int) -> list[Counts]:
    """All n-grams up to `order` of documents that each end in `<end>`; the last may be cut."""
    text = np.concatenate([[END], tokens])
    ids = context = text  # at each position: the k-gram that ends there; −1 where there is none
    nothing = np.zeros(vocab_size, dtype=np.int64)
    words = np.bincount(tokens, minlength=vocab_size)
    levels = [Counts(nothing, np.arange(vocab_size), nothing, words, nothing > 0)]
    for _ in range(2, order + 1):
        ends = np.flatnonzero(context[:-1] >= 0) + 1
        keys, first, inverse, count = np.unique(
            context[ends - 1] * vocab_size + text[ends],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        prefix, word = np.divmod(keys, vocab_size)
        begins = levels[-1].begins[prefix] if len(levels) > 1 else prefix == END
        levels.append(Counts(prefix, word, ids[ends[first]], count, begins))
        ids = np.full(len(text), -1)
        ids[ends] = inverse
        context = np.where(text == END, -1, ids)  # nothing looks back past the end of a document
    return levels


# ---------------------------------------------------------------------- without a lower order


def relative_frequencies(levels: list[Counts]) -> Tables:
    """p(w | h) = c(hw) / c(h): 0 for what was not seen; after an unseen context undefined, here 0 too."""
    return Tables(_frequencies(levels), [np.full(len(level.count), -np.inf) for level in levels[:-1]], -np.inf)


def add_k(levels: list[Counts], k: float) -> Tables:
    """p(w | h) = (c(hw) + k) / (c(h) + kV)

    which gives every word the share kV / (c(h) + kV) of the uniform distribution: that is the backoff here.
    """
    added = k * len(levels[0].count)
    log_probability, log_backoff, contexts = [], [], 1
    for level in levels:
        total = level.per_context(level.count, contexts)
        log_probability.append(np.log((level.count + k) / (total[level.prefix] + added)))
        log_backoff.append(np.log(added / (total + added)))
        contexts = len(level.count)
    return Tables(log_probability, log_backoff[1:])


# ---------------------------------------------------------------------- with a lower order


def stupid_backoff(levels: list[Counts], backoff: float) -> Tables:
    """S(w | h) = c(hw) / c(h) where hw was seen, else backoff · S(w | h'): scores, which do not sum to one.

    Brants et al. 2007, https://aclanthology.org/D07-1090
    """
    step = float(np.log(backoff))
    return Tables(_frequencies(levels), [np.full(len(level.count), step) for level in levels[:-1]], step)


def kneser_ney(levels: list[Counts], discounts: Callable[[Integers], Floats]) -> Tables:
    """p(w | h) = (a(hw) − D(a(hw))) / a(h) + γ(h) p(w | h'),   γ(h) = Σ_w D(a(hw)) / a(h),   a(h) = Σ_w a(hw)

    down to the uniform 1/V. a is the count in the highest order and for n-grams that begin a document, and
    elsewhere the number of different tokens that came before: a word that has kept much company is likely in
    new company. Interpolated Kneser-Ney as in Chen & Goodman 1999, https://doi.org/10.1006/csla.1999.0128
    """
    log_probability, log_backoff = [], []
    lower = np.array([1 / len(levels[0].count)])
    for level, count in zip(levels, _company(levels), strict=True):
        discount = discounts(count)[np.minimum(count, 3)]
        total = level.per_context(count, len(lower))
        taken = level.per_context(discount, len(lower))
        gamma = np.ones_like(total)  # what no token followed backs off for nothing
        np.divide(taken, total, out=gamma, where=total > 0)
        lower = (count - discount) / total[level.prefix] + gamma[level.prefix] * lower[level.suffix]
        log_probability.append(np.log(lower))
        log_backoff.append(np.log(gamma))
    return Tables(log_probability, log_backoff[1:])


def one_discount(counts: Integers) -> Floats:
    """D = n₁ / (n₁ + 2n₂), where n_c is how many n-grams have count c; for counts 0, 1, 2, 3 or more.

    Tiny data may lack n-grams of count 1 or 2. Then D = ½: with D = 0 unseen words would get nothing,
    with D = 1 the counts would say nothing.
    """
    _, n1, n2 = np.bincount(np.minimum(counts, 3), minlength=4)[:3]
    discount = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    return np.array([0, discount, discount, discount])


def three_discounts(counts: Integers) -> Floats:
    """D_c = c − (c + 1) Y n_{c+1} / n_c for counts c = 1, 2, 3 or more, with Y = n₁ / (n₁ + 2n₂).

    Where tiny data lacks one of n₁ … n₄ or gives a D_c that is not positive, the three are ½, 1, 1½: what
    kenlm's lmplz can fall back to as well.
    """
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(np.float64)
    discount = np.array([0, 0.5, 1, 1.5])
    if n[1:5].all():
        c = np.arange(1, 4)
        found = c - (c + 1) * n[2:5] / n[1:4] * n[1] / (n[1] + 2 * n[2])
        if (found > 0).all():
            discount[1:] = found
    return discount


def _company(levels: list[Counts]) -> list[Integers]:
    """a(·) of `kneser_ney` for each order."""
    adjusted = []
    for level, longer in itertools.pairwise(levels):
        before = np.bincount(longer.suffix, minlength=len(level.count))
        adjusted.append(np.where(level.begins, level.count, before))
    return [*adjusted, levels[-1].count]


def _frequencies(levels: list[Counts]) -> list[Floats]:
    logs, contexts = [], 1
    with np.errstate(divide="ignore"):  # log 0 = −∞ for words that were never seen
        for level in levels:
            logs.append(np.log(level.count / level.per_context(level.count, contexts)[level.prefix]))
            contexts = len(level.count)
    return logs
