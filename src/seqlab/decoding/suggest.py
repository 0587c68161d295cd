"""Suggests the most likely next words, for any tokenizer: a small beam search that stops at the end of a word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqlab.decoding.reading import advance, log_probabilities, read
from seqlab.models.language_model import LanguageModel
from seqlab.tokenizers import Tokenizer

LONGEST = 24
"""Number of tokens after which a word is abandoned."""
NEAR = 64
"""Number of tokens before a word that may affect its spelling: a space, or the first bytes of its first character."""


@dataclass(frozen=True)
class Suggestion:
    word: str
    log_probability: float


@torch.inference_mode()
def suggest(model: LanguageModel, tokenizer: Tokenizer, prompt: Sequence[int], count: int) -> list[Suggestion]:
    """Return words with the log-probability that the text continues with them.

    A hypothesis becomes a word as soon as something follows that is not part of it; the probabilities of all
    tokenizations of a word are added. The beam has 8 × count hypotheses, so unlikely long words may be missed.
    """
    width = 8 * count
    reading = read(model, [prompt])
    live: list[tuple[int, ...]] = [()]
    scores = reading.logits.new_zeros(1)
    words: dict[str, float] = {}
    ending = list(prompt[-NEAR:])
    already = tokenizer.decode(ending)
    for _ in range(LONGEST):
        totals = scores[:, None] + log_probabilities(reading.logits)
        ranked, places = totals.flatten().sort(descending=True, stable=True)
        rows: list[int] = []
        kept: list[tuple[int, ...]] = []
        new_scores: list[float] = []
        for score, place in zip(ranked[: 4 * width].tolist(), places[: 4 * width].tolist(), strict=True):
            row, token = divmod(place, totals.shape[1])
            text = (*live[row], token)
            word, complete = _word(tokenizer, already, ending, text)
            if complete:
                if word:
                    words[word] = _add(words.get(word, -math.inf), score)
            elif len(rows) < width and score > -math.inf:
                rows.append(row)
                kept.append(text)
                new_scores.append(score)
        best = sorted(words.values(), reverse=True)[:count]
        if not kept or (len(best) == count and best[-1] >= new_scores[0]):
            break
        live = kept
        scores = scores.new_tensor(new_scores)
        chosen = torch.tensor([text[-1] for text in live], device=scores.device)
        state = reading.state.reorder(torch.tensor(rows, device=scores.device))
        texts = [[*prompt, *text] for text in live]
        reading = advance(model, chosen, state, texts.__getitem__)
    found = [Suggestion(word, score) for word, score in words.items() if score > -math.inf]
    return sorted(found, key=lambda one: (-one.log_probability, one.word))[:count]


def _word(tokenizer: Tokenizer, already: str, ending: Sequence[int], text: tuple[int, ...]) -> tuple[str, bool]:
    """Return the word that was added to the prompt, and whether it is complete."""
    if text[-1] == tokenizer.end_id:
        return _added(tokenizer, already, ending, text[:-1]).strip(), True
    added = _added(tokenizer, already, ending, text)
    if tokenizer.unit != "part":
        return added.strip(), True
    bare = added.lstrip()
    for place, character in enumerate(bare):
        if not (character.isalnum() or character in "_'’-"):
            return bare[:place], True  # empty if punctuation comes first
    return bare, False


def _added(tokenizer: Tokenizer, already: str, ending: Sequence[int], text: tuple[int, ...]) -> str:
    return tokenizer.decode([*ending, *text])[len(already) :]


def _add(a: float, b: float) -> float:
    """log(eᵃ + eᵇ)"""
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high)) if high > -math.inf else high
