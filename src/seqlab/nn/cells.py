"""Recurrent cells. A cell is its equations and nothing else; `Recurrent` owns time, masks, depth and state.

B batch · T time · D input width · H state width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from seqlab.recipe import PartSettings

CellState = tuple[Tensor, ...]
"""The parts of a cell's state, each (B, H); the first one is its output."""


class Cell(nn.Module, ABC):
    """One step of a recurrence."""

    Settings: ClassVar[type[PartSettings]]
    parts: ClassVar[tuple[str, ...]]
    """The names of the parts of the state."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.width, self.hidden = width, hidden

    @abstractmethod
    def inputs(self, x: Tensor) -> Tensor:
        """What does not depend on the state, for all steps at once: (..., D) → (..., inputs)."""

    @abstractmethod
    def step(self, inputs: Tensor, state: CellState) -> CellState:
        """The equations: the inputs of one step and the state before it → the state after it."""

    def library(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        """All steps of x (T, B, D) by the library's own kernel, where it computes exactly this cell."""
        return None


class Elman(Cell):
    """h' = g(V x + U h + c), with g = tanh unless another is named.

    Elman 1990, Finding structure in time.
    """

    class Settings(PartSettings):
        activation: Literal["tanh", "sigmoid", "relu"] = "tanh"

    parts = ("h",)

    def __init__(self, width: int, hidden: int, settings: Settings) -> None:
        super().__init__(width, hidden)
        self.input = nn.Linear(width, hidden)
        self.recurrent = nn.Linear(hidden, hidden, bias=False)
        self.activation = getattr(torch, settings.activation)
        nn.init.orthogonal_(self.recurrent.weight)

    def inputs(self, x: Tensor) -> Tensor:
        return self.input(x)  # type: ignore[no-any-return]

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        return (self.activation(inputs + self.recurrent(h)),)


class LSTM(Cell):
    """i, f, o = σ(W x + U h + b), g = tanh(W x + U h + b), c' = f ∘ c + i ∘ g, h' = o ∘ tanh(c')

    Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000, whose bias starts at 1.
    """

    class Settings(PartSettings):
        pass

    parts = ("h", "c")

    def __init__(self, width: int, hidden: int, settings: Settings) -> None:
        super().__init__(width, hidden)
        self.input = nn.Linear(width, 4 * hidden)  # rows in the order i f g o, as in torch.nn.LSTM
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)
        for gate in self.recurrent.weight.data.chunk(4):
            nn.init.orthogonal_(gate)
        nn.init.zeros_(self.input.bias)
        self.input.bias.data[hidden : 2 * hidden] = 1.0

    def inputs(self, x: Tensor) -> Tensor:
        return self.input(x)  # type: ignore[no-any-return]

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        h, c = state
        i, f, g, o = (inputs + self.recurrent(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def library(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        if type(self).step is not LSTM.step or type(self).inputs is not LSTM.inputs:
            return None  # a cell derived from this one
        if not isinstance(self.input, nn.Linear) or not isinstance(self.recurrent, nn.Linear):
            return None  # packed for decoding
        h, c = (part[None].contiguous() for part in state)
        no_bias = torch.zeros_like(self.input.bias)
        weights = [self.input.weight, self.recurrent.weight, self.input.bias, no_bias]
        outputs, h, c = torch.lstm(x, (h, c), weights, True, 1, 0.0, self.training, False, False)
        return outputs, (h[0], c[0])


class GRU(Cell):
    """r, z = σ(W x + U h + b), n = tanh(W x + b + r ∘ (U h + c)), h' = z ∘ h + (1 − z) ∘ n

    Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate after the product, as in torch.nn.GRU and
    cuDNN: z keeps the old state.
    """

    class Settings(PartSettings):
        pass

    parts = ("h",)

    def __init__(self, width: int, hidden: int, settings: Settings) -> None:
        super().__init__(width, hidden)
        self.input = nn.Linear(width, 3 * hidden)  # rows in the order r z n, as in torch.nn.GRU
        self.recurrent = nn.Linear(hidden, 3 * hidden)
        for gate in self.recurrent.weight.data.chunk(3):
            nn.init.orthogonal_(gate)
        nn.init.zeros_(self.input.bias)
        nn.init.zeros_(self.recurrent.bias)

    def inputs(self, x: Tensor) -> Tensor:
        return self.input(x)  # type: ignore[no-any-return]

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        recurrent, gates = self.recurrent(h), 2 * self.hidden
        r, z = (inputs[..., :gates] + recurrent[..., :gates]).chunk(2, dim=-1)
        n = torch.tanh(inputs[..., gates:] + torch.sigmoid(r) * recurrent[..., gates:])
        return (n + torch.sigmoid(z) * (h - n),)

    def library(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState] | None:
        if type(self).step is not GRU.step or type(self).inputs is not GRU.inputs:
            return None  # a cell derived from this one
        if not isinstance(self.input, nn.Linear) or not isinstance(self.recurrent, nn.Linear):
            return None  # packed for decoding
        weights = [self.input.weight, self.recurrent.weight, self.input.bias, self.recurrent.bias]
        outputs, h = torch.gru(x, state[0][None].contiguous(), weights, True, 1, 0.0, self.training, False, False)
        return outputs, (h[0],)
