"""The GRU in its two forms, and three similar cells found by architecture search."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from seqlab.nn.cells.cell import Cell, CellState, is_plainly, orthogonal
from seqlab.nn.recording import note
from seqlab.recipe import PartSettings


class GRU(Cell):
    """r, z = σ(W x + U h + b), n = tanh(W x + b + r ∘ (U h + c)), h' = z ∘ h + (1 − z) ∘ n

    Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate applied after the product, as in torch.nn.GRU
    and cuDNN. z is the share of the old state that is kept.
    """

    blocks = 3  # r z n, as in torch.nn.GRU
    shrinks = 0.6

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.recurrent = orthogonal(nn.Linear(width, 3 * width))

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        recurrent, gates = self.recurrent(h), 2 * self.width
        r, z = self.sigmoid(inputs[..., :gates] + recurrent[..., :gates]).chunk(2, dim=-1)
        r, z = note(self, "reset", r), note(self, "keep", z)
        n = torch.tanh(inputs[..., gates:] + r * recurrent[..., gates:])
        return (n + z * (h - n),)

    def library(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        if not is_plainly(self, GRU):
            return None
        weights = [self.input.weight, self.recurrent.weight, self.input.bias, self.recurrent.bias]
        outputs, h = torch.gru(x, state[0][None].contiguous(), weights, True, 1, 0.0, self.training, False, False)
        return outputs, (h[0],)


class ClassicGRU(Cell):
    """r, z = σ(W x + U h + b), n = tanh(W x + U (r ∘ h) + b), h' = z ∘ h + (1 − z) ∘ n

    Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate applied before the product. `update: takes` is
    the other published convention, h' = (1 − z) ∘ h + z ∘ n.
    """

    class Settings(PartSettings):
        update: Literal["keeps", "takes"] = "keeps"
        """Whether the update gate is the share of the state that it keeps or the share that it replaces."""

    blocks = 3  # r z n
    shrinks = 0.6

    def __init__(self, input_width: int, width: int, settings: Settings | None = None) -> None:
        super().__init__(input_width, width)
        self.takes = settings is not None and settings.update == "takes"
        self.recurrent = orthogonal(nn.Linear(width, 2 * width, bias=False))
        self.candidate = orthogonal(nn.Linear(width, width, bias=False))

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        gates = 2 * self.width
        r, z = self.sigmoid(inputs[..., :gates] + self.recurrent(h)).chunk(2, dim=-1)
        r = note(self, "reset", r)
        n = torch.tanh(inputs[..., gates:] + self.candidate(r * h))
        keep = note(self, "keep", 1 - z if self.takes else z)
        return (n + keep * (h - n),)


class MUT1(Cell):
    """z = σ(W x + b), r = σ(W x + U h + b), h' = z ∘ tanh(U (r ∘ h) + tanh(x) + b) + (1 − z) ∘ h

    Jozefowicz, Zaremba & Sutskever 2015, An Empirical Exploration of Recurrent Network Architectures. A bare x must
    have the width of the state, so it is projected first.
    """

    blocks = 3  # z r and the projection of x
    shrinks = 0.6

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.recurrent = orthogonal(nn.Linear(width, width, bias=False))
        self.candidate = orthogonal(nn.Linear(width, width))

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        z, r, x = inputs.chunk(3, dim=-1)
        z, r = self.sigmoid(z), self.sigmoid(r + self.recurrent(h))
        r, z = note(self, "reset", r), note(self, "take", z)
        n = torch.tanh(self.candidate(r * h) + torch.tanh(x))
        return (h + z * (n - h),)


class MUT2(Cell):
    """z = σ(W x + U h + b), r = σ(x + U h + b), h' = z ∘ tanh(U (r ∘ h) + W x + b) + (1 − z) ∘ h; see MUT1"""

    blocks = 3  # z, the projection of x, and n
    shrinks = 0.6

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.recurrent = orthogonal(nn.Linear(width, 2 * width, bias=False))
        self.candidate = orthogonal(nn.Linear(width, width, bias=False))

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        gates = 2 * self.width
        z, r = self.sigmoid(inputs[..., :gates] + self.recurrent(h)).chunk(2, dim=-1)
        r, z = note(self, "reset", r), note(self, "take", z)
        n = torch.tanh(inputs[..., gates:] + self.candidate(r * h))
        return (h + z * (n - h),)


class MUT3(Cell):
    """z = σ(W x + U tanh(h) + b), r = σ(W x + U h + b), h' = z ∘ tanh(U (r ∘ h) + W x + b) + (1 − z) ∘ h; see MUT1"""

    blocks = 3  # z r n
    shrinks = 0.6

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.recurrent = orthogonal(nn.Linear(width, width, bias=False))
        self.update, self.candidate = (orthogonal(nn.Linear(width, width, bias=False)) for _ in range(2))

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        z, r, n = inputs.chunk(3, dim=-1)
        z, r = self.sigmoid(z + self.update(torch.tanh(h))), self.sigmoid(r + self.recurrent(h))
        r, z = note(self, "reset", r), note(self, "take", z)
        n = torch.tanh(n + self.candidate(r * h))
        return (h + z * (n - h),)
