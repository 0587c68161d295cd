"""What an autoregressive model reads while it learns: the right tokens, its own, or more and more of its own.

B rows · T positions
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from seqlab.recipe import Settings


class Forcing(Settings):
    """Teacher forcing by default. `own: 1` with `shape: constant` is free running, anything between scheduled sampling.

    Williams & Zipser 1989; Bengio et al. 2015, https://arxiv.org/abs/1506.03099. Own tokens are found for all positions
    at once, as in Mihaylova & Martins 2019, https://arxiv.org/abs/1906.07651: from what the model expects after the
    tokens of the pass before. After n passes, positions with less than n own tokens before them are exactly as they
    would be one by one. So it is one thing for recurrent nets and Transformers.
    """

    own: float = Field(default=0.0, ge=0, le=1)
    """The share of the tokens read that are the model's own, at the end of the schedule."""
    shape: Literal["constant", "linear", "sigmoid", "exponential"] = "linear"
    """How the share grows from 0."""
    begin: float = Field(default=0.0, ge=0, le=1)
    """The share of the training after which it begins to grow."""
    end: float = Field(default=1.0, ge=0, le=1)
    """The share of the training after which it has grown."""
    passes: int = Field(default=1, gt=0)
    """How often own tokens are found anew, each time after those of the pass before."""
    choose: Literal["sample", "best"] = "sample"
    """Whether own tokens are sampled or the most probable ones."""

    @model_validator(mode="after")
    def _ordered(self) -> Forcing:
        if self.end < self.begin:
            raise ValueError("'end' comes before 'begin'")
        return self

    def share(self, progress: float) -> float:
        """Of own tokens, when this share of the training is done."""
        if self.shape == "constant":
            return self.own
        span = self.end - self.begin
        x = min(max((progress - self.begin) / span, 0.0), 1.0) if span else float(progress >= self.begin)
        if self.shape == "sigmoid":
            low, high = (1 / (1 + math.exp(-12 * (place - 0.5))) for place in (0.0, 1.0))
            x = (1 / (1 + math.exp(-12 * (x - 0.5))) - low) / (high - low)
        elif self.shape == "exponential":
            x = (1 - math.exp(-5 * x)) / (1 - math.exp(-5))
        return self.own * x


def forced(tokens: Tensor, own: Tensor, settings: Forcing, expect: Callable[[Tensor], Tensor]) -> Tensor:
    """Tokens (B, T) with the model's own where `own` is True; `expect` gives logits (B, T, V) after each of them."""
    inputs = tokens
    with torch.no_grad():
        for _ in range(settings.passes):
            logits = expect(inputs)
            if settings.choose == "sample":
                guesses = torch.distributions.Categorical(logits=logits).sample()  # type: ignore[no-untyped-call]
            else:
                guesses = logits.argmax(-1)
            inputs = torch.where(own, torch.cat([tokens[:, :1], guesses[:, :-1]], 1), tokens)
    return inputs
