"""Generation: tokens as they come, for one prompt or many. It knows models only as start / forward / logits.

B rows · T positions · D width · V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqlab.data.batches import padded
from seqlab.decoding.choose import Choose, Greedy
from seqlab.decoding.ranking import best
from seqlab.errors import SeqlabError
from seqlab.models.language_model import LanguageModel, State

CHUNK = 32
"""Prompts are read this many positions at a time: with one shape for all, their bits depend on no neighbour."""


GREEDY = Greedy()


class Token(NamedTuple):
    """A new token of one row."""

    row: int
    id: int
    log_probability: float


@dataclass
class Reading:
    """Prompts that have been read: what comes next, which is computed when it is asked for, and the state to go on
    from."""

    model: LanguageModel
    states: Tensor
    state: State

    @cached_property
    def logits(self) -> Tensor:
        return self.model.logits(self.states)

    def best(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """`ranking.best` of the logits, which a packed model need not hold for that."""
        count = min(count, self.model.vocab_size)
        ranked = getattr(self.model, "best", None)
        return best(self.logits, count) if ranked is None else ranked(self.states, count)


@torch.inference_mode()
def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    choose: Choose = GREEDY,
    tokens: int = 100,
    stop: frozenset[int] = frozenset(),
    source: Mapping[str, Tensor] | None = None,
    requests: Sequence[int] | None = None,
) -> Iterator[list[Token]]:
    """Step by step, the new token of every row that is not finished; a token of `stop` finishes its row.

    A prompt begins with what a text begins with (`<end>`). `requests` number the rows for the noise of sampling.
    """
    reading = read(model, prompts, source)
    device = reading.states.device
    texts = [list(prompt) for prompt in prompts]
    active = list(range(len(prompts)))
    names = torch.tensor(list(requests) if requests is not None else active, device=device)
    for position in range(tokens):
        chances = log_probabilities(reading.logits)
        chosen = choose(reading.logits, names, torch.full_like(names, position))
        scores = chances.gather(1, chosen[:, None])[:, 0]
        new = [Token(*one) for one in zip(active, chosen.tolist(), scores.tolist(), strict=True)]
        yield new
        for token in new:
            texts[token.row].append(token.id)
        going = [place for place, token in enumerate(new) if token.id not in stop]
        if not going or position == tokens - 1:
            return
        state = reading.state
        if len(going) < len(active):
            keep = torch.tensor(going, device=device)
            active, names, chosen, state = (
                [active[p] for p in going],
                names[keep],
                chosen[keep],
                state.reorder(keep),
            )
        reading = advance(model, chosen, state, [texts[row] for row in active], source)


def read(model: LanguageModel, prompts: Sequence[Sequence[int]], source: Mapping[str, Tensor] | None = None) -> Reading:
    """Read prompts of any lengths: the first token, which is all that a translation begins with, then chunks that are
    padded on the right."""
    if not all(prompts):
        raise ValueError("a prompt must have at least one token")
    longest = max(len(prompt) for prompt in prompts)
    if model.context is not None and longest > model.context:
        raise SeqlabError(
            f"a prompt of {longest} tokens is longer than the {model.context} that the model can look at",
            hint="shorten it, or train with a larger model.context",
        )
    state = model.start(source, rows=len(prompts))
    device = state.lengths.device
    tokens, mask = (F.pad(tensor, [0, -(longest - 1) % CHUNK]).to(device) for tensor in padded(prompts))
    lengths = mask.sum(1)
    output = model(tokens[:, :1], state)
    last = output.states[:, -1]
    for start in range(1, longest, CHUNK):
        output = model(tokens[:, start : start + CHUNK], output.state, mask[:, start : start + CHUNK])
        place = (lengths - 1 - start).clamp(0, CHUNK - 1)
        states = output.states[torch.arange(len(prompts), device=device), place]
        ends_here = (lengths > start)[(...,) + (None,) * (states.dim() - 1)]
        last = torch.where(ends_here, states, last)
    return Reading(model, last, output.state)


def pieces(longest: int) -> int:
    """How often `read` calls the model."""
    return 1 + -(-(longest - 1) // CHUNK)


def advance(
    model: LanguageModel,
    tokens: Tensor,
    state: State,
    texts: list[list[int]],
    source: Mapping[str, Tensor] | None,
) -> Reading:
    """One token further. Rows that fill the model's context go on from the second half of it, read anew."""
    full = [] if model.context is None else torch.nonzero(state.lengths >= model.context)[:, 0].tolist()
    if not full:
        return _stepped(model, tokens, state)
    if source is not None:
        raise SeqlabError("the output does not fit into the model's context", hint="ask for fewer tokens")
    assert model.context is not None
    anew = read(model, [texts[row][-max(1, model.context // 2) :] for row in full])
    rest = [row for row in range(len(texts)) if row not in set(full)]
    if not rest:
        return anew
    keep = torch.tensor(rest, device=tokens.device)
    reading = _stepped(model, tokens[keep], state.select(keep))
    back = torch.argsort(torch.tensor(rest + full, device=tokens.device))
    joined = reading.state.join(anew.state).select(back)
    return Reading(model, torch.cat([reading.states, anew.states])[back], joined)


def _stepped(model: LanguageModel, tokens: Tensor, state: State) -> Reading:
    output = model(tokens[:, None], state)
    return Reading(model, output.states[:, -1], output.state)


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
