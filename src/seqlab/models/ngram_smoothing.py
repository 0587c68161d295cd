"""Smoothing: from n-gram counts to probabilities that leave something for unseen n-grams.

In the formulas, h is a context, h' the same without its first token, c a count and V the size of the vocabulary. Pruned
n-grams are not in the tables, and their share goes to everything that backs off. As in kenlm's lmplz, pruning goes by
the count in the text: all n-grams count towards the discounts and a, and only then are the rare ones dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqlab.data.storage.scratch import Integers

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Children:
    """The n-grams that continue a range of adjacent contexts."""

    contexts: int
    prefix: Integers
    """The context of each n-gram, counted from 0."""
    count: Integers
    """How often each n-gram was seen, or the number that the smoothing uses instead."""
    kept: Flags
    """Which n-grams are not pruned; only these need probabilities."""
    lower: Floats
    """p(w | h') of each n-gram that is kept."""
    vocab_size: int

    def per_context(self, values: Integers | Floats) -> Floats:
        """Sum values of n-grams per context."""
        return np.bincount(self.prefix, values, self.contexts).astype(np.float64, copy=False)

    def of_kept(self, values: Floats) -> Floats:
        """Look up the value of the context of each n-gram that is kept."""
        return values[self.prefix[self.kept]]


@dataclass(frozen=True)
class Estimate:
    """p(w | h) of each n-gram that is kept, and the backoff of each context."""

    probability: Floats
    backoff: Floats


@dataclass(frozen=True)
class Smoothing:
    """How n-grams of one order become probabilities, given the number of n-grams with count 0, 1, …, and 5 or more."""

    estimate: Callable[[Children, Integers], Estimate]
    company: bool = False
    """Whether n-grams below the highest order are counted by the different tokens before them: Kneser-Ney's a."""
    unseen: float = 1.0
    """The backoff of a context that was never seen."""


# ---------------------------------------------------------------------- without a lower order


def relative_frequencies() -> Smoothing:
    """p(w | h) = c(hw) / c(h): 0 for unseen n-grams; undefined after an unseen context, 0 here."""

    def estimate(children: Children, _: Integers) -> Estimate:
        return Estimate(_frequencies(children), np.zeros(children.contexts))

    return Smoothing(estimate, unseen=0.0)


def add_k(k: float) -> Smoothing:
    """p(w | h) = (c(hw) + k) / (c(h) + kV)

    which gives the uniform distribution the share kV / (c(h) + kV): this is the backoff here. The share of pruned
    n-grams is added to it.
    """

    def estimate(children: Children, _: Integers) -> Estimate:
        total = children.per_context(children.count)
        pruned = children.per_context(np.where(children.kept, 0, children.count))
        added = k * children.vocab_size
        shared = children.of_kept(pruned) / children.vocab_size
        probability = (children.count[children.kept] + k + shared) / (children.of_kept(total) + added)
        return Estimate(probability, (added + pruned) / (total + added))

    return Smoothing(estimate)


# ---------------------------------------------------------------------- with a lower order


def stupid_backoff(backoff: float) -> Smoothing:
    """S(w | h) = c(hw) / c(h) where hw is kept, else backoff · S(w | h'): scores that do not sum to one.

    Brants et al. 2007, https://aclanthology.org/D07-1090
    """

    def estimate(children: Children, _: Integers) -> Estimate:
        return Estimate(_frequencies(children), np.full(children.contexts, backoff))

    return Smoothing(estimate, unseen=backoff)


def kneser_ney(discounts: Callable[[Integers], Floats]) -> Smoothing:
    """p(w | h) = (a(hw) − D(a(hw))) / a(h) + γ(h) p(w | h'),   γ(h) = Σ_w D(a(hw)) / a(h),   a(h) = Σ_w a(hw)

    down to the uniform 1/V. a is the count in the highest order and for n-grams that begin a document, and
    elsewhere the number of different tokens seen before it: a word that has followed many different words is
    likely to follow a new one. For pruned n-grams, all of a(hw) goes to γ(h) instead of D(a(hw)).

    Interpolated Kneser-Ney as in Chen & Goodman 1999, https://doi.org/10.1006/csla.1999.0128
    """

    def estimate(children: Children, counts: Integers) -> Estimate:
        count, kept = children.count, children.kept
        discount = discounts(counts)[np.minimum(count, 3)]
        total = children.per_context(count)
        taken = children.per_context(np.where(kept, discount, count))
        gamma = np.ones_like(total)  # backing off costs nothing in contexts that no token followed
        np.divide(taken, total, out=gamma, where=total > 0)
        own = (count[kept] - discount[kept]) / children.of_kept(total)
        return Estimate(own + children.of_kept(gamma) * children.lower, gamma)

    return Smoothing(estimate, company=True)


def one_discount(n: Integers) -> Floats:
    """D = n₁ / (n₁ + 2n₂), where n_c is the number of n-grams with count c; for counts 0, 1, 2, 3 or more.

    Tiny data may lack n-grams of count 1 or 2. Then D = ½: with D = 0, unseen words would get nothing; with
    D = 1, n-grams seen once would count for nothing.
    """
    discount = n[1] / (n[1] + 2 * n[2]) if n[1] and n[2] else 0.5
    return np.array([0, discount, discount, discount])


def three_discounts(n: Integers) -> Floats:
    """D_c = c − (c + 1) Y n_{c+1} / n_c for counts c = 1, 2, 3 or more, with Y = n₁ / (n₁ + 2n₂).

    If tiny data lacks one of n₁ … n₄ or gives a D_c that is not positive, the three are ½, 1, 1½, which
    kenlm's lmplz can fall back to as well.
    """
    discount = np.array([0, 0.5, 1, 1.5])
    if n[1:5].all():
        c = np.arange(1, 4)
        found = c - (c + 1) * n[2:5] / n[1:4] * n[1] / (n[1] + 2 * n[2])
        if (found > 0).all():
            discount[1:] = found
    return discount


def _frequencies(children: Children) -> Floats:
    return children.count[children.kept] / children.of_kept(children.per_context(children.count))
