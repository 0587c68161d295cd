"""The interface of every model that predicts the next token, and the State it carries.

B rows · T positions · D width · V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.recipe import PartSettings


class Output(NamedTuple):
    """States (B, T, D) to compute logits from, and the state after the last position."""

    states: Tensor
    state: State | None


class LanguageModel(nn.Module, ABC):
    """p(next token | tokens so far [, source]). Nothing is kept in `self` between calls."""

    Settings: ClassVar[type[PartSettings]]
    vocab_size: int
    context: int | None = None
    """The most positions it can look at; None where there is no limit."""

    @abstractmethod
    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        """The state before any token; encodes a source if there is one."""

    @abstractmethod
    def forward(self, tokens: Tensor, state: State | None = None, mask: Tensor | None = None) -> Output:
        """Read tokens (B, T) after `state`, which is used up. `mask` is True at real tokens, which come first.

        Without a state the rows are new, and a state that costs anything to make is not returned.
        """

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """(..., D) → (..., V): apart from `forward`, so that only the positions asked for pay for it."""

    def losses(self, states: Tensor, targets: Tensor) -> Tensor:
        """−log p(target) at each position: (N, D), (N,) → (N,). For models with a cheaper way than all logits."""
        return F.cross_entropy(self.logits(states), targets, reduction="none")

    @final
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """One token a row: (B,) → logits (B, V) and the state after it."""
        output = self(tokens[:, None], state)
        return self.logits(output.states[:, -1]), output.state


@dataclass
class State:
    """What a model knows after some tokens, row by row.

    `rows` are tensors (B, ...); `growing` names those whose dimension 1 is time, with room to spare behind the
    row's length. `shared` are tensors (S, ...) that belong to sources: row b reads source `owner[b]`, and
    `select` never copies them. `forward` consumes the state it is given: keep a copy with `select` if you need it.
    """

    rows: dict[str, Tensor]
    lengths: Tensor
    growing: frozenset[str] = frozenset()
    shared: dict[str, Tensor] | None = None
    owner: Tensor | None = None
    used: bool = False

    def __len__(self) -> int:
        return len(self.lengths)

    def consume(self) -> State:
        """Called by `forward`: a state can be read from once, since its buffers may be written in place."""
        if self.used:
            raise RuntimeError("this State was used already; keep a copy with select() before forward()")
        self.used = True
        return State(dict(self.rows), self.lengths, self.growing, self.shared, self.owner)

    def select(self, rows: Tensor) -> State:
        """Reorder, repeat or drop rows."""
        return State(
            {name: tensor.index_select(0, rows) for name, tensor in self.rows.items()},
            self.lengths.index_select(0, rows),
            self.growing,
            self.shared,
            None if self.owner is None else self.owner.index_select(0, rows),
        )

    def join(self, other: State) -> State:
        """The rows of both; buffers of different capacity are padded."""
        shared, owner = None, None
        if self.shared is not None and other.shared is not None:
            assert self.owner is not None
            assert other.owner is not None
            sources = len(next(iter(self.shared.values())))
            shared = {name: _stack(tensor, other.shared[name]) for name, tensor in self.shared.items()}
            owner = torch.cat([self.owner, other.owner + sources])
        rows = {name: _stack(tensor, other.rows[name]) for name, tensor in self.rows.items()}
        return State(rows, torch.cat([self.lengths, other.lengths]), self.growing, shared, owner)

    def detach(self) -> State:
        """The same numbers without their history: where truncated BPTT cuts."""
        rows = {name: tensor.detach() for name, tensor in self.rows.items()}
        return State(rows, self.lengths, self.growing, self.shared, self.owner)

    def tensors(self) -> dict[str, Tensor]:
        """As named tensors, for a checkpoint. Streams carry no sources."""
        assert self.shared is None
        return {"lengths": self.lengths, **{f"rows.{name}": tensor for name, tensor in self.rows.items()}}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], growing: frozenset[str] = frozenset()) -> State:
        rows = {name.removeprefix("rows."): t for name, t in tensors.items() if name.startswith("rows.")}
        return cls(rows, tensors["lengths"], growing)


def _stack(a: Tensor, b: Tensor) -> Tensor:
    """Concatenate rows; a shorter dimension 1 is filled with zeros."""
    if a.dim() > 1 and a.shape[1] != b.shape[1]:
        room = max(a.shape[1], b.shape[1])
        a, b = (F.pad(t, [0, 0] * (t.dim() - 2) + [0, room - t.shape[1]]) for t in (a, b))
    return torch.cat([a, b])


def real_lengths(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """How many real tokens each row has: (B,)."""
    if mask is None:
        return torch.full((len(tokens),), tokens.shape[1], dtype=torch.long, device=tokens.device)
    return mask.sum(1)


def no_source(model: Any, source: object) -> None:
    if source is not None:
        raise ValueError(f"{type(model).__name__} takes no source")
