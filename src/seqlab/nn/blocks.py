"""The Transformer block and its feed-forward part.

B batch · T time · D width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from seqlab.errors import RecipeError
from seqlab.nn.activations import Activation, activated
from seqlab.nn.attention import Cache, CrossAttention, Places, SelfAttention, Source
from seqlab.nn.dropout import Dropout
from seqlab.nn.normalisers import NORMALISERS, NormaliserName
from seqlab.nn.norms import Norm, NormName, norm_of
from seqlab.nn.part import Part
from seqlab.nn.positions import PositionSettings, PositionShape
from seqlab.nn.recording import note
from seqlab.recipe import Settings


class FeedForward(Part):
    """W₂ g(W₁ x), where g is the tanh form of gelu as in GPT, relu as in the 2017 paper, or swish."""

    compiled_from: int | None = None
    """As in `LinearMap`; the activation follows it."""

    def __init__(self, width: int, hidden_width: int, activation: Activation = "gelu", bias: bool = True) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden_width, bias=bias)
        self.contract = nn.Linear(hidden_width, width, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        hidden = note(self, "hidden", activated(self.expand(x), self.activation, self.compiled_from))
        return note(self, "output", self.contract(hidden))


class GatedFeedForward(Part):
    """W₂ (g(V x) ∘ W₁ x); Shazeer 2020, https://arxiv.org/abs/2002.05202"""

    compiled_from: int | None = None
    """As in `FeedForward`."""

    def __init__(self, width: int, hidden_width: int, activation: Activation = "swish", bias: bool = True) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden_width, bias=bias)
        self.expand = nn.Linear(width, hidden_width, bias=bias)
        self.contract = nn.Linear(hidden_width, width, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        gate = note(self, "gate", activated(self.gate(x), self.activation, self.compiled_from))
        return note(self, "output", self.contract(note(self, "hidden", gate * self.expand(x))))


class Block(Part):
    """x + attend(norm(x)), then x + cross_attend(norm(x)) if there is a source, then x + feed(norm(x)).

    Norms come before the parts, as in GPT-2, or after the sums, norm(x + attend(x)), as in the 2017 paper.
    """

    def __init__(
        self,
        attend: SelfAttention,
        feed: FeedForward | GatedFeedForward,
        norm: Norm,
        dropout: float = 0.0,
        cross_attend: CrossAttention | None = None,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.attend: SelfAttention
        self.feed: FeedForward | GatedFeedForward
        self.norm_attend, self.attend = norm(), attend
        if cross_attend is not None:
            self.norm_cross_attend, self.cross_attend = norm(), cross_attend
        self.norm_feed, self.feed = norm(), feed
        self.dropout, self.norm_first = Dropout(dropout), norm_first

    def forward(
        self,
        x: Tensor,
        cache: Cache | None = None,
        mask: Tensor | None = None,
        source: Source | None = None,
        places: Places | None = None,
    ) -> Tensor:
        return note(self, "output", self.compute(x, cache, mask, source, places))

    def compute(
        self, x: Tensor, cache: Cache | None, mask: Tensor | None, source: Source | None, places: Places | None
    ) -> Tensor:
        x = self._add(x, self.norm_attend, lambda y: self.attend(y, cache, mask, places))
        if source is not None:
            x = self._add(x, self.norm_cross_attend, lambda y: self.cross_attend(y, source))
        return self._add(x, self.norm_feed, self.feed)

    def _add(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.dropout(part(norm(x)))  # type: ignore[no-any-return]
        return norm(x + self.dropout(part(x)))  # type: ignore[no-any-return]


class TransformerSettings(Settings):
    """The settings of the blocks that all Transformers share: their number, sizes and parts."""

    width: int = Field(default=128, gt=0)
    depth: int = Field(default=2, gt=0, le=1000)
    heads: int = Field(default=4, gt=0)
    key_heads: int | None = Field(default=None, gt=0)
    """Number of key and value heads, each shared by heads / key_heads query heads; `heads` by default."""
    head_width: int | None = Field(default=None, gt=0)
    """Width of a head; width / heads by default."""
    scores: NormaliserName = "softmax"
    """How scores become attention weights: `softmax`; `sparse`, with exact zeros (1.5-entmax); or `quiet`, a softmax
    whose weights may all be near zero."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout of attention weights. It has its own key because it rules out the fused kernel on the CPU."""
    hidden_width: int | None = Field(default=None, gt=0)
    """Width of the hidden layer in feed-forward parts; 4 · width by default."""
    activation: Activation = "gelu"
    gated: bool = False
    """Whether feed-forward parts are gated: W₂ (g(V x) ∘ W₁ x)."""
    bias: bool = True
    """Whether the linear maps in the blocks have a bias."""
    norm: NormName = "layer"
    norm_first: bool = True
    """If true, x + part(norm(x)); otherwise norm(x + part(x)) as in the 2017 paper, which needs a warm-up."""
    epsilon: float = Field(default=1e-5, gt=0)
    """ε in the norms, for numerical stability."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.head_width is None and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.key_heads is not None and self.heads % self.key_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of key_heads {self.key_heads}")
        return self

    @property
    def new_norm(self) -> Norm:
        return norm_of(self.norm, self.width, self.epsilon)

    @property
    def attention(self) -> dict[str, Any]:
        """Arguments for self- and cross-attention."""
        return {
            "width": self.width,
            "heads": self.heads,
            "dropout": self.attention_dropout,
            "key_heads": self.key_heads,
            "head_width": self.head_width,
            "bias": self.bias,
            "normalise": NORMALISERS[self.scores],
        }

    def embedded(self, position: PositionSettings) -> int:
        """The width of the embeddings: what positions leave of `width`."""
        if position.taken >= self.width:
            what, hint = f"{position.taken} of {self.width} numbers leave none for the words", "lower it"
            raise RecipeError(what, where="model.position.concatenate", hint=hint)
        return self.width - position.taken

    def shape(self, length: int | None = None, causal: bool = True) -> PositionShape:
        """The sizes that a position part has to fit."""
        return PositionShape(self.width, self.heads, self.head_width or self.width // self.heads, length, causal)


def feed_forward(settings: TransformerSettings) -> FeedForward | GatedFeedForward:
    kind = GatedFeedForward if settings.gated else FeedForward
    return kind(settings.width, settings.hidden_width or 4 * settings.width, settings.activation, settings.bias)


def start_as_gpt2(model: nn.Module, depth: int) -> None:
    """Draw weights with standard deviation 0.02, over √(2 depth) at the end of residual branches; zero the biases."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            ends_branch = name.endswith(("attend.output.weight", "cross_attend.output.weight", "feed.contract.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * depth) ** 0.5 if ends_branch else 0.02)
