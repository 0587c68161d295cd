"""All ways to split a word into pieces, and samples of them.

A path from the beginning of the word to its end consists of arcs (a piece from one position to another), and

    log P(path) = Σ score(arc)

A path is sampled with probability ∝ P(path)^α by summing forward, F(0) = 0, F(j) = log Σ exp(F(i) + α · score(i → j))
over the arcs that end in j, and then drawing backward from the end: arc i → j with probability
exp(F(i) + α · score(i → j) − F(j)).

Kudo 2018, https://arxiv.org/abs/1804.10959, section 3.2 (which samples from the l best paths; here from all of them)
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

Tokens = tuple[int, ...]


class Arc(NamedTuple):
    """A piece that begins at `start`, and the tokens it stands for: one, or the bytes of a character."""

    start: int
    tokens: Tokens
    score: float


@dataclass(frozen=True)
class Pieces:
    """The pieces that a word may be split into."""

    known: Mapping[str, tuple[Tokens, float]]
    spell: Callable[[str], Tokens]
    """Spells a character that is not a piece, which scores `unknown_score`."""
    unknown_score: float
    longest: int

    def arcs(self, word: str) -> list[list[Arc]]:
        """Return, for each position except the first, the arcs that end there."""
        arcs = []
        for stop in range(1, len(word) + 1):
            starts = range(max(0, stop - self.longest), stop)
            ending = [Arc(start, *self.known[word[start:stop]]) for start in starts if word[start:stop] in self.known]
            if not ending or ending[-1].start < stop - 1:
                ending.append(Arc(stop - 1, self.spell(word[stop - 1]), self.unknown_score))
            arcs.append(ending)
        return arcs


@dataclass(frozen=True)
class Sampler:
    """For each position except the first: the arcs that end there, and their cumulative probabilities."""

    arcs: Sequence[Sequence[Arc]]
    chances: list[list[float]]

    @classmethod
    def over(cls, arcs: Sequence[Sequence[Arc]], alpha: float) -> Sampler:
        """Make a sampler for any finite alpha. For a large alpha, F is stored divided by it, so that it stays small."""
        unit = max(1.0, alpha)
        forward = [0.0]
        chances = []
        for ending in arcs:
            logs = [forward[arc.start] + alpha / unit * arc.score for arc in ending]
            highest = max(logs)
            weights = [math.exp(unit * (log - highest)) for log in logs]
            total = sum(weights)
            forward.append(highest + math.log(total) / unit)
            chances.append(list(accumulate(weight / total for weight in weights)))
        return cls(arcs, chances)

    def draw(self, numbers: Iterator[float]) -> list[Arc]:
        """Draw a path, first arc first; `numbers` are uniform in [0, 1), and each arc uses one."""
        path: list[Arc] = []
        stop = len(self.arcs)
        while stop:
            ending = self.arcs[stop - 1]
            choice = bisect(self.chances[stop - 1], next(numbers))
            path.append(ending[min(choice, len(ending) - 1)])  # rounded sums may end a little below 1
            stop = path[-1].start
        return path[::-1]
