"""The inputs of an autoregressive model in training: the true tokens, its own, or a growing share of its own.

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
    """Teacher forcing by default; `own: 1, shape: constant` is free running, anything between is scheduled sampling.

    Williams & Zipser 1989; Bengio et al. 2015, https://arxiv.org/abs/1506.03099. Own tokens are computed for all
    positions at once, as in Mihaylova & Martins 2019, https://arxiv.org/abs/1906.07651: from the predictions on the
    tokens of the previous pass. After n passes, positions with fewer than n own tokens before them are exactly as in
    step-by-step generation. The same code therefore serves recurrent nets and Transformers.
    """

    own: float = Field(default=0.0, ge=0, le=1)
    """The share of input tokens that are the model's own, at the end of the schedule."""
    shape: Literal["constant", "linear", "sigmoid", "exponential"] = "linear"
    """How the share grows from 0."""
    begin: float = Field(default=0.0, ge=0, le=1)
    """The point in training, from 0 to 1, at which the share begins to grow."""
    end: float = Field(default=1.0, ge=0, le=1)
    """The point in training, from 0 to 1, at which the share reaches `own`."""
    passes: int = Field(default=1, gt=0)
    """Number of passes that compute own tokens, each from the tokens of the previous pass."""
    choose: Literal["sample", "best"] = "sample"
    """Whether own tokens are sampled, or are the most probable ones."""

    @model_validator(mode="after")
    def _ordered(self) -> Forcing:
        if self.end < self.begin:
            raise ValueError("'end' must not come before 'begin'")
        return self

    def share(self, progress: float) -> float:
        """Return the share of own tokens after this share of training."""
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
    """Replace tokens (B, T) by the model's own where `own` is True; `expect` returns logits (B, T, V) after each."""
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
