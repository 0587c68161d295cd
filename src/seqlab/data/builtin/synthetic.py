"""Synthetic series: identical on every machine, in any length and number.

`waves`, `adding`, or with a number of steps and of series: `adding:400`, `adding:400:20000`. One fifth of the series is
held out for validation, and one tenth for `waves-test`, `adding-test`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from seqlab.data.builtin.sized import Number, base_of, part, sized
from seqlab.data.formats.series import VALUE, Found, Series
from seqlab.data.randomness import mix

VERSION = 1
"""Part of every content hash: raise this when a name would yield other numbers."""


def waves(steps: int, count: int, random: np.random.Generator) -> Found:
    """Make noisy waves, with a, b, u, v drawn from [0, 1) for each series:

    x_t = 0.5 sin((t − a)(10 + 10 u)) + 0.2 sin((t − b)(20 + 20 v)) + noise of ± 0.05, t from 0 to 1
    """
    u, v, a, b = random.random((4, count, 1))
    t = np.linspace(0, 1, steps)
    x = 0.5 * np.sin((t - a) * (10 + 10 * u)) + 0.2 * np.sin((t - b) * (20 + 20 * v))
    x += 0.1 * (random.random((count, steps)) - 0.5)
    return Found([Series(f"waves, series {n}", one[:, None]) for n, one in enumerate(x, 1)], (VALUE,))


def adding(steps: int, count: int, random: np.random.Generator) -> Found:
    """Make numbers from [0, 1), two of them marked, one in each half; the answer is their sum.

    Always answering 1 gives a mean squared error of 1/6. Hochreiter & Schmidhuber 1997; as in Le, Jaitly & Hinton 2015,
    https://arxiv.org/abs/1504.00941
    """
    numbers, marks, rows = random.random((count, steps)), np.zeros((count, steps)), np.arange(count)
    half = steps // 2
    for low, high in ((0, half), (half, steps)):
        marks[rows, random.integers(low, high, count)] = 1
    values, sums = np.stack([numbers, marks], -1), (numbers * marks).sum(1)
    both = zip(values, sums, strict=True)
    series = [Series(f"adding, series {n}", one, np.array([total])) for n, (one, total) in enumerate(both, 1)]
    return Found(series, (VALUE, "mark"))


class SeriesMaker(NamedTuple):
    make: Callable[[int, int, np.random.Generator], Found]
    steps: int


SETS = {"waves": SeriesMaker(waves, 51), "adding": SeriesMaker(adding, 100)}
SIZES = {name: (Number("steps", made.steps, 2), Number("series", 10_000, 10)) for name, made in SETS.items()}


def is_synthetic(name: str) -> bool:
    return base_of(name) in SETS


def synthetic(name: str, split: Literal["train", "valid"]) -> Found:
    """Return the series of one part of a set."""
    asked = sized(name, SIZES)
    steps, count = asked.numbers
    seed = int.from_bytes(hashlib.blake2b(asked.name.encode(), digest_size=7).digest(), "little")
    random = np.random.Generator(np.random.Philox(mix(seed, steps, count)))
    whole = SETS[asked.name].make(steps, count, random)
    return Found(whole.series[part(count, split, asked.test)], whole.columns)


def content_hash(name: str) -> str:
    return hashlib.sha256(f"{VERSION} {sized(name, SIZES)}".encode()).hexdigest()
