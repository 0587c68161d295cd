"""The Transformer's block and its feed-forward part.

B batch · T time · D width
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.nn.attention import Cache, CrossAttention, SelfAttention, Source
from seqlab.nn.dropout import Dropout
from seqlab.recipe import Settings


def gelu(x: Tensor) -> Tensor:
    """x (1 + tanh u) / 2 = x σ(2 u) with u = √(2 / π) (x + 0.044715 x³)

    Hendrycks & Gimpel 2016, https://arxiv.org/abs/1606.08415
    """
    if torch.compiler.is_compiling():  # the second form: in compiled kernels exp is four times as fast as tanh
        scale = 2 * math.sqrt(2 / math.pi)
        return x * torch.sigmoid(x * (scale + 0.044715 * scale * x * x))
    return F.gelu(x, approximate="tanh")


Activation = Literal["gelu", "relu", "swish"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "relu": torch.relu, "swish": F.silu}


class FeedForward(nn.Module):
    """W₂ g(W₁ x), with the tanh form of gelu as in GPT, relu as in 2017, or swish."""

    def __init__(self, width: int, hidden: int, activation: Activation = "gelu") -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(ACTIVATIONS[self.activation](self.expand(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """x + attend(norm(x)), then x + look(norm(x)) at a source if there is one, then x + feed(norm(x)).

    Norms stand before the parts, as in GPT-2, or after the sums, norm(x + attend(x)), as in 2017.
    """

    def __init__(
        self,
        attend: SelfAttention,
        feed: FeedForward,
        width: int,
        dropout: float,
        look: CrossAttention | None = None,
        norm: Literal["before", "after"] = "before",
    ) -> None:
        super().__init__()
        self.norm_attend, self.attend = nn.LayerNorm(width), attend
        if look is not None:
            self.norm_look, self.look = nn.LayerNorm(width), look
        self.norm_feed, self.feed = nn.LayerNorm(width), feed
        self.dropout, self.norm_before = Dropout(dropout), norm == "before"

    def forward(
        self, x: Tensor, cache: Cache | None = None, mask: Tensor | None = None, source: Source | None = None
    ) -> Tensor:
        x = self._add(x, self.norm_attend, lambda y: self.attend(y, cache, mask))
        if source is not None:
            x = self._add(x, self.norm_look, lambda y: self.look(y, source))
        return self._add(x, self.norm_feed, self.feed)

    def _add(self, x: Tensor, norm: nn.LayerNorm, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_before:
            return x + self.dropout(part(norm(x)))  # type: ignore[no-any-return]
        return norm(x + self.dropout(part(x)))  # type: ignore[no-any-return]


class Tower(Settings):
    """How many blocks stand one above the other, and of which size: the part of a recipe that all Transformers have."""

    width: int = Field(default=128, gt=0)
    depth: int = Field(default=2, gt=0, le=1000)
    heads: int = Field(default=4, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Apart, because it costs the fused kernel on the CPU."""
    hidden: int | None = Field(default=None, gt=0)
    """The width inside of the feed-forward parts; 4 · width by default."""
    activation: Activation = "gelu"
    norm: Literal["before", "after"] = "before"
    """Of each part: x + part(norm(x)), or norm(x + part(x)) as in 2017, which needs a warmup."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self

    def built(self, causal: bool = True, looks: bool = False, depth: int | None = None) -> nn.ModuleList:
        """The blocks; `looks` at a source, and of another depth than this one."""
        width, heads, dropout = self.width, self.heads, self.attention_dropout
        return nn.ModuleList(
            Block(
                SelfAttention(width, heads, dropout, causal),
                FeedForward(width, self.hidden or 4 * width, self.activation),
                width,
                self.dropout,
                CrossAttention(width, heads, dropout) if looks else None,
                self.norm,
            )
            for _ in range(self.depth if depth is None else depth)
        )

    def last_norm(self) -> nn.Module:
        """What follows the last block: a norm, unless the block ends with one."""
        return nn.LayerNorm(self.width) if self.norm == "before" else nn.Identity()


def start_as_gpt2(model: nn.Module, depth: int) -> None:
    """Normal with 0.02, the maps that end a residual branch smaller by √(2 depth), biases at zero."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            ends_branch = name.endswith(("attend.output.weight", "look.output.weight", "feed.contract.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * depth) ** 0.5 if ends_branch else 0.02)
