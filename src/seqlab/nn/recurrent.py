"""`Recurrent` owns what cells do not: time, masks, direction, depth, connections, regularisers and carried state.

B batch · T time · D input width · H state width
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, cast

import torch
from pydantic import Field, SerializeAsAny, model_validator
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from seqlab import registry
from seqlab.errors import SeqlabError
from seqlab.fusion.loop import fused
from seqlab.fusion.trace import NotFused
from seqlab.nn.cells import Cell, CellState
from seqlab.nn.products import Products, products
from seqlab.nn.recording import changed, note, observed, recorded, remark, through_time, unobserved
from seqlab.recipe import Kind, PartSettings, Settings

States = Sequence[Tensor]


class Arrangement(Settings):
    """How cells are connected and regularised. Every option works with every cell."""

    connections: Literal["plain", "residual", "highway", "skip"] = "plain"
    """Output y of each layer H above the first: H(x); x + H(x); g ∘ H(x) + (1 − g) ∘ x; or H([x; input of the net])."""
    recurrent_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout of the inputs to recurrent matrices, with one mask per window (variational)."""
    weight_drop: float = Field(default=0.0, ge=0, lt=1)
    """Dropout of the entries of recurrent matrices, with one mask per window."""
    zoneout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the state that keeps its previous value, drawn anew at every step."""
    layer_norm: bool = False
    """Whether to normalise a cell's projected inputs and each of its products with the state."""

    def widths_below(self, input_width: int, width: int, depth: int) -> list[int]:
        """Return the input width of each of `depth` layers, given that each layer is `width` wide."""
        above = width + input_width if self.connections == "skip" else width
        return ([input_width] + [above] * (depth - 1))[:depth]


class Stack(Arrangement):
    """A stack of cells: the settings that all recurrent models share."""

    cell: Annotated[SerializeAsAny[PartSettings] | list[SerializeAsAny[PartSettings]], Kind("cell")] = Field(
        default="lstm", validate_default=False
    )  # type: ignore[assignment]
    """The cell of all layers, or a list with one cell per layer, lowest first, which also sets the depth."""
    depth: int = Field(default=1, gt=0, le=1000)

    @model_validator(mode="before")
    @classmethod
    def _as_deep_as_listed(cls, given: Any) -> Any:
        cells = given.get("cell") if isinstance(given, Mapping) else None
        return {"depth": len(cells), **given} if isinstance(cells, list) and cells else given

    @model_validator(mode="after")
    def _one_a_layer(self) -> Self:
        if isinstance(self.cell, list) and len(self.cell) != max(self.depth, 1):
            raise ValueError(f"depth is {self.depth}, but {len(self.cell)} cells are listed, one per layer")
        return self

    def made(self, number: int, input_width: int, width: int) -> Cell:
        """Make the cell of a layer, counted from 0; above the last layer, another one like the last."""
        settings = self.cell[min(number, len(self.cell) - 1)] if isinstance(self.cell, list) else self.cell
        cell: Cell = registry.find("cell", settings.kind)(input_width, width, settings)
        return cell

    def built(self, input_width: int, width: int, dropout: nn.Module, both_ways: bool = False) -> Recurrent:
        """Make all layers; `width` is the width of each direction."""
        widths = self.widths_below(input_width, 2 * width if both_ways else width, self.depth)
        there, *back = (
            [self.made(number, below, width) for number, below in enumerate(widths)] for _ in range(1 + both_ways)
        )
        return Recurrent(there, dropout, back=back[0] if back else (), arrangement=self)


