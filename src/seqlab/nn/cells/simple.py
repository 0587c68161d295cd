"""Cells without gates."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seqlab.nn.cells.cell import Cell, CellState
from seqlab.recipe import PartSettings


class Elman(Cell):
    """h' = g(V x + U h + c), with g = tanh by default.

    Elman 1990, Finding structure in time.
    """

    class Settings(PartSettings):
        activation: Literal["tanh", "sigmoid", "relu"] = "tanh"

    def __init__(self, input_width: int, width: int, settings: Settings | None = None) -> None:
        super().__init__(input_width, width)
        self.activation = getattr(torch, settings.activation if settings is not None else "tanh")

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        return (self.activation(inputs + self.recurrent(h)),)


class IRNN(Cell):
    """h' = max(0, V x + U h + c), where U starts as the identity: an untrained cell adds up its inputs.

    Le, Jaitly & Hinton 2015, https://arxiv.org/abs/1504.00941
    """

    def __init__(self, input_width: int, width: int, settings: PartSettings | None = None) -> None:
        super().__init__(input_width, width)
        nn.init.eye_(self.recurrent.weight)
        nn.init.normal_(self.input.weight, std=0.001)

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        return (torch.relu(inputs + self.recurrent(h)),)


class UnitaryRNN(Cell):
    """h' = modReLU(U h + V x), with h complex, U unitary, and modReLU(z) = max(0, |z| + b) z / |z|

    U preserves lengths, so gradients neither vanish nor explode through it. The state is stored as [real; imaginary],
    each of width H / 2. U = exp(A − Aᴴ) is unitary for every A, so it stays unitary whatever the optimizer does.

    Arjovsky, Shah & Bengio 2016, https://arxiv.org/abs/1511.06464, who multiply factors with few parameters; the full
    matrix follows Wisdom et al. 2016, https://arxiv.org/abs/1611.00035. Angles start within ±π/2, not ±π as there.
    """

    class Settings(PartSettings):
        angles: float = Field(default=math.pi / 2, ge=0, le=math.pi)
        """Largest initial angle by which U rotates numbers of the state. Small angles preserve sums over time, large
        ones help to tell steps apart."""

    def __init__(self, input_width: int, width: int, settings: Settings | None = None) -> None:
        if width % 2:
            raise ValueError(f"the state of a unitary net is complex, so its width must be even, not {width}")
        super().__init__(input_width, width)
        nn.init.xavier_uniform_(self.input.weight)
        angles = settings.angles if settings is not None else math.pi / 2
        parametrize.register_parametrization(self.recurrent, "weight", Unitary(width // 2, angles))
        self.bias = nn.Parameter(torch.zeros(width // 2))

    def step(self, inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        real, imaginary = (inputs + self.recurrent(h)).chunk(2, dim=-1)
        length = torch.sqrt(real * real + imaginary * imaginary + 1e-8)
        scale = torch.relu(length + self.bias) / length
        return (torch.cat([scale * real, scale * imaginary], dim=-1),)


class Unitary(nn.Module):
    """Real and imaginary part of an n × n matrix A, (2, n, n) → exp(A − Aᴴ) as the real matrix [[R, −I], [I, R]]"""

    def __init__(self, width: int, angles: float) -> None:
        super().__init__()
        self.width, self.angles = width, angles

    def forward(self, parts: Tensor) -> Tensor:
        a = torch.complex(parts[0], parts[1])
        u: Tensor = torch.linalg.matrix_exp(a - a.mH)
        return torch.cat([torch.cat([u.real, -u.imag], 1), torch.cat([u.imag, u.real], 1)])

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Initial values: each number of the state is rotated by its own random angle, with a little of the others."""
        parts = torch.randn(2, self.width, self.width) * 0.1 / self.width**0.5
        parts[1].diagonal().uniform_(-self.angles, self.angles)
        return parts.to(weight)  # type: ignore[no-any-return]
