"""Why training fails: how far back gradients reach, what the recurrent matrices do to them, and what the gates do.

B rows · T positions · H width of the state
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqlab.models.language_model import LanguageModel
from seqlab.nn.cells import Cell
from seqlab.nn.products import products
from seqlab.nn.recording import record
from seqlab.nn.recurrent import Recurrent


@dataclass(frozen=True)
class Matrix:
    """A recurrent matrix H × H (one block of a gated cell's): what it does to a vector, again and again."""

    name: str
    radius: float
    """The largest |λ|: below 1, powers of the matrix die out; above 1, they may grow. (1.01^1000 ≈ 21,000.)"""
    singular: list[float]
    """Largest first; one above 1 permits explosion, it does not ensure it."""


@dataclass(frozen=True)
class Gate:
    name: str
    mean: float
    shut: float
    """The share of values below 0.1."""
    open: float
    """The share of values above 0.9."""


@dataclass(frozen=True)
class Health:
    """All of it as plain data."""

    distances: list[int]
    norms: dict[str, list[float]]
    """For each part of the state: ‖∂ loss at the last position / ∂ state so many positions before‖, mean of rows."""
    matrices: list[Matrix]
    gates: list[Gate]


def health(model: LanguageModel, tokens: Tensor, targets: Tensor) -> Health:
    """Of a recurrent model that reads tokens (B, T); the loss is that of the last target of each row, (B,)."""
    norms = gradients_through_time(model, tokens, targets)
    length = tokens.shape[1]
    return Health(list(range(length)), norms, list(matrices(model)), gates(model, tokens))


def gradients_through_time(model: LanguageModel, tokens: Tensor, targets: Tensor) -> dict[str, list[float]]:
    """∂ loss / ∂ state by all paths, through every state in between; nearest first."""
    state = model.start(rows=len(tokens))
    seen: list[dict[str, Tensor]] = []
    with torch.enable_grad():
        for position in tokens.unbind(1):
            output = model(position[:, None], state)
            assert output.state is not None
            state = output.state
            for part in state.rows.values():
                part.requires_grad_() if part.is_leaf else part.retain_grad()
            seen.append(dict(state.rows))
        model.losses(output.states[:, -1], targets).sum().backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    found: dict[str, list[float]] = {}
    for rows in reversed(seen):
        for name, part in rows.items():
            size = 0.0 if part.grad is None else float(part.grad.norm(dim=-1).mean())
            found.setdefault(name, []).append(size)
    return found


def matrices(model: nn.Module) -> Iterator[Matrix]:
    for name, cell in cells(model):
        for number, (weight, width) in enumerate(products(cell)):
            if width != cell.hidden or len(weight) % width:
                continue
            blocks = torch.split(weight.detach().double().cpu(), width)
            for block, square in enumerate(blocks):
                place = f"{name}, product {number + 1}" + (f", block {block + 1}" if len(blocks) > 1 else "")
                radius = float(torch.linalg.eigvals(square).abs().max())
                yield Matrix(place, radius, torch.linalg.svdvals(square).tolist())


def gates(model: LanguageModel, tokens: Tensor) -> list[Gate]:
    with torch.no_grad(), record() as tape:
        model(tokens)
    found = []
    for name, values in tape.items():
        whole = torch.stack(values)
        shut, opened = (whole < 0.1).float().mean(), (whole > 0.9).float().mean()
        found.append(Gate(name, float(whole.mean()), float(shut), float(opened)))
    return found


def cells(model: nn.Module) -> Iterator[tuple[str, Cell]]:
    for module in model.modules():
        if isinstance(module, Recurrent):
            for number, cell in enumerate(module.layers):
                yield f"layer {number + 1}", cell
            for number, cell in enumerate(module.back):
                yield f"layer {number + 1} back", cell
