"""Beam search: finds probable sequences with a search of limited width, for any model.

S sentences · b hypotheses per sentence · V vocabulary · N source positions
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from seqlab.decoding.engine import Engine, Grown, Request, succeeded
from seqlab.decoding.reading import Reading, no_distribution
from seqlab.models.language_model import LanguageModel


@dataclass(frozen=True)
class Beam:
    """Keeps `width` hypotheses and ranks finished ones of n tokens by

        log p / ((5 + n) / 6)^length_penalty + coverage_penalty · Σ_i log min(Σ_t a_ti, 1)

    where a_ti is the attention of token t to position i of the source. The best `best` (all `width` by default) are
    exactly those that the search would find without early stopping. Wu et al. 2016, https://arxiv.org/abs/1609.08144
    """

    width: int = 5
    length_penalty: float = 0.0
    coverage_penalty: float = 0.0
    shortest: int = 0
    """Number of tokens before a hypothesis may end."""
    best: int | None = None

    def rank(self, score: float, length: int) -> float:
        return score / float(((5 + length) / 6) ** self.length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """New tokens and their log-probability."""

    tokens: tuple[int, ...]
    log_probability: float
    rank: float


Live = tuple[tuple[int, ...], float]
"""The tokens of a hypothesis and their log-probability."""
Candidate = tuple[float, int, int]
"""The log-probability of an extended hypothesis, the index of the one that it extends, and its new token."""
Fate = Literal["kept", "finished", "dropped"]
See = Callable[[tuple[int, ...], int, float, Fate], None]
"""Called with the previous tokens, the new token, the log-probability and the fate."""


class BeamNode(NamedTuple):
    """One step of a hypothesis in the search tree: `token` after `before`, and its fate."""

    sentence: int
    before: tuple[int, ...]
    token: int
    log_probability: float
    fate: Fate


Watch = Callable[[BeamNode], None]


class Search(Request):
    """A search for the best continuations of one prompt, of at most `limit` tokens.

    A coverage penalty needs the number of source positions.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        beam: Beam,
        limit: int,
        stop: frozenset[int] = frozenset(),
        source_length: int | None = None,
        watch: See | None = None,
    ) -> None:
        if limit < 1:
            raise ValueError(f"a limit of {limit} tokens; write at least one")
        self.prompt, self.beam, self.limit, self.stop, self.watch = prompt, beam, limit, stop, watch
        self.live: list[Live] = [((), 0.0)]
        self.finished: list[Hypothesis] = []
        self.coverage = _Coverage(source_length) if beam.coverage_penalty and source_length is not None else None
        self.with_attention = self.coverage is not None

    @property
    def found(self) -> list[Hypothesis]:
        """The best finished hypotheses, best first."""
        return self.finished[: self.beam.best]

    @property
    def group(self) -> Hashable:
        return self.beam, self.stop, len(self.live[0][0]) < self.beam.shortest

    @classmethod
    def grow(cls, requests: Sequence[Search], reading: Reading) -> list[Grown]:
        """Extend all searches. The rows of a search are adjacent, and all searches have the same number of rows, so
        that a model can let them share their source; if there are fewer hypotheses, the first is repeated."""
        width = len(reading.states) // len(requests)
        some = requests[0]
        banned = some.stop if len(some.live[0][0]) < some.beam.shortest else frozenset()
        most = some.beam.width + len(some.stop)
        found = _candidates(reading, [one.live for one in requests], width, most, banned)
        grown = []
        for place, (one, candidates) in enumerate(zip(requests, found, strict=True)):
            attention = None if reading.attention is None else reading.attention[place * width : (place + 1) * width]
            grown.append(one._step(candidates, attention))
        width = max(map(len, grown))
        return [[*rows, *[rows[0]] * (width - len(rows))] if rows else [] for rows in grown]

    def text(self, row: int) -> Sequence[int]:
        return [*self.prompt, *self.live[row if row < len(self.live) else 0][0]]

    def _step(self, candidates: Sequence[Candidate], attention: Tensor | None) -> Grown:
        """Add one token: choose the candidates that live on, best first."""
        before = [text for text, _ in self.live]
        if self.coverage is not None and attention is not None:
            self.coverage.add(attention)
        grown = self._grow(candidates, [0.0] * len(before) if self.coverage is None else self.coverage.penalties())
        if self.watch is not None:
            self._show(self.watch, before, candidates)
        if self.coverage is not None:
            self.coverage.reorder([row for row, _ in grown])
        return grown

    def _grow(self, candidates: Sequence[Candidate], attended: Sequence[float]) -> Grown:
        beam, length = self.beam, len(self.live[0][0]) + 1
        grown: Grown = []
        kept: list[Live] = []
        for score, number, token in candidates:
            if score == -float("inf") or len(kept) == beam.width:
                break
            text = (*self.live[number][0], token)
            if token in self.stop or length == self.limit:
                rank = beam.rank(score, length) + beam.coverage_penalty * attended[number]
                self.finished.append(Hypothesis(text, score, rank))
                if length == self.limit and len(self.finished) >= 2 * beam.width:
                    break
            else:
                kept.append((text, score))
                grown.append((number, token))
        self.finished = sorted(self.finished, key=lambda one: -one.rank)[: beam.width]
        self.live = kept
        return [] if self._settled(length + 1) else grown

    def _settled(self, length: int) -> bool:
        """Whether no live hypothesis can improve the result. Log-probabilities only fall, so a hypothesis cannot end
        better than with its current score at the length that ranks it highest."""
        best = self.beam.best or self.beam.width
        if not self.live or len(self.finished) < best:
            return not self.live
        score = self.live[0][1]
        kindest = max(self.beam.rank(score, length), self.beam.rank(score, self.limit))
        return self.finished[best - 1].rank >= kindest

    def _show(
        self,
        watch: See,
        before: list[tuple[int, ...]],
        candidates: Sequence[Candidate],
    ) -> None:
        kept = {text for text, _ in self.live}
        done = {one.tokens for one in self.finished}
        for score, number, token in candidates:
            if score > -float("inf"):
                text = (*before[number], token)
                watch(
                    before[number], token, score, "kept" if text in kept else "finished" if text in done else "dropped"
                )


