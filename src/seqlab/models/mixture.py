"""A mixture of language models, which averages their predictions.

B rows · T positions · D total width of all parts · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor, nn

from seqlab import registry
from seqlab.models.encoder import padded
from seqlab.models.language_model import LanguageModel, Output, State
from seqlab.models.sizes import sizes_for
from seqlab.nn.attention import room_for
from seqlab.recipe import Kind, PartSettings


class Mixture(LanguageModel):
    """p(w | h) = Σ_i λ_i p_i(w | h), with Σ_i λ_i = 1

    A neural model with an n-gram model (Mikolov et al. 2011), or an ensemble. The parts are trained separately before
    and stay fixed. Fit λ on other text than an n-gram model was counted on; otherwise it gets all the weight.
    """

    class Settings(PartSettings):
        parts: Annotated[list[SerializeAsAny[PartSettings]], Kind("model")] = Field(min_length=1)
        """Models whose predictions are averaged."""

    weights: Tensor

    takes = ("conditions",)

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        sizes = {"vocab_size": vocab_size, "conditions": conditions}
        kinds = [registry.find("model", part.kind) for part in settings.parts]
        made = [kind(part, **sizes_for(kind, sizes)) for kind, part in zip(kinds, settings.parts, strict=True)]
        self.parts: Sequence[LanguageModel] = nn.ModuleList(made)  # type: ignore[assignment]
        self.requires_grad_(False)
        self.register_buffer("weights", torch.full((len(self.parts),), 1 / len(self.parts)))
        self.layout = self._layout()
        self.context = min((part.context for part in self.parts if part.context is not None), default=None)
        self.normalised = all(part.normalised for part in self.parts)
        self.reads_sources = all(part.reads_sources for part in self.parts)

    @property
    def entries(self) -> int:
        return sum(part.entries for part in self.parts)

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        if source is not None:  # all parts see the same number of positions, so that their attention can be averaged
            source = padded(source, room_for(source["mask"].shape[1]))
        return _together([part.start(source, rows) for part in self.parts])

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        count = len(self.parts)
        apart = [None] * count if state is None else _apart(state.consume(), count)
        outputs = [part(tokens, before, mask, source) for part, before in zip(self.parts, apart, strict=True)]
        after = [output.state for output in outputs if output.state is not None]
        states = torch.cat([_as_integers(output.states) for output in outputs], -1)
        return Output(states, _together(after) if len(after) == count else None)

    def logits(self, states: Tensor) -> Tensor:
        parts = zip(self.parts, self._own(states), strict=True)
        return self._mixed([_log_probabilities(part.logits(own)) for part, own in parts])

    def losses(self, states: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        assert not smoothing  # nothing here is trained by gradients
        return -self._mixed([-losses for losses in self.losses_apart(states, targets)])

    def losses_apart(self, states: Tensor, targets: Tensor) -> list[Tensor]:
        """Return −log p_i(target) for each part."""
        return [part.losses(own, targets) for part, own in zip(self.parts, self._own(states), strict=True)]

    def _mixed(self, log_probabilities: list[Tensor]) -> Tensor:
        terms = [scores + weight.log() for scores, weight in zip(log_probabilities, self.weights, strict=True)]
        return torch.stack(terms).logsumexp(0)

    def _own(self, states: Tensor) -> list[Tensor]:
        """Split states into those of each part, in their original types."""
        widths, kinds = [width for width, _ in self.layout], [kind for _, kind in self.layout]
        pieces = torch.split(states, widths, -1)
        return [
            piece if kind == torch.long else piece.int().view(torch.float32)
            for piece, kind in zip(pieces, kinds, strict=True)
        ]

    @torch.no_grad()
    def _layout(self) -> list[tuple[int, torch.dtype]]:
        """Return the width and the type of each part's states."""
        token = torch.zeros(1, 1, dtype=torch.long)
        seen = [part.eval()(token).states for part in self.parts]
        return [(states.shape[-1], states.dtype) for states in seen]


def _log_probabilities(logits: Tensor) -> Tensor:
    """log softmax, except that rows of only −∞ stay unchanged instead of becoming NaN: the other parts decide."""
    return torch.where(logits.isneginf().all(-1, keepdim=True), logits, logits.log_softmax(-1))


def _as_integers(states: Tensor) -> Tensor:
    """Return the bits of floats as integers, so that one tensor holds them and the ids of n-gram states exactly."""
    return states if states.dtype == torch.long else states.float().view(torch.int32).long()


def _together(states: Sequence[State]) -> State:
    def named(parts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
        return {f"{number}.{name}": one for number, own in enumerate(parts) for name, one in (own or {}).items()}

    rows, shared, pages = (named([getattr(state, part) for state in states]) for part in ("rows", "shared", "pages"))
    return State(rows, states[0].lengths, shared or None, states[0].owner, pages=pages)


def _apart(state: State, parts: int) -> list[State]:
    def own(parts: Mapping[str, Any] | None, number: int) -> dict[str, Any]:
        mine = f"{number}."
        return {name.removeprefix(mine): one for name, one in (parts or {}).items() if name.startswith(mine)}

    apart = []
    for number in range(parts):
        rows, shared, pages = (own(one, number) for one in (state.rows, state.shared, state.pages))
        apart.append(State(rows, state.lengths, shared or None, state.owner, pages=pages))
    return apart


def fit_weights(log_probabilities: Tensor, near: float = 1e-6, rounds: int = 5000) -> Tensor:
    """Fit λ to maximise the probability of held-out tokens, by expectation maximisation: (parts, N) → (parts,).

    λ_i ← λ_i g_i, g_i = mean over the tokens of p_i / Σ_j λ_j p_j, until no λ would grow by more than the relative
    change `near`: the optimum is better by at most log max_i g_i nats per token (Cover 1984). Tokens to which no part
    gives any probability say nothing about λ and are ignored; at least one other token is needed.
    """
    scores = log_probabilities.cpu().double()  # MPS has no float64
    highest = scores.amax(0)
    probabilities = (scores - highest)[:, ~highest.isneginf()].exp()  # per token, up to a factor that cancels out
    weights = torch.full((len(scores),), 1 / len(scores), dtype=scores.dtype)
    for _ in range(rounds):
        growth = (probabilities / (weights @ probabilities)).mean(1)
        weights = weights * growth
        if growth.max() <= 1 + near:
            break
    return weights / weights.sum()