class Recurrent(nn.Module):
    """Layers of cells, with dropout between them. Each layer runs over all steps before the next one starts.

    The cells in `back` read from the end to the beginning; a layer then outputs [→h; ←h]. Gal & Ghahramani 2016,
    https://arxiv.org/abs/1512.05287 (recurrent dropout); Merity et al. 2018, https://arxiv.org/abs/1708.02182 (weight
    drop); Krueger et al. 2017, https://arxiv.org/abs/1606.01305 (zoneout); Ba et al. 2016,
    https://arxiv.org/abs/1607.06450 (layer norm); Srivastava et al. 2015, https://arxiv.org/abs/1505.00387 (highway)
    """

    sigmoid = staticmethod(torch.sigmoid)
    """σ of highway gates."""
    compiled_from: int | None = None
    """As in `LinearMap`, for the gradients of matrices, which wait until all steps are done."""

    def __init__(
        self,
        cells: Sequence[Cell],
        dropout: nn.Module | None = None,
        *,
        back: Sequence[Cell] = (),
        arrangement: Arrangement | None = None,
        fuse: bool = True,
    ) -> None:
        super().__init__()
        self.layers: Sequence[Cell] = nn.ModuleList(cells)  # type: ignore[assignment]
        self.back: Sequence[Cell] = nn.ModuleList(back)  # type: ignore[assignment]
        self.dropout = dropout or nn.Identity()
        self.own = arrangement or Arrangement()
        self.fuse = fuse
        self.gates = nn.ModuleList()
        if self.own.connections == "highway":
            widths = [cell.width * (2 if back else 1) for cell in cells[1:]]
            self.gates.extend(nn.Linear(width, width) for width in widths)
            for gate in self.gates:
                nn.init.constant_(cast(nn.Linear, gate).bias, -1.0)  # initially, x passes
        self.norms = nn.ModuleList()
        if self.own.layer_norm:
            self.norms.extend(_Norms(cell) for cell in [*cells, *back])

    def start(self, rows: int, like: Tensor) -> list[CellState]:
        """Return a zero state for all layers, with the device and precision of `like`; in each layer, → before ←."""
        layers = zip(self.layers, self.back, strict=True) if len(self.back) else ((cell,) for cell in self.layers)
        return [tuple(like.new_zeros(rows, cell.width) for cell in cells for _ in cell.parts) for cells in layers]

    def forward(
        self, x: Tensor, state: Sequence[CellState], mask: Tensor | None = None
    ) -> tuple[Tensor, list[CellState]]:
        """x (B, T, D) → outputs (B, T, H) and the states after the last real position of each row."""
        keep = None if mask is None else mask.t()[..., None]
        first, after = x, []
        with parametrize.cached():  # computes parametrised matrices once
            for number, cell in enumerate(self.layers):
                below = self.dropout(x) if number else x
                steps = self._joined(number, below, first).transpose(0, 1)  # time first
                parts = len(cell.parts)
                outputs, last = self._run(number, steps, state[number][:parts], keep)
                if len(self.back):
                    back, last_back = self._run(~number, steps, state[number][parts:], keep)
                    outputs, last = torch.cat([outputs, back], -1), (*last, *last_back)
                x = note(self, f"outputs.{number}", self._connected(number, below, outputs.transpose(0, 1)))
                after.append(last)
        return x, after

    def _joined(self, number: int, below: Tensor, first: Tensor) -> Tensor:
        return torch.cat([below, first], -1) if number and self.own.connections == "skip" else below

    def _connected(self, number: int, below: Tensor, outputs: Tensor) -> Tensor:
        if number == 0 or self.own.connections in ("plain", "skip"):
            return outputs
        if self.own.connections == "residual":
            return below + outputs
        g = note(self, f"gate.{number}", self.sigmoid(self.gates[number - 1](below)))
        return below + g * (outputs - below)

    def _run(self, number: int, x: Tensor, state: CellState, keep: Tensor | None) -> tuple[Tensor, CellState]:
        """Run one layer in one direction; negative numbers are the layers of `back`."""
        reverse, index = number < 0, ~number if number < 0 else number
        cell = self.back[index] if reverse else self.layers[index]
        norms = None
        if self.own.layer_norm:
            norms = cast(_Norms, self.norms[index + len(self.layers) if reverse else index])
        window = _Window(cell, self.own, norms, x, keep)
        whole = self._at_once(window, x, state, reverse) if len(x) > 1 and not changed(cell) else None
        if whole is None:
            return _unroll(window, state, reverse)
        if recorded(cell):  # in addition, so that no bit of the result changes
            with torch.no_grad():
                _unroll(window, state, reverse)
        return whole

    def _at_once(self, window: _Window, x: Tensor, state: CellState, reverse: bool) -> tuple[Tensor, CellState] | None:
        """Run all steps in one call; None if neither a compiled loop nor a library kernel can."""
        cell, reason = window.cell, "switched off"
        name = type(cell).__name__
        if self.fuse:
            try:
                with unobserved():
                    result = fused(window.step, window.steps, state, window.rows, reverse, self.compiled_from)
                remark(f"{name}: all steps in one compiled loop")
                return result
            except NotFused as error:
                reason = str(error)
        whole = cell.library(x.flip(0) if reverse else x, state) if window.is_plain else None
        if whole is None:
            remark(f"{name}: step by step ({reason})")
            return None
        remark(f"{name}: PyTorch's kernel")
        return (whole[0].flip(0), whole[1]) if reverse else whole


