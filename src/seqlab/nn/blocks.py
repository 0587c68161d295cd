"""The Transformer's block and its feed-forward part.

B batch · T time · D width
"""

from __future__ import annotations

import math
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.nn.attention import Cache, SelfAttention
from seqlab.recipe import Settings


def gelu(x: Tensor) -> Tensor:
    """x (1 + tanh u) / 2 = x σ(2 u) with u = √(2 / π) (x + 0.044715 x³)

    Hendrycks & Gimpel 2016, https://arxiv.org/abs/1606.08415
    """
    if torch.compiler.is_compiling():  # the second form: in compiled kernels exp is four times as fast as tanh
        scale = 2 * math.sqrt(2 / math.pi)
        return x * torch.sigmoid(x * (scale + 0.044715 * scale * x * x))
    return F.gelu(x, approximate="tanh")


class FeedForward(nn.Module):
    """W₂ gelu(W₁ x), with the tanh form of gelu as in GPT."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(gelu(self.expand(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """x + attend(norm(x)), then x + feed(norm(x)): norms before the parts, as in GPT-2."""

    def __init__(self, attend: SelfAttention, feed: FeedForward, width: int, dropout: float) -> None:
        super().__init__()
        self.norm_attend, self.attend = nn.LayerNorm(width), attend
        self.norm_feed, self.feed = nn.LayerNorm(width), feed
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cache: Cache | None = None, mask: Tensor | None = None) -> Tensor:
        x = x + self.dropout(self.attend(self.norm_attend(x), cache, mask))
        return x + self.dropout(self.feed(self.norm_feed(x)))  # type: ignore[no-any-return]


class Tower(Settings):
    """How many blocks stand one above the other, and of which size: the part of a recipe that all Transformers have."""

    width: int = Field(default=128, gt=0)
    depth: int = Field(default=2, gt=0, le=1000)
    heads: int = Field(default=4, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Apart, because it costs the fused kernel on the CPU."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self

    def built(self, causal: bool = True) -> nn.ModuleList:
        return nn.ModuleList(
            Block(
                SelfAttention(self.width, self.heads, self.attention_dropout, causal),
                FeedForward(self.width, 4 * self.width),
                self.width,
                self.dropout,
            )
            for _ in range(self.depth)
        )


def start_as_gpt2(model: nn.Module, depth: int) -> None:
    """Normal with 0.02, the maps that end a residual branch smaller by √(2 depth), biases at zero."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            ends_branch = name.endswith(("attend.output.weight", "feed.contract.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * depth) ** 0.5 if ends_branch else 0.02)
