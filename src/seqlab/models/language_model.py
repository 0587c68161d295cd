"""The interface of all models that predict the next token, and the State they carry.

B rows · T positions · D width · V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.models.sizes import VOCABULARY
from seqlab.nn.pages import Pages
from seqlab.recipe import PartSettings


class Output(NamedTuple):
    """States (B, T, D), from which logits are computed, and the state after the last position."""

    states: Tensor
    state: State | None
    undropped: Tensor | None = None
    """The states before dropout, if the model has any: regularisers of their size use these."""


class LanguageModel(nn.Module, ABC):
    """p(next token | tokens so far [, source]). `self` keeps nothing between calls.

    Constructed as `cls(settings, **sizes)`, such as `def __init__(self, settings, vocab_size)`. The sizes come from the
    task: those that the class `needs`, and those that it `takes` if the task has them.
    """

    Settings: ClassVar[type[PartSettings]]
    needs: ClassVar[tuple[str, ...]] = VOCABULARY
    """Names of the sizes required to build it (`Task.sizes`)."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Names of optional sizes, which only some tasks have."""
    vocab_size: int
    context: int | None = None
    """The most positions it can look at; None if there is no limit."""
    reads_sources: bool = False
    """Whether its predictions depend on a source."""
    normalised: bool = True
    """Whether its scores are probabilities; scores that do not sum to one have no perplexity."""

    @property
    def entries(self) -> int:
        """The number of table entries, for models that count instead of learning weights."""
        return 0 if any(True for _ in self.parameters()) else sum(table.numel() for table in self.buffers())

    @abstractmethod
    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        """Return the state before any token; encode the source if there is one."""

    @abstractmethod
    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        """Read tokens (B, T) after `state`, which is consumed. `mask` is True at real tokens, which come first.

        Without a state, the rows are new, and no state is returned if making one has a cost. Each row may then have its
        own source, in the form that `start` accepts.
        """

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """(..., D) → (..., V). Separate from `forward`, so that logits are computed only where they are needed."""

    def losses(self, states: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """−log p(target) at each position: (N, D), (N,) → (N,). Some models override it to avoid computing all logits.

        With `smoothing` ε, it is (1 − ε) (−log p(target)) + ε times the mean of −log p over all tokens.
        """
        return F.cross_entropy(self.logits(states), targets, reduction="none", label_smoothing=smoothing)

    @final
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token per row: (B,) → logits (B, V) and the state after it."""
        output = self(tokens[:, None], state)
        return self.logits(output.states[:, -1]), output.state


class TokenModel(LanguageModel):
    """A model with token embeddings, and an output layer that computes logits from its states.

    The constructor sets `vocab_size`, `embedding` and `output`.
    """

    embedding: Any
    output: Any

    def logits(self, states: Tensor) -> Tensor:
        return self.output.logits(states, self.embedding)  # type: ignore[no-any-return]

    def losses(self, states: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        return self.output.losses(states, targets, self.embedding, smoothing)  # type: ignore[no-any-return]


@dataclass
class State:
    """What a model remembers of the tokens it has read, row by row.

    `rows` holds tensors (B, ...). One of the other dimensions may be time, with spare room beyond the row's length.
    `shared` holds tensors (S, ...) of sources: row b reads source `owner[b]`, and `select` never copies them. `forward`
    consumes the state it is given; to keep a state, copy it with `select` first.
    """

    rows: dict[str, Tensor]
    lengths: Tensor
    shared: dict[str, Tensor] | None = None
    owner: Tensor | None = None
    used: bool = False
    pages: dict[str, Pages] = field(default_factory=dict)
    """Caches that rows share. They belong to one state at a time."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def sources(self) -> int:
        """S"""
        return len(next(iter(self.shared.values()))) if self.shared else 0

    def consume(self) -> State:
        """Mark the state as used; called by `forward`. States can be used only once, since buffers change in place."""
        self._fresh()
        self.used = True
        return replace(self, rows=dict(self.rows), used=False)

    def select(self, rows: Tensor) -> State:
        """Return a copy of the given rows: reordered, repeated or dropped."""
        self._fresh()
        pages = {name: one.select(rows.tolist()) for name, one in self.pages.items()}
        return replace(self._selected(rows), pages=pages)

    def reorder(self, rows: Tensor) -> State:
        """Like `select`, but consume this state, so that pages need not be copied."""
        after = self.consume()
        if torch.equal(rows, torch.arange(len(self), device=rows.device)):
            return after
        for pages in after.pages.values():
            pages.reorder(rows.tolist())
        return after._selected(rows)

    def join(self, other: State) -> State:
        """Join the rows of two states and consume both. Buffers of different lengths are padded; sources that no row
        reads any more are dropped."""
        for one in (self, other):
            one._fresh()
        (shared, owner), (more, their) = self._sources(), other._sources()
        if (owner is None) != (their is None):
            raise ValueError("cannot join a state with a source and a state without one")
        if owner is not None and their is not None:
            shared = {name: _stack(tensor, more[name]) for name, tensor in shared.items()}
            owner = torch.cat([owner, their + int(owner.max()) + 1])
        rows = {name: _stack(tensor, other.rows[name]) for name, tensor in self.rows.items()}
        lengths = torch.cat([self.lengths, other.lengths])
        after = replace(self.consume(), rows=rows, lengths=lengths, shared=shared or None, owner=owner)
        theirs = other.consume().pages
        for name, pages in after.pages.items():
            pages.join(theirs[name])
        return after

    def compact(self) -> State:
        """Return the same rows without the sources that none of them reads any more."""
        self._fresh()
        shared, owner = self._sources()
        return replace(self, rows=dict(self.rows), shared=shared or None, owner=owner)

    def detach(self) -> State:
        """Return the same values detached from the graph: where truncated BPTT cuts."""
        self._fresh()
        return replace(self, rows={name: tensor.detach() for name, tensor in self.rows.items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return named tensors for a checkpoint. The states of streams have no sources."""
        assert self.shared is None
        assert not self.pages
        return {"lengths": self.lengths, **{f"rows.{name}": tensor for name, tensor in self.rows.items()}}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> State:
        rows = {name.removeprefix("rows."): t for name, t in tensors.items() if name.startswith("rows.")}
        return cls(rows, tensors["lengths"])

    def _fresh(self) -> None:
        if self.used:
            raise RuntimeError("this State has already been used; keep a copy with select() before forward()")

    def _selected(self, rows: Tensor) -> State:
        """Select rows of everything but the pages."""
        chosen = {name: tensor.index_select(0, rows) for name, tensor in self.rows.items()}
        owner = None if self.owner is None else self.owner.index_select(0, rows)
        return replace(self, rows=chosen, lengths=self.lengths.index_select(0, rows), owner=owner)

    def _sources(self) -> tuple[dict[str, Tensor], Tensor | None]:
        """Return the sources that are still read, and the source of each row."""
        if self.shared is None or self.owner is None:
            return {}, None
        read, owner = torch.unique(self.owner, return_inverse=True)
        different = {id(tensor): tensor for tensor in self.shared.values()}  # a tensor with two names stays one
        chosen = {key: tensor.index_select(0, read) for key, tensor in different.items()}
        return {name: chosen[id(tensor)] for name, tensor in self.shared.items()}, owner


def _stack(a: Tensor, b: Tensor) -> Tensor:
    """Concatenate rows; pad shorter dimensions with zeros."""
    sizes = [max(pair) for pair in zip(a.shape[1:], b.shape[1:], strict=True)]
    return torch.cat([_filled(a, sizes), _filled(b, sizes)])


def _filled(tensor: Tensor, sizes: list[int]) -> Tensor:
    missing = [size - own for size, own in zip(sizes, tensor.shape[1:], strict=True)]
    return F.pad(tensor, [n for more in reversed(missing) for n in (0, more)]) if any(missing) else tensor


def real_lengths(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Return the number of real tokens in each row: (B,)."""
    if mask is None:
        return torch.full((len(tokens),), tokens.shape[1], dtype=torch.long, device=tokens.device)
    return mask.sum(1)


def no_source(model: Any, source: object) -> None:
    if source is not None:
        raise ValueError(f"{type(model).__name__} takes no source")
