"""Why training fails: how far back gradients reach, and what recurrent matrices and gates do to them.

B rows · T positions · H width of the state
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch
from seqlab.errors import RunError
from seqlab.nn.cells import Cell
from seqlab.nn.characters import CharacterReader
from seqlab.nn.interventions import Replace, intervene
from seqlab.nn.products import products
from seqlab.nn.recording import record
from seqlab.nn.recurrent import Recurrent
from seqlab.nn.summary import last
from seqlab.objectives.forecast import Forecast
from seqlab.objectives.next_token import NextToken
from seqlab.objectives.objective import Objective
from seqlab.objectives.tags import Tags


@dataclass(frozen=True)
class Matrix:
    """A recurrent matrix H × H (or one block of a gated cell's), described by its effect when applied repeatedly."""

    name: str
    radius: float
    """The largest |λ|: below 1, powers of the matrix die out; above 1, they may grow. (1.01^1000 ≈ 21,000.)"""
    singular: list[float]
    """The singular values, largest first; a value above 1 permits explosion but does not ensure it."""


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
    """Gradients, matrices and gates of a model, as plain data."""

    distances: list[int]
    norms: dict[str, list[float]]
    """For each part of the state and each distance d: ‖∂ loss at the end / ∂ state d positions back‖, mean of rows."""
    matrices: list[Matrix]
    gates: list[Gate]


def health(objective: Objective, batch: Batch, length: int | None = None) -> Health:
    """Measure a recurrent model, with gradients up to `length` positions back."""
    norms, found = gradients_through_time(objective, batch)
    longest = min(len(one) for one in norms.values())
    count = longest if length is None else min(length, longest)
    near = {name: one[:count] for name, one in norms.items()}
    return Health(list(range(count)), near, list(matrices(objective)), found)


def gradients_through_time(objective: Objective, batch: Batch) -> tuple[dict[str, list[float]], list[Gate]]:
    """Return ∂ loss / ∂ state by all paths, through every state in between, nearest first; and the values of the gates.

    A net that reads backwards is measured from its own last step, which is the first position.
    """
    places = {cell: (label, reverse) for label, cell, reverse in cells_over_time(objective)}
    paths = {part: path for path, part in objective.named_modules() if part in places}
    seen: dict[tuple[str, str], list[Tensor]] = {(paths[cell], part): [] for cell in places for part in cell.parts}
    keep = {place: Replace(partial(_kept, states)) for place, states in seen.items()}
    with torch.enable_grad(), record(objective, *paths.values()) as tape, intervene(objective, keep):
        at_last, at_first = losses_at_the_ends(objective, batch)
    if not at_last.requires_grad:
        hint = "if the run is a mixture, inspect its parts"
        raise RunError("gradients of the loss do not reach the states of a recurrent net", hint=hint)
    norms: dict[str, list[float]] = {}
    values: dict[str, list[Tensor]] = defaultdict(list)
    for cell, (label, reverse) in places.items():
        first = seen[paths[cell], cell.parts[0]]
        mask = batch.get("source.mask" if label.startswith("encoder.") else "mask")
        real = first[0].new_ones(len(first), len(first[0]), dtype=torch.bool) if mask is None else mask.t()
        steps = real.flip(0) if reverse else real
        for part in cell.parts:
            loss = at_first if reverse else at_last
            gradients = torch.autograd.grad(loss, seen[paths[cell], part], retain_graph=True, allow_unused=True)
            sizes = [steps[0] * 0.0 if one is None else one.norm(dim=-1) for one in gradients]
            norms[label.format(part)] = _by_distance(torch.stack(sizes), steps)
        for name, noted in tape[paths[cell]].items():
            if name not in cell.parts:
                values[name].append(torch.cat(noted, 1).transpose(0, 1)[real].flatten())
    return norms, [_gate(name, torch.cat(found)) for name, found in values.items()]


def _kept(states: list[Tensor], state: Tensor) -> Tensor:
    states.append(state.requires_grad_())  # also if the weights are frozen
    return state


def losses_at_the_ends(objective: Objective, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the losses at the last and the first position, summed over rows; the same if there is one answer."""
    mask = batch.get("mask")
    if isinstance(objective, NextToken):
        output = objective.read(batch, None)
        loss = objective.body.losses(last(output.states, mask), last(batch["targets"], mask)).sum()
    elif isinstance(objective, Forecast):
        every = batch["targets"].dim() == 4
        forecasts = objective.body(batch["inputs"], mask)
        targets = last(batch["targets"], mask)[:, None] if every else batch["targets"][:, None]
        loss = objective.loss(forecasts, targets, reduction="sum")
    elif isinstance(objective, Tags):
        (states, mask, _), tags = objective.body(batch), batch["tags"]
        scores = objective.scores(states, tags)
        ends = ((last(scores, mask), last(tags, mask)), (scores[:, 0], tags[:, 0]))  # each tag by itself
        at_last, at_first = (F.cross_entropy(s, t, ignore_index=-1, reduction="sum") for s, t in ends)
        return at_last, at_first
    else:
        loss = objective(batch).sum
    return loss, loss


def _by_distance(sizes: Tensor, real: Tensor) -> list[float]:
    """Average sizes (T, B), in order of steps, over the rows that are long enough, by distance from the last step."""
    order = torch.argsort(real.long(), dim=0, stable=True)  # move padding to the beginning
    sizes, real = sizes.gather(0, order).flip(0), real.gather(0, order).flip(0)
    return [float(size[rows].mean()) for size, rows in zip(sizes, real, strict=True) if rows.any()]


def _gate(name: str, values: Tensor) -> Gate:
    shut, opened = (values < 0.1).float().mean(), (values > 0.9).float().mean()
    return Gate(name, float(values.mean()), float(shut), float(opened))


def matrices(model: nn.Module) -> Iterator[Matrix]:
    for name, cell in cells(model):
        for number, (weight, width) in enumerate(products(cell)):
            if width != cell.width or len(weight) % width:
                continue
            blocks = torch.split(weight.detach().double().cpu(), width)
            for block, square in enumerate(blocks):
                place = f"{name}, product {number + 1}" + (f", block {block + 1}" if len(blocks) > 1 else "")
                radius = float(torch.linalg.eigvals(square).abs().max())
                yield Matrix(place, radius, torch.linalg.svdvals(square).tolist())


def cells_over_time(module: nn.Module, path: str = "") -> Iterator[tuple[str, Cell, bool]]:
    """Yield the cells that run over the positions of a batch: a name for each part of the state, the cell, and whether
    it runs backwards.

    Nets that read the characters of a word are skipped, since their steps are not positions of the batch.
    """
    for name, child in module.named_children():
        if isinstance(child, Recurrent):
            before = path if name == "recurrent" else f"{path}{name}."
            for number, cell in enumerate(child.layers):
                yield f"{before}{{}}.{number}", cell, False
            for number, cell in enumerate(child.back):
                yield f"{before}{{}}.{number} back", cell, True
        elif not isinstance(child, CharacterReader):
            yield from cells_over_time(child, path if name == "body" else f"{path}{name}.")


def cells(model: nn.Module) -> Iterator[tuple[str, Cell]]:
    for path, module in model.named_modules():
        if isinstance(module, Recurrent):
            where = "" if path.endswith("recurrent") else f"{path.removeprefix('body.')}, "
            for number, cell in enumerate(module.layers):
                yield f"{where}layer {number + 1}", cell
            for number, cell in enumerate(module.back):
                yield f"{where}layer {number + 1} back", cell
