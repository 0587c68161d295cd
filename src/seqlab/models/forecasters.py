"""Forecasters, which read windows of numbers and predict the numbers that follow.

B rows · T steps · C variables, the first O of which are forecast · H horizon · W window
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqlab.nn.cells import Cell
from seqlab.nn.dropout import Dropout, Mask, dropout
from seqlab.nn.recording import note
from seqlab.nn.recurrent import Recurrent, Stack
from seqlab.nn.summary import last
from seqlab.recipe import PartSettings


class Forecaster(nn.Module, ABC):
    Settings: ClassVar[type[PartSettings]]
    needs: ClassVar[tuple[str, ...]] = ("inputs", "outputs", "horizon")
    """Names of the sizes required to build it (`Task.sizes`)."""
    every_step: ClassVar[bool] = False
    """Whether it can forecast after every step of a window, not only after the last."""
    needs_past: bool = False
    """Whether the forecast variables must be among the inputs."""

    @abstractmethod
    def forward(self, inputs: Tensor, mask: Tensor | None = None, every: bool = False) -> Tensor:
        """inputs (B, T, C) → forecasts after the last real step (B, 1, H, O), or after `every` step (B, T, H, O)."""


class SeriesDense(Forecaster):
    """y = W [x_1; …; x_W] + b, or a net with hidden layers. Shorter windows are padded with zeros in front."""

    class Settings(PartSettings):
        hidden_widths: tuple[int, ...] = ()
        """Widths of the hidden layers; without any, the model is linear."""
        activation: Literal["relu", "tanh"] = "relu"
        dropout: float = Field(default=0.0, ge=0, lt=1)

    needs = ("window", "inputs", "outputs", "horizon")

    def __init__(self, settings: Settings, window: int, inputs: int, outputs: int, horizon: int) -> None:
        super().__init__()
        self.window, self.shape = window, (1, horizon, outputs)
        widths = [window * inputs, *settings.hidden_widths]
        self.hidden = nn.ModuleList(dense(below, width) for below, width in pairwise(widths))
        self.output = dense(widths[-1], horizon * outputs)
        self.activation, self.dropout = getattr(torch, settings.activation), Dropout(settings.dropout)

    def forward(self, inputs: Tensor, mask: Tensor | None = None, every: bool = False) -> Tensor:
        x = latest(inputs, mask, self.window).flatten(1)
        for number, layer in enumerate(self.hidden):
            x = self.dropout(note(self, f"hidden.{number}", self.activation(layer(x))))
        return self.output(x).view(-1, *self.shape)  # type: ignore[no-any-return]


class SeriesLinear(Forecaster):
    """y = x_W + A (x − x_W) + b for each variable, with one A (H × W) for all: a change of level shifts the forecast.

    Zeng et al. 2022 (NLinear), https://arxiv.org/abs/2205.13504
    """

    Settings = PartSettings
    needs_past = True

    needs = ("window", "outputs", "horizon")

    def __init__(self, settings: PartSettings, window: int, outputs: int, horizon: int) -> None:
        super().__init__()
        self.window, self.outputs = window, outputs
        self.output = dense(window, horizon)
        nn.init.zeros_(self.output.weight)  # starts as the naive forecast

    def forward(self, inputs: Tensor, mask: Tensor | None = None, every: bool = False) -> Tensor:
        x = inputs[..., : self.outputs]
        level = last(x, mask)[:, None]
        changes = latest(x - level, mask, self.window)
        return (level + self.output(changes.mT).mT)[:, None]  # type: ignore[no-any-return]


class SeriesRecurrent(Forecaster):
    """h_t in `depth` layers over x_t; y_t = W h_t + b, or y_t is the output of one more layer of cells."""

    every_step = True

    class Settings(PartSettings, Stack):
        width: int = Field(default=64, gt=0)
        depth: int = Field(default=1, ge=0, le=1000)
        head: Literal["dense", "cell"] = "dense"
        """The output layer: a linear map, or one more layer of cells with a unit for each number to forecast."""
        from_last: bool = False
        """Whether to forecast the change from the last value."""
        start: Literal["cell", "glorot"] = "cell"
        """Initialisation of the input weights: the cell's own, or that of Glorot & Bengio 2010."""
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout between layers and of the last layer's states."""
        dropout_mask: Mask = "position"
        """Whether each step draws its own mask, or one mask serves a whole window (variational)."""

        @model_validator(mode="after")
        def _some_layer(self) -> SeriesRecurrent.Settings:
            if self.depth == 0 and self.head == "dense":
                raise ValueError("a depth of 0 with a dense head reads only the last step")
            return self

    def __init__(self, settings: Settings, inputs: int, outputs: int, horizon: int) -> None:
        super().__init__()
        self.shape, self.needs_past = (horizon, outputs), settings.from_last
        self.dropout = dropout(settings.dropout, settings.dropout_mask)
        self.recurrent = settings.built(inputs, settings.width, self.dropout)
        numbers, width = horizon * outputs, settings.width if settings.depth else inputs
        if settings.head == "cell":
            self.head: nn.Module = Recurrent([settings.made(settings.depth, width, numbers)], arrangement=settings)
        else:
            self.head = dense(width, numbers)
        if settings.start == "glorot":
            for one in self.modules():
                if isinstance(one, Cell):
                    nn.init.xavier_uniform_(one.input.weight)

    def forward(self, inputs: Tensor, mask: Tensor | None = None, every: bool = False) -> Tensor:
        states, _ = self.recurrent(inputs, self.recurrent.start(len(inputs), inputs), mask)
        states = self.dropout(states) if len(self.recurrent.layers) else states
        if isinstance(self.head, Recurrent):
            states, _ = self.head(states, self.head.start(len(states), states), mask)
        if not every:
            states = last(states, mask)[:, None]
        forecasts = (states if isinstance(self.head, Recurrent) else self.head(states)).unflatten(-1, self.shape)
        return changed(inputs, forecasts, mask) if self.needs_past else forecasts


def dense(below: int, width: int) -> nn.Linear:
    """Return a linear map with the initial weights of Glorot & Bengio 2010 and zero biases."""
    linear = nn.Linear(below, width)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def changed(inputs: Tensor, changes: Tensor, mask: Tensor | None) -> Tensor:
    """Add forecast changes, after every step or after the last (B, T or 1, H, O), to the inputs (B, T, C)."""
    past = inputs[..., : changes.shape[-1]]
    return (past if changes.shape[1] == past.shape[1] else last(past, mask)[:, None])[:, :, None] + changes


def latest(x: Tensor, mask: Tensor | None, count: int) -> Tensor:
    """(B, T, C) → (B, count, C): the last `count` real steps, padded with zeros in front if there are fewer."""
    if mask is None and x.shape[1] == count:
        return x
    lengths = torch.full((len(x),), x.shape[1], device=x.device) if mask is None else mask.sum(1)
    places = torch.arange(-count, 0, device=x.device) + lengths[:, None]
    rows = torch.arange(len(x), device=x.device)[:, None]
    return torch.where((places >= 0)[..., None], x[rows, places.clamp(min=0)], 0.0)
