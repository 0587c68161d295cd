"""Scores texts: the log-probabilities of sequences, with each token counted once.

B rows · T positions
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seqlab.data.batching.sequences import ScoredLanes, ScoredWindows, Tokens
from seqlab.data.randomness import Key
from seqlab.models.language_model import LanguageModel


@dataclass(frozen=True)
class Score:
    """The natural log-probability of a sequence, and its number of tokens."""

    log_probability: float
    tokens: int
    unknown: int = 0
    """Number of tokens that are not in the vocabulary and are scored as `<unk>`."""

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability per token; NaN for an empty sequence."""
        if not self.tokens:
            return math.nan
        mean = -self.log_probability / self.tokens
        return math.exp(mean) if mean < 700 else math.inf


PIECE = 1024
"""Positions read at a time: as one piece with carried state if the model's context is unlimited, else as windows."""


@torch.inference_mode()
def score(
    model: LanguageModel,
    sequences: Sequence[Sequence[int]],
    end: int,
    window: int | None = None,
    progress: Callable[[int], None] = lambda tokens: None,
) -> list[Score]:
    """Score each sequence on its own, as if it followed `<end>`, which is token `end` of the vocabulary.

    A model with a limited context reads long sequences in windows (of its context, or smaller) that overlap by half.
    Batches never hold more than one sequence, so that no score depends on the others. `progress` is called with the
    number of tokens scored since its last call.
    """
    return [_score(model, np.asarray(sequence, dtype=np.int64), end, window, progress) for sequence in sequences]


def _score(
    model: LanguageModel, tokens: Tokens, end: int, window: int | None, progress: Callable[[int], None]
) -> Score:
    if len(tokens) == 0:
        return Score(0.0, 0)
    split: ScoredLanes | ScoredWindows
    rows = 1
    if model.context is None:
        split = ScoredLanes(tokens, PIECE, lanes=1, end=end)
    else:
        window = min(len(tokens), window or model.context)
        split = ScoredWindows(tokens, window, max(1, window // 2), end)
        rows = max(1, PIECE // window)
    order = split.order(rows, seed=0)
    device = next((t.device for t in [*model.parameters(), *model.buffers()]), torch.device("cpu"))
    total, state = 0.0, None
    for _, indices in order.once():
        batch = split.batch(indices, Key(0, 0)).to(device)
        output = model(batch["tokens"], state, batch.get("mask"))
        state = output.state if order.carries else None
        scored = batch.get("scored", torch.ones_like(batch["targets"], dtype=torch.bool))
        total -= float(model.losses(output.states[scored], batch["targets"][scored]).sum())
        progress(int(scored.sum()))
    return Score(total, len(tokens))