@torch.inference_mode()
def beam_search(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    beam: Beam,
    tokens: int | Sequence[int],
    stop: frozenset[int] = frozenset(),
    source: Mapping[str, Tensor] | None = None,
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses for each prompt, best first; each ends with a token of `stop` or is `tokens` long.

    All sentences are searched in parallel, with the same results as if each were alone.
    """
    limits = [tokens] * len(prompts) if isinstance(tokens, int) else tokens
    lengths = [None] * len(prompts) if source is None else source["mask"].sum(1).tolist()

    def see(number: int) -> See | None:
        return None if watch is None else lambda *about: watch(BeamNode(number, *about))

    each = enumerate(zip(prompts, limits, lengths, strict=True))
    searches = [Search(prompt, beam, limit, stop, length, see(number)) for number, (prompt, limit, length) in each]
    engine = Engine(model)
    engine.admit(searches, source)
    while succeeded(engine.step()):
        pass
    return [one.found for one in searches]


def _candidates(
    reading: Reading, live: list[list[Live]], width: int, most: int, banned: frozenset[int]
) -> list[list[Candidate]]:
    """Return the candidates of each search, best first.

    The best `most` of each hypothesis are all that can be kept or finish. Ties go to the earlier hypothesis and the
    smaller token. Only the chosen scores are normalised: over a large vocabulary, log softmax takes longer than
    choosing.
    """
    values, ids, totals = reading.best(most + len(banned))
    if not bool(totals.isfinite().all()):
        raise no_distribution(reading.logits)
    if banned:
        refused = torch.isin(ids, torch.tensor(sorted(banned), device=ids.device))
        values = values.masked_fill(refused, -torch.inf)
    none = -float("inf")
    scores = [[score for _, score in own] + [none] * (width - len(own)) for own in live]
    chances = (values - totals[:, None]).view(len(live), width, -1) + values.new_tensor(scores)[:, :, None]
    ranked, places = chances.flatten(1).sort(descending=True, stable=True)
    chosen = ids.view(len(live), -1).gather(1, places)
    hypotheses = places // values.shape[1]
    return [
        list(zip(*one, strict=True)) for one in zip(ranked.tolist(), hypotheses.tolist(), chosen.tolist(), strict=True)
    ]


class _Coverage:
    """The total attention of each hypothesis to each position of its source."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.seen = torch.zeros(1, length)

    def add(self, attention: Tensor) -> None:
        """Add the attention of one step, (b, N); positions beyond the source are padding."""
        self.seen = self.seen.to(attention.device) + attention[: len(self.seen), : self.length]

    def penalties(self) -> list[float]:
        """Return Σ_i log min(Σ_t a_ti, 1) for each hypothesis."""
        return self.seen.clamp(1e-9, 1).log().sum(1).tolist()

    def reorder(self, rows: Sequence[int]) -> None:
        self.seen = self.seen[list(rows)]
