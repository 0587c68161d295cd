"""The LSTM, simpler cells that lead up to it, and its variants."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.nn.cells.cell import Cell, CellState, is_plainly, no_bias
from seqlab.nn.recording import note
from seqlab.recipe import PartSettings


class Memory(Cell):
    """c' = c + tanh(W x + b), h' = tanh(c'): ∂c'/∂c is the identity; no gradient vanishes, nothing is forgotten."""

    parts = ("h", "c")

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        del self.recurrent

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        _, c = state
        c = c + torch.tanh(inputs)
        return torch.tanh(c), c


class RecurrentMemory(Cell):
    """c' = c + tanh(W [x; h] + b), h' = tanh(c'): ∂c'/∂c is nearly the identity."""

    parts = ("h", "c")

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        h, c = state
        c = c + torch.tanh(inputs + self.recurrent(h))
        return torch.tanh(c), c


class GatedMemory(Cell):
    """i, f = σ(W [x; h] + b), c' = f ∘ c + i ∘ tanh(W [x; h] + b), h' = tanh(c'): the LSTM without its output gate."""

    parts = ("h", "c")
    blocks = 3  # i f g

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.input.bias.data[width : 2 * width] = 1.0

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        h, c = state
        i, f, g = (inputs + self.recurrent(h)).chunk(3, dim=-1)
        i, f = note(self, "input", self.sigmoid(i)), note(self, "forget", self.sigmoid(f))
        c = f * c + i * torch.tanh(g)
        return torch.tanh(c), c


class LSTM(Cell):
    """i, f, o = σ(W x + U h + b), g = tanh(W x + U h + b), c' = f ∘ c + i ∘ g, h' = o ∘ tanh(c')

    Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000, whose bias starts at 1.
    """

    parts = ("h", "c")
    blocks = 4  # i f g o, as in torch.nn.LSTM
    shrinks = 0.4

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.input.bias.data[width : 2 * width] = 1.0

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        h, c = state
        i, f, g, o = (inputs + self.recurrent(h)).chunk(4, dim=-1)
        i, f = note(self, "input", self.sigmoid(i)), note(self, "forget", self.sigmoid(f))
        o = note(self, "output", self.sigmoid(o))
        c = f * c + i * torch.tanh(g)
        return o * torch.tanh(c), c

    def library(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        if not is_plainly(self, LSTM):
            return None
        h, c = (part[None].contiguous() for part in state)
        weights = [self.input.weight, self.recurrent.weight, self.input.bias, no_bias(self.recurrent)]
        outputs, h, c = torch.lstm(x, (h, c), weights, True, 1, 0.0, self.training, False, False)
        return outputs, (h[0], c[0])


class CoupledLSTM(Cell):
    """The LSTM with f = 1 − i: it forgets as much as it takes in.

    Greff et al. 2015, https://arxiv.org/abs/1503.04069
    """

    parts = ("h", "c")
    blocks = 3  # i g o
    shrinks = 0.2

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.input.bias.data[:width] = -1.0  # f starts open, as in the LSTM

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        h, c = state
        i, g, o = (inputs + self.recurrent(h)).chunk(3, dim=-1)
        i, o = note(self, "input", self.sigmoid(i)), note(self, "output", self.sigmoid(o))
        c = c + i * (torch.tanh(g) - c)
        return o * torch.tanh(c), c


class PeepholeLSTM(LSTM):
    """The LSTM with gates that also see the memory: i, f = σ(… + p ∘ c), o = σ(… + p ∘ c')

    Gers & Schmidhuber 2000, Recurrent nets that time and count.
    """

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        self.peepholes = nn.ParameterDict({gate: nn.Parameter(torch.zeros(width)) for gate in ("i", "f", "o")})

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        h, c = state
        p = self.peepholes
        i, f, g, o = (inputs + self.recurrent(h)).chunk(4, dim=-1)
        i = note(self, "input", self.sigmoid(i + p["i"] * c))
        f = note(self, "forget", self.sigmoid(f + p["f"] * c))
        c = f * c + i * torch.tanh(g)
        o = note(self, "output", self.sigmoid(o + p["o"] * c))
        return o * torch.tanh(c), c
