"""Nets over binary trees: each node's state is computed from the states of its two children, for many trees at once.

N nodes · D width of the inputs · H state width
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Literal

import torch
from torch import Tensor, nn

from seqlab.data.formats.trees import NOBODY
from seqlab.nn.recording import note

Activation = Literal["tanh", "relu", "sigmoid"]


class TreeCell(nn.Module, ABC):
    """One step upwards. A state is a row of `size` numbers; the first H are its output."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.width, self.size = width, parts * width

    @abstractmethod
    def leaf(self, x: Tensor) -> Tensor:
        """(N, D) → (N, size)"""

    @abstractmethod
    def join(self, children: Tensor) -> Tensor:
        """(N, 2, size), left and right → (N, size)"""


class RecursiveCell(TreeCell):
    """a = g(U a_left + W a_right + b); at the leaves a = g(V x + c)

    Socher et al. 2013, https://aclanthology.org/D13-1170
    """

    def __init__(self, input_width: int, width: int, activation: Activation = "tanh") -> None:
        super().__init__(width, 1)
        self.input, self.both = nn.Linear(input_width, width), nn.Linear(2 * width, width)  # [U W]
        self.activation = getattr(torch, activation)

    def leaf(self, x: Tensor) -> Tensor:
        return note(self, "h", self.activation(self.input(x)))

    def join(self, children: Tensor) -> Tensor:
        return note(self, "h", self.activation(self.both(children.flatten(1))))


class TreeLSTMCell(TreeCell):
    """i, f_left, f_right, o = σ(U [h_left; h_right] + b), u = tanh(U [h_left; h_right] + b),
    c = i ∘ u + f_left ∘ c_left + f_right ∘ c_right, h = o ∘ tanh(c);
    at the leaves i, o = σ(W x + b), u = tanh(W x + b), c = i ∘ u, h = o ∘ tanh(c)

    Tai, Socher & Manning 2015, https://arxiv.org/abs/1503.00075 (binary, over constituents). Each gate has its own
    rows in the matrices. The biases of the forget gates start at 1.
    """

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__(width, 2)
        self.input = nn.Linear(input_width, 3 * width)  # i o u
        self.both = nn.Linear(2 * width, 5 * width)  # f_left f_right i o u
        nn.init.ones_(self.both.bias.data[: 2 * width])

    def leaf(self, x: Tensor) -> Tensor:
        i, o, u = self.input(x).chunk(3, -1)
        return self._out(note(self, "input", torch.sigmoid(i)) * torch.tanh(u), o)

    def join(self, children: Tensor) -> Tensor:
        h, c = children.chunk(2, -1)
        f_left, f_right, i, o, u = self.both(h.flatten(1)).chunk(5, -1)
        left = note(self, "forget_left", torch.sigmoid(f_left))
        right = note(self, "forget_right", torch.sigmoid(f_right))
        kept = left * c[:, 0] + right * c[:, 1]
        return self._out(note(self, "input", torch.sigmoid(i)) * torch.tanh(u) + kept, o)

    def _out(self, c: Tensor, o: Tensor) -> Tensor:
        c = note(self, "c", c)
        h = note(self, "h", note(self, "output", torch.sigmoid(o)) * torch.tanh(c))
        return torch.cat([h, c], -1)


def upwards(cell: TreeCell, x: Tensor, children: Tensor, pieces: Tensor) -> Tensor:
    """Return the outputs of all nodes (N, H), in the order of `Levels`, from x (leaves, D).

    All nodes of a level, across trees, are one product. `children` and `pieces` are as in `Levels`.
    """
    arrived: defaultdict[int, list[Tensor]] = defaultdict(list)
    handed: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for level, above, count in pieces.tolist():
        handed[level].append((above, count))
    seen, done = [], 0
    for level in range(len(handed)):
        if level == 0:
            states = cell.leaf(x)
        else:
            count = sum(count for _, count in handed[level])
            read = torch.cat(arrived.pop(level))
            both = read.index_select(0, children[done : done + 2 * count])
            states = cell.join(both.view(count, 2, cell.size))
            done += 2 * count
        seen.append(states[:, : cell.width])
        targets, counts = zip(*handed[level], strict=True)
        for above, piece in zip(targets, torch.split(states, list(counts)), strict=True):
            if above != NOBODY:
                arrived[above].append(piece)
    return torch.cat(seen)
