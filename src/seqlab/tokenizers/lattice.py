"""All ways to cut a word into pieces: the most probable one, and samples.

A path from the beginning of the word to its end takes arcs (a piece from one place to another), and

    log P(path) = Σ score(arc)

The best path to each place is the best of an arc and the best path to where that arc begins (Viterbi). A path
is sampled with probability ∝ P(path)^α by summing forward, F(j) = log Σ exp(F(i) + α · score(i → j)) over the
arcs that end in j, and then drawing backward from the end: arc i → j with probability exp(F(i) + α · score − F(j)).

Kudo 2018, https://arxiv.org/abs/1804.10959, section 3.2 (there over the l best paths; here over all of them)
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple


class Arc(NamedTuple):
    """The tokens of a piece that begins at `start`: one, or the bytes of a character."""

    start: int
    tokens: tuple[int, ...]
    score: float


Arcs = Sequence[Sequence[Arc]]
"""`arcs[j - 1]` are those that end in j, the longest first."""


class Step(NamedTuple):
    """An arc on a path, and where it ends."""

    arc: Arc
    stop: int


def best_path(arcs: Arcs) -> list[Step]:
    """The path of the highest score; of equal ones, that whose last piece is longest, then the one before it, ..."""
    scores = [0.0]
    taken: list[Arc] = []
    for ending in arcs:
        arc = max(ending, key=lambda arc: scores[arc.start] + arc.score)
        scores.append(scores[arc.start] + arc.score)
        taken.append(arc)
    return _walk(len(arcs), lambda stop: taken[stop - 1])


@dataclass(frozen=True)
class Sampler:
    """What is drawn from at each place: the arcs that end there, and their probabilities summed up."""

    arcs: Arcs
    chances: list[list[float]]

    @classmethod
    def over(cls, arcs: Arcs, alpha: float) -> Sampler:
        forward = [0.0]
        chances = []
        for ending in arcs:
            logs = [forward[arc.start] + alpha * arc.score for arc in ending]
            highest = max(logs)
            weights = [math.exp(log - highest) for log in logs]
            total = sum(weights)
            forward.append(highest + math.log(total))
            chances.append(list(accumulate(weight / total for weight in weights)))
        return cls(arcs, chances)

    def draw(self, numbers: Iterator[float]) -> list[Step]:
        """A path; `numbers` are uniform in [0, 1), and one is used for each piece."""

        def choose(stop: int) -> Arc:
            ending = self.arcs[stop - 1]
            return ending[min(bisect(self.chances[stop - 1], next(numbers)), len(ending) - 1)]  # sums may miss 1

        return _walk(len(self.arcs), choose)


def _walk(stop: int, choose: Callable[[int], Arc]) -> list[Step]:
    """From the end to the beginning, and turned round."""
    steps = []
    while stop:
        steps.append(Step(choose(stop), stop))
        stop = steps[-1].arc.start
    return steps[::-1]
