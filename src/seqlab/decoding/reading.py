"""Reads prompts and then one token at a time. All it needs of a model is start, forward and logits.

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
from seqlab.nn.recording import Place, record

CHUNK = 32
"""Positions of a prompt read at a time; a fixed size keeps the number of shapes small."""


@dataclass
class Reading:
    """Rows that have been read: the logits of the next token, computed on demand, and the state to continue from."""

    model: LanguageModel
    states: Tensor
    state: State
    attention: Tensor | None = None
    """The attention of each row's last position to its source, (B, N), if it was requested."""

    @cached_property
    def logits(self) -> Tensor:
        return self.model.logits(self.states)

    def best(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """`ranking.best` of the logits; a packed model need not store them for this."""
        count = min(count, self.model.vocab_size)
        ranked = getattr(self.model, "best", None)
        return best(self.logits, count) if ranked is None else ranked(self.states, count)

    def of(self, rows: Sequence[int]) -> Reading:
        """Return some of the rows, to choose tokens for; the state remains that of all rows."""
        if len(rows) == len(self.states):  # all rows, in order
            return self
        chosen = torch.tensor(rows, device=self.states.device)
        attention = None if self.attention is None else self.attention[chosen]
        return Reading(self.model, self.states[chosen], self.state, attention)

    def join(self, other: Reading) -> Reading:
        """Join the rows of two readings."""
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
    """Read prompts of any length: first one token, which is the whole prompt of a translation, then chunks that are
    padded on the right. With `with_attention`, also return the attention to the source."""
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
    if odd := [token for prompt in prompts for token in prompt if not 0 <= token < model.vocab_size]:
        raise ValueError(f"token {odd[0]} of a prompt is not in the vocabulary of {model.vocab_size:,}")
    longest = max(len(prompt) for prompt in prompts)
    if model.context is not None and longest > model.context:
        raise SeqlabError(
            f"the prompt has {longest} tokens, longer than the model's context of {model.context}",
            hint="shorten the prompt, or train with a larger model.context",
        )


def advance(
    model: LanguageModel,
    tokens: Tensor,
    state: State,
    text: Callable[[int], Sequence[int]],
    with_attention: bool = False,
) -> Reading:
    """Read one more token per row. A row that fills the model's context continues from the last half of it, read again;
    `text(row)` is everything that the row has read, including the new token."""
    full = [] if model.context is None else torch.nonzero(state.lengths >= model.context)[:, 0].tolist()
    if not full:
        return _stepped(model, tokens, state, with_attention)
    if state.owner is not None:
        raise no_room()
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
    """Run a model on tokens (B, T); return its states, the attention to the source, (B, T, N), averaged over layers and
    heads, and the state after."""
    if not with_attention:
        output = model(tokens, state, mask)
        return output.states, None, output.state
    with record(model, *places_of_attention(model)) as tape:
        output = model(tokens, state, mask)
    return output.states, mean_weights(tape), output.state


def places_of_attention(model: LanguageModel) -> list[Place]:
    places = source_weights(model)
    if not places:
        hint = "remove the coverage penalty"
        raise RunError("this model has no attention, so its coverage of the source is unknown", hint=hint)
    return places


def _where(here: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Choose rows (B, ...) of one tensor or the other."""
    return torch.where(here[(...,) + (None,) * (new.dim() - 1)], new, old)


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax, (B, V) → (B, V); raise an error if a row has no distribution."""
    found = logits.log_softmax(-1)
    if bool(found[:, 0].isnan().any()):  # a single NaN, or nothing but −∞, makes the whole row NaN
        raise no_distribution(logits)
    return found


def no_room() -> SeqlabError:
    return SeqlabError("the output does not fit into the model's context", hint="ask for fewer tokens")


def no_distribution(logits: Tensor) -> SeqlabError:
    """Return the error for logits of which one row or more is not a distribution."""
    if bool((logits == -torch.inf).all(-1).any()):
        what = "the model gives every token a probability of zero here, because it has never seen this context"
        return SeqlabError(what, hint="use a smoothed model, or another prompt")
    what, hint = "the logits of the model are NaN or infinite: its training diverged", "lower training.learning_rate"
    return SeqlabError(what, hint=hint)
