"""Beam search: the most probable sequences that a search of limited width finds. It never asks which model it has.

S sentences · b hypotheses of each · V vocabulary · N source positions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqlab.decoding.generate import Reading, advance, pieces, read, unseen
from seqlab.errors import RunError
from seqlab.models.language_model import LanguageModel
from seqlab.nn.recording import Tape, record


@dataclass(frozen=True)
class Beam:
    """`width` hypotheses are kept; a finished one of n tokens is ranked by

        log p / ((5 + n) / 6)^length_penalty + coverage_penalty · Σ_i log min(Σ_t a_ti, 1)

    where a_ti is how much token t looked at position i of the source. The best `best` (all `width` by default) are
    exactly those that the search would find if it never stopped early. Wu et al. 2016, https://arxiv.org/abs/1609.08144
    """

    width: int = 5
    length_penalty: float = 0.0
    coverage_penalty: float = 0.0
    shortest: int = 0
    """Tokens before a hypothesis may end."""
    best: int | None = None

    def rank(self, score: float, length: int) -> float:
        return score / float(((5 + length) / 6) ** self.length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """New tokens and their log-probability."""

    tokens: tuple[int, ...]
    log_probability: float
    rank: float


class Node(NamedTuple):
    """One step of a hypothesis in the tree that was searched: `token` after `before`, and what became of it."""

    sentence: int
    before: tuple[int, ...]
    token: int
    log_probability: float
    fate: Literal["kept", "finished", "dropped"]


Watch = Callable[[Node], None]


@dataclass
class _Search:
    """The search for one sentence."""

    number: int
    prompt: list[int]
    limit: int
    live: list[tuple[tuple[int, ...], float]] = field(default_factory=lambda: [((), 0.0)])
    finished: list[Hypothesis] = field(default_factory=list)

    def grow(
        self, candidates: Sequence[tuple[float, int, int]], beam: Beam, stop: frozenset[int], looks: Sequence[float]
    ) -> list[tuple[int, int]]:
        """One token more: of candidates (score, hypothesis, token), best first, those that live on."""
        length = len(self.live[0][0]) + 1
        grown: list[tuple[int, int]] = []
        kept: list[tuple[tuple[int, ...], float]] = []
        for score, number, token in candidates:
            if score == -float("inf") or len(kept) == beam.width:
                break
            text = (*self.live[number][0], token)
            if token in stop or length == self.limit:
                rank = beam.rank(score, length) + beam.coverage_penalty * looks[number]
                self.finished.append(Hypothesis(text, score, rank))
                if length == self.limit and len(self.finished) >= 2 * beam.width:
                    break
            else:
                kept.append((text, score))
                grown.append((number, token))
        self.finished = sorted(self.finished, key=lambda one: -one.rank)[: beam.width]
        self.live = kept
        return [] if self._settled(beam, length + 1) else grown

    def _settled(self, beam: Beam, length: int) -> bool:
        """Log-probabilities only fall: no live hypothesis can end better than its score now at the kindest length."""
        best = beam.best or beam.width
        if not self.live or len(self.finished) < best:
            return not self.live
        kindest = max(beam.rank(self.live[0][1], length), beam.rank(self.live[0][1], self.limit))
        return self.finished[best - 1].rank >= kindest


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
    """The best hypotheses for each prompt, best first; each ends with a token of `stop` or is `tokens` long.

    All sentences are searched side by side, and each as if it were alone. Rows of one sentence stand together, so that
    a model can let them share their source.
    """
    limits = [tokens] * len(prompts) if isinstance(tokens, int) else tokens
    searches = [_Search(number, list(p), limit) for number, (p, limit) in enumerate(zip(prompts, limits, strict=True))]
    coverage = _Coverage(source["mask"]) if beam.coverage_penalty and source is not None else None
    with record() if coverage is not None else nullcontext(Tape()) as tape:
        reading = read(model, prompts, source)
    if coverage is not None:
        coverage.begin(tape, [len(prompt) for prompt in prompts])
    active, width = searches, 1
    while True:
        banned = stop if len(active[0].live[0][0]) < beam.shortest else frozenset()
        found = _candidates(reading, [one.live for one in active], width, beam.width + len(stop), banned)
        looks = coverage.penalties() if coverage is not None else [0.0] * len(reading.states)
        going: list[_Search] = []
        rows: list[list[tuple[int, int]]] = []
        for place, (one, candidates) in enumerate(zip(active, found, strict=True)):
            before = [text for text, _ in one.live]
            grown = one.grow(candidates, beam, stop, looks[place * width : (place + 1) * width])
            if watch is not None:
                _show(watch, one, before, candidates)
            if grown:
                going.append(one)
                rows.append([(place * width + number, token) for number, token in grown])
        if not going:
            return [one.finished[: beam.best] for one in searches]
        width = max(map(len, rows))
        every = [row for own in rows for row in [*own, *[own[0]] * (width - len(own))]]
        select, chosen = torch.tensor(every, device=reading.states.device).unbind(1)
        state = reading.state.reorder(select)
        if len(going) < len(active):
            state = state.compact()
        active = going
        texts = [[*one.prompt, *text] for one in active for text, _ in _filled(one.live, width)]
        with record() if coverage is not None else nullcontext(Tape()) as tape:
            reading = advance(model, chosen, state, texts, source)
        if coverage is not None:
            coverage.go_on(tape, select)


def _candidates(
    reading: Reading, live: list[list[tuple[tuple[int, ...], float]]], width: int, most: int, banned: frozenset[int]
) -> list[list[tuple[float, int, int]]]:
    """What can follow, for each sentence: (log-probability, hypothesis, token), best first.

    `most` of each hypothesis are all that can be kept or finish. Ties fall to the earlier hypothesis and the smaller
    token. Only what is chosen is normalised: over a large vocabulary, log softmax takes longer than the choice.
    """
    values, ids, totals = reading.best(most + len(banned))
    if not bool(totals.isfinite().all()):
        raise unseen()
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


def _filled(live: list[tuple[tuple[int, ...], float]], width: int) -> list[tuple[tuple[int, ...], float]]:
    return [*live, *[live[0]] * (width - len(live))]


def _show(
    watch: Watch,
    search: _Search,
    before: list[tuple[int, ...]],
    candidates: Sequence[tuple[float, int, int]],
) -> None:
    kept = {text for text, _ in search.live}
    done = {one.tokens for one in search.finished}
    for score, number, token in candidates:
        if score > -float("inf"):
            text = (*before[number], token)
            fate = "kept" if text in kept else "finished" if text in done else "dropped"
            watch(Node(search.number, before[number], token, score, fate))  # type: ignore[arg-type]


class _Coverage:
    """How much each hypothesis has looked at each position of its source, from what models note as `attention`:
    (B, T, H, N) for every layer that looks. The mean over layers and heads counts."""

    def __init__(self, real: Tensor) -> None:
        self.real = real

    def begin(self, tape: Tape, lengths: list[int]) -> None:
        """Prompts have been read, in pieces: the last real position of each is what chooses the next token."""
        if not tape["attention"]:
            hint = "leave the coverage penalty out"
            raise RunError("this model has no attention: what it has looked at is not known", hint=hint)
        layers = len(tape["attention"]) // pieces(max(lengths))
        read = [tape["attention"][start : start + layers] for start in range(0, len(tape["attention"]), layers)]
        looked = torch.cat([_mean(piece) for piece in read], 1)
        last = torch.tensor(lengths, device=looked.device) - 1
        self.seen = looked[torch.arange(len(lengths), device=looked.device), last]
        self.real = F.pad(self.real, [0, self.seen.shape[1] - self.real.shape[1]])

    def go_on(self, tape: Tape, rows: Tensor) -> None:
        looked = _mean(tape["attention"])[:, -1]
        width = looked.shape[1]
        self.seen, self.real = self.seen[rows, :width] + looked, self.real[rows, :width]

    def penalties(self) -> list[float]:
        """Σ_i log min(Σ_t a_ti, 1) for each row."""
        logs = self.seen.clamp(1e-9, 1).log().masked_fill(~self.real, 0)
        return logs.sum(1).tolist()


def _mean(layers: list[Tensor]) -> Tensor:
    """(B, T, H, N) of several layers → (B, T, N)"""
    return torch.stack([one.mean(2) for one in layers]).mean(0)
