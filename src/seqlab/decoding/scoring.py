"""How probable is a text? Log-probabilities of many sequences, each token counted once.

B rows · T positions
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from seqlab.data.randomness import Key
from seqlab.data.sequences import ScoredWindows
from seqlab.models.language_model import LanguageModel


@dataclass(frozen=True)
class Score:
    """log p of a sequence (natural), over so many tokens."""

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability of its tokens."""
        mean = -self.log_probability / max(1, self.tokens)
        return math.exp(mean) if mean < 700 else math.inf


@torch.inference_mode()
def score(model: LanguageModel, sequences: Sequence[Sequence[int]], window: int | None = None) -> list[Score]:
    """Each sequence on its own, as if it followed `<end>`; long ones in windows that overlap by half."""
    return [_score(model, np.asarray(sequence, dtype=np.int64), window) for sequence in sequences]


def _score(model: LanguageModel, tokens: np.ndarray, window: int | None) -> Score:
    if len(tokens) == 0:
        return Score(0.0, 0)
    window = min(len(tokens), window or model.context or len(tokens))
    windows = ScoredWindows(tokens, window, max(1, window // 2))
    device = next((t.device for t in [*model.parameters(), *model.buffers()]), torch.device("cpu"))
    total = 0.0
    for _, indices in windows.order(batch_size=1, seed=0).once():
        batch = windows.batch(indices, Key(0, 0)).to(device)
        states = model(batch["tokens"], None, batch.get("mask")).states
        scored = batch.get("scored", torch.ones_like(batch["targets"], dtype=torch.bool))
        total -= float(model.losses(states[scored], batch["targets"][scored]).double().sum())
    return Score(total, len(tokens))
