"""Beam search: the most probable sequences that a search of limited width finds. It never asks which model it has.

b hypotheses · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.decoding.generate import advance, log_probabilities, read
from seqlab.models.language_model import LanguageModel


@dataclass(frozen=True)
class Beam:
    """`width` hypotheses are kept; a finished one of n tokens is ranked by log p / ((5 + n) / 6)^length_penalty.

    Wu et al. 2016, https://arxiv.org/abs/1609.08144
    """

    width: int = 5
    length_penalty: float = 0.0

    def rank(self, score: float, length: int) -> float:
        return score / float(((5 + length) / 6) ** self.length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """New tokens and their log-probability."""

    tokens: tuple[int, ...]
    log_probability: float
    rank: float


@torch.inference_mode()
def beam_search(
    model: LanguageModel,
    prompt: Sequence[int],
    beam: Beam,
    tokens: int,
    stop: frozenset[int] = frozenset(),
    source: Mapping[str, Tensor] | None = None,
) -> list[Hypothesis]:
    """The best `width` hypotheses, best first; each ends with a token of `stop` or is `tokens` long."""
    reading = read(model, [prompt], source)
    live: list[tuple[int, ...]] = [()]
    scores = reading.logits.new_zeros(1)
    finished: list[Hypothesis] = []
    for length in range(1, tokens + 1):
        totals = scores[:, None] + log_probabilities(reading.logits)
        # a stable sort, so that ties always fall to the earlier hypothesis and the smaller token
        ranked, places = totals.flatten().sort(descending=True, stable=True)
        rows: list[int] = []
        ids: list[int] = []
        kept: list[tuple[tuple[int, ...], float]] = []
        most = 2 * beam.width + len(live) * len(stop)  # no more than these can be kept or finish
        for score, place in zip(ranked[:most].tolist(), places[:most].tolist(), strict=True):
            if score == -float("inf") or len(rows) == beam.width:
                break
            row, token = divmod(place, totals.shape[1])
            text = (*live[row], token)
            if token in stop or length == tokens:
                finished.append(Hypothesis(text, score, beam.rank(score, length)))
                if length == tokens and len(finished) >= 2 * beam.width:
                    break
            else:
                rows.append(row)
                ids.append(token)
                kept.append((text, score))
        finished = sorted(finished, key=lambda one: -one.rank)[: beam.width]
        if not kept or _settled(finished, kept[0][1], beam, length + 1, tokens):
            break
        live = [text for text, _ in kept]
        scores = scores.new_tensor([score for _, score in kept])
        select = torch.tensor(rows, device=scores.device)
        chosen = torch.tensor(ids, device=scores.device)
        reading = advance(model, chosen, reading.state.select(select), [[*prompt, *t] for t in live], source)
    return finished


def _settled(finished: list[Hypothesis], best_live: float, beam: Beam, next_length: int, tokens: int) -> bool:
    """Log-probabilities only fall, so no live hypothesis can end better than its score now at the kindest length."""
    kindest = max(beam.rank(best_live, next_length), beam.rank(best_live, tokens))
    return len(finished) == beam.width and finished[-1].rank >= kindest