class _Norms(nn.Module):
    """Layer norms for a cell's projected inputs and for each of its products."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        some = next(cell.parameters())
        self.inputs = nn.LayerNorm(cell.inputs(some.new_zeros(1, cell.input_width)).shape[-1])
        self.products = nn.ModuleList(nn.LayerNorm(len(weight)) for weight, _ in products(cell))


class _Window:
    """Everything that one layer does at each step of one window, as a pure function.

    The tensors in `steps` (T, B, n), inputs and masks, have one slice per step; those in `rows` (B, n) serve all steps.
    """

    def __init__(self, cell: Cell, own: Arrangement, norms: _Norms | None, x: Tensor, keep: Tensor | None) -> None:
        self.cell, self.own, self.norms = cell, own, norms
        inputs = cell.inputs(x)
        self.steps = [norms.inputs(inputs) if norms is not None else inputs]
        self.rows: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.masked, self.known = keep is not None, False
        if keep is not None:
            self.steps.append(keep)
        if not cell.training:
            return
        if own.zoneout:
            shape = (*x.shape[:2], cell.width)
            self.steps += [torch.rand(shape, dtype=x.dtype, device=x.device) < own.zoneout for _ in cell.parts]
        if own.recurrent_dropout or own.weight_drop:
            seen = products(cell)
            if own.recurrent_dropout:
                ones = [x.new_ones(x.shape[1], width) for _, width in seen]
                self.rows = [F.dropout(one, own.recurrent_dropout) for one in ones]
            if own.weight_drop:
                dropped = {id(weight): F.dropout(weight, own.weight_drop) for weight, _ in seen}
                self.weights = [dropped[id(weight)] for weight, _ in seen]

    @property
    def is_plain(self) -> bool:
        return (
            len(self.steps) == 1 and not self.rows and not self.weights and self.norms is None and not self.own.zoneout
        )

    def step(self, steps: States, state: States, rows: States) -> CellState:
        """Take one step of the cell, with the regularisers of the settings."""
        before, zones = tuple(state), steps[1 + self.masked :]
        if rows or self.weights or self.norms is not None:
            with Products(lambda *product: self._product(rows, *product)):
                after = self.cell.step(steps[0], before)
        else:
            after = self.cell.step(steps[0], before)
        if not self.known:
            _check_state(self.cell, before, after)
            self.known = True
        if zones:
            after = tuple(torch.where(zone != 0, a, b) for zone, a, b in zip(zones, before, after, strict=True))
        elif self.own.zoneout:  # the expected value
            after = tuple(b + self.own.zoneout * (a - b) for a, b in zip(before, after, strict=True))
        if observed():
            after = tuple(note(self.cell, name, part) for name, part in zip(self.cell.parts, after, strict=True))
        if self.masked:
            after = tuple(torch.where(steps[1] != 0, b, a) for a, b in zip(before, after, strict=True))
        return after

    def _product(self, rows: States, number: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x * rows[number] if rows else x
        y = F.linear(x, self.weights[number] if self.weights else weight, bias)
        return y if self.norms is None else self.norms.products[number](y)


def _check_state(cell: Cell, before: CellState, after: object) -> None:
    """Check what a cell returned for its first step."""
    where, parts = type(cell).__name__, cell.parts
    if not isinstance(after, tuple) or len(after) != len(before):
        found = f"{len(after)} parts" if isinstance(after, tuple) else f"a {type(after).__name__}"
        hint = f"return a tuple of the {len(before)} parts of the state ({', '.join(parts)})"
        raise SeqlabError(f"step returned {found}", where=where, hint=hint)
    for name, given, part in zip(parts, before, after, strict=True):
        if not isinstance(part, Tensor):
            what, hint = f"step returned {part!r} as '{name}'", "return a tensor"
            raise SeqlabError(what, where=where, hint=f"{hint} of (B, {cell.width})")
        if part.shape != given.shape:
            sizes = ["B", *part.shape[1:]] if part.shape[:1] == given.shape[:1] else part.shape
            what = f"step returned '{name}' of ({', '.join(map(str, sizes))}); it should be (B, {cell.width})"
            raise SeqlabError(
                what, where=where, hint="give each row a vector of this width; `chunk` takes blocks apart"
            )


def _unroll(window: _Window, state: CellState, reverse: bool) -> tuple[Tensor, CellState]:
    """Run one step after the other. (Unbound once: indexing step by step makes the backward pass quadratic in T.)"""
    times = list(enumerate(zip(*(one.unbind(0) for one in window.steps), strict=True)))
    outputs = []
    with through_time(len(times), alone=True) as time:
        for position, steps in reversed(times) if reverse else times:
            time.at(position)
            state = window.step(steps, state, window.rows)
            outputs.append(state[0])
    return torch.stack(outputs[::-1] if reverse else outputs), state


def both(state: CellState, ways: bool) -> CellState:
    """The last state of a layer; if it reads both ways, [→; ←] for each part."""
    half = len(state) // 2
    return tuple(torch.cat(pair, -1) for pair in zip(state[:half], state[half:], strict=True)) if ways else state
