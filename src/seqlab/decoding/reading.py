"""Reading: prompts, and one token after another. It knows models only as start / forward / logits.

B rows · T positions · D width · V vocabulary · N source positions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from seqlab.data.batching.batches import padded
from seqlab.decoding.alignment import mean_weights, source_weights
from seqlab.decoding.ranking import best
from seqlab.errors import RunError, SeqlabError
from seqlab.models.language_model import LanguageModel, State
from seqlab.nn.recording import record

CHUNK = 32
"""Prompts are read this many positions at a time, so that few shapes occur."""


@dataclass
class Reading:
    """Rows that have been read: what comes next, which is computed when asked for, and the state to go on from."""

    model: LanguageModel
    states: Tensor
    state: State
    attention: Tensor | None = None
    """How much the last position of each row looked at each position of its source, (B, N), if that was asked for."""

    @cached_property
    def logits(self) -> Tensor:
        return self.model.logits(self.states)

    def best(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """`ranking.best` of the logits, which a packed model need not hold for that."""
        count = min(count, self.model.vocab_size)
        ranked = getattr(self.model, "best", None)
        return best(self.logits, count) if ranked is None else ranked(self.states, count)

    def of(self, rows: Sequence[int]) -> Reading:
        """Some of the rows, to choose from; they all share one state."""
        if len(rows) == len(self.states):  # all of them, which are in order
            return self
        chosen = torch.tensor(rows, device=self.states.device)
        attention = None if self.attention is None else self.attention[chosen]
        return Reading(self.model, self.states[chosen], self.state, attention)

    def join(self, other: Reading) -> Reading:
        """The rows of both."""
        attention = self.attention
        if self.attention is not None and other.attention is not None:
            width = max(self.attention.shape[1], other.attention.shape[1])
            both = (F.pad(one, [0, width - one.shape[1]]) for one in (self.attention, other.attention))
            attention = torch.cat(list(both))
        states = torch.cat([self.states, other.states])
        return Reading(self.model, states, self.state.join(other.state), attention)


def read(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    source: Mapping[str, Tensor] | None = None,
    with_attention: bool = False,
) -> Reading:
    """Read prompts of any lengths: the first token, which is all that a translation begins with, then chunks that are
    padded on the right. With `with_attention`, attention to the source is returned as well."""
    check_prompts(model, prompts)
    state = model.start(source, rows=len(prompts))
    device = state.lengths.device
    longest = max(len(prompt) for prompt in prompts)
    tokens, mask = (F.pad(tensor, [0, -(longest - 1) % CHUNK]).to(device) for tensor in padded(prompts))
    lengths = mask.sum(1)
    states, attended, state = _called(model, tokens[:, :1], state, None, with_attention)
    last, attention = states[:, -1], None if attended is None else attended[:, -1]
    rows = torch.arange(len(prompts), device=device)
    for start in range(1, longest, CHUNK):
        piece = slice(start, start + CHUNK)
        states, attended, state = _called(model, tokens[:, piece], state, mask[:, piece], with_attention)
        place, here = (lengths - 1 - start).clamp(0, CHUNK - 1), lengths > start
        last = _where(here, states[rows, place], last)
        attention = None if attended is None or attention is None else _where(here, attended[rows, place], attention)
    return Reading(model, last, state, attention)


def check_prompts(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> None:
    if not all(prompts):
        raise ValueError("a prompt must have at least one token")
    longest = max(len(prompt) for prompt in prompts)
    if model.context is not None and longest > model.context:
        raise SeqlabError(
            f"a prompt of {longest} tokens is longer than the {model.context} that the model can look at",
            hint="shorten it, or train with a larger model.context",
        )


def advance(
    model: LanguageModel,
    tokens: Tensor,
    state: State,
    text: Callable[[int], Sequence[int]],
    with_attention: bool = False,
) -> Reading:
    """One token further. Rows that fill the model's context go on from the second half of it, read anew: `text` is all
    that a row has read, with its new token."""
    full = [] if model.context is None else torch.nonzero(state.lengths >= model.context)[:, 0].tolist()
    if not full:
        return _stepped(model, tokens, state, with_attention)
    if state.owner is not None:
        raise SeqlabError("the output does not fit into the model's context", hint="ask for fewer tokens")
    assert model.context is not None
    anew = read(model, [text(row)[-max(1, model.context // 2) :] for row in full])
    rest = [row for row in range(len(tokens)) if row not in set(full)]
    if not rest:
        return anew
    keep = torch.tensor(rest, device=tokens.device)
    joined = _stepped(model, tokens[keep], state.reorder(keep), with_attention).join(anew)
    back = torch.argsort(torch.tensor(rest + full, device=tokens.device))
    return Reading(model, joined.states[back], joined.state.reorder(back))


def _stepped(model: LanguageModel, tokens: Tensor, state: State, with_attention: bool) -> Reading:
    states, attended, state = _called(model, tokens[:, None], state, None, with_attention)
    return Reading(model, states[:, -1], state, None if attended is None else attended[:, -1])


def _called(
    model: LanguageModel, tokens: Tensor, state: State, mask: Tensor | None, with_attention: bool
) -> tuple[Tensor, Tensor | None, State]:
    """What a model makes of tokens (B, T): states, how much each position looked at its source, (B, T, N), and the
    state after. Layers and heads are averaged."""
    if not with_attention:
        output = model(tokens, state, mask)
        return output.states, None, output.state
    places = source_weights(model)
    if not places:
        hint = "leave the coverage penalty out"
        raise RunError("this model has no attention: what it has looked at is not known", hint=hint)
    with record(model, *places) as tape:
        output = model(tokens, state, mask)
    return output.states, mean_weights(tape), output.state


def _where(here: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Rows (B, ...) of one or the other."""
    return torch.where(here[(...,) + (None,) * (new.dim() - 1)], new, old)


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax, (B, V) → (B, V); a row without any is an error."""
    found = logits.log_softmax(-1)
    if bool(found[:, 0].isnan().any()):  # one that is not a number, or nothing but −∞, makes its whole row so
        raise unseen()
    return found


def unseen() -> SeqlabError:
    return SeqlabError(
        "the model gives no token any probability here: it has never seen this context",
        hint="use a smoothed model, or another prompt",
    )
