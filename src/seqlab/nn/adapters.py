"""Low-rank adapters for linear maps: few numbers are trained, and the maps themselves stay fixed.

Hu et al. 2021, https://arxiv.org/abs/2106.09685
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.nn.fused import Fused
from seqlab.nn.linear_map import is_plain, linear
from seqlab.nn.part import Part


class LowRank(nn.Module):
    """s B A x, where A has few rows and B starts at zero, so that an untrained adapter changes nothing."""

    def __init__(self, inputs: int, outputs: int, rank: int, scale: float, like: Tensor) -> None:
        super().__init__()
        self.down = nn.Parameter(like.new_empty(rank, inputs))
        self.up = nn.Parameter(like.new_zeros(outputs, rank))
        self.scale = scale
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.down), self.up) * self.scale

    def matrix(self) -> Tensor:
        """s B A"""
        return self.scale * self.up @ self.down


class AdaptedLinear(nn.Module):
    """W x + b + s B A x, with the weights of an existing linear map"""

    compiled_from: int | None = None
    """As in `LinearMap`."""

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.adapter = LowRank(linear.in_features, linear.out_features, rank, scale, linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, self.compiled_from) + self.adapter(x)  # type: ignore[no-any-return]

    def merged(self) -> nn.Linear:
        """Return the plain map with the matrix W + s B A."""
        outputs, inputs = self.weight.shape
        plain = nn.Linear(inputs, outputs, device="meta")  # draws no random numbers
        plain.weight, plain.bias = _fixed(self.weight + self.adapter.matrix()), self.bias
        return plain


class AdaptedFused(Fused):
    """Several maps of one input, with adapters for those that are named."""

    def __init__(self, fused: Fused, names: Collection[str], rank: int, scale: float) -> None:
        self._take(fused.outputs, fused.weight, fused.bias)
        self.adapters = nn.ModuleDict(
            {
                name: LowRank(fused.in_features, width, rank, scale, fused.weight)
                for name, width in fused.outputs.items()
                if name in names
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        changes = [
            self.adapters[name](x) if name in self.adapters else x.new_zeros(*x.shape[:-1], width)
            for name, width in self.outputs.items()
        ]
        return super().forward(x) + torch.cat(changes, -1)

    def merged(self) -> Fused:
        apart = self.apart(self.weight.detach().clone())
        for name, adapter in self.adapters.items():
            apart[name] = apart[name] + adapter.matrix()  # type: ignore[operator]
        return Fused.of(self.outputs, _fixed(torch.cat(list(apart.values()))), self.bias)


def _fixed(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach(), requires_grad=False)


def linear_maps(module: nn.Module, prefix: str) -> Iterator[str]:
    """Yield the checkpoint names of the linear maps in a module's attention and feed-forward parts."""
    for _, _, maps in _owned(module, prefix):
        yield from maps.values()


def add_adapters(module: nn.Module, prefix: str, chosen: Collection[str], rank: int, scale: float) -> None:
    """Add an adapter to each linear map in `chosen`."""
    for parent, name, maps in list(_owned(module, prefix)):
        child, own = getattr(parent, name), [part for part, full in maps.items() if full in chosen]
        if own and isinstance(child, Fused):
            setattr(parent, name, AdaptedFused(child, own, rank, scale))
        elif own:
            setattr(parent, name, AdaptedLinear(child, rank, scale))


def merge_adapters(module: nn.Module) -> None:
    """Replace maps that have adapters by plain ones."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, AdaptedLinear | AdaptedFused):
                setattr(parent, name, child.merged())


def _owned(module: nn.Module, prefix: str) -> Iterator[tuple[nn.Module, str, dict[str, str]]]:
    """Yield each linear map of a part: its owner, its name, and the full name of each map in it by short name."""
    for path, parent in module.named_modules(prefix=prefix):
        for name, child in parent.named_children() if isinstance(parent, Part) else ():
            if type(child) is Fused:
                yield parent, name, {part: f"{path}.{part}" for part in child.outputs}
            elif is_plain(child):
                yield parent, name, {name: f"{path}.{name}"}
