"""Several linear maps of one input, stored and multiplied as one. They keep their own names wherever weights are saved,
loaded, imported or adapted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.nn.linear_map import LinearMap


class Fused(LinearMap):
    """[W₁; W₂; ...] x + [b₁; b₂; ...], with output widths by name: {"query": 64, "key": 64, "value": 64}

    Its owner holds it under a single name; `named_apart` adds the names of the separate maps.
    """

    def __init__(self, inputs: int, outputs: Mapping[str, int], bias: bool = True) -> None:
        super().__init__(inputs, sum(outputs.values()), bias)
        self.outputs = dict(outputs)

    @classmethod
    def of(cls, outputs: Mapping[str, int], weight: Tensor, bias: Tensor | None) -> Fused:
        """Make a fused map from existing weights."""
        fused = cls.__new__(cls)
        fused._take(outputs, weight, bias)
        return fused

    def _take(self, outputs: Mapping[str, int], weight: Tensor, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.outputs, self.weight, self.bias = dict(outputs), weight, bias  # type: ignore[assignment]

    def apart(self, tensor: Tensor) -> dict[str, Tensor]:
        """Split a weight or a bias into the rows of each map."""
        return dict(zip(self.outputs, tensor.split_with_sizes(list(self.outputs.values())), strict=True))


def named_apart(owner: nn.Module) -> None:
    """Make the state dict of `owner` list the maps inside fused ones separately: `query.weight`, `key.weight`, ..."""
    owner.register_state_dict_post_hook(_split)  # type: ignore[no-untyped-call]
    owner.register_load_state_dict_pre_hook(_merge)  # type: ignore[no-untyped-call]


def _parts(owner: nn.Module, prefix: str) -> list[tuple[Fused, str, str]]:
    """Return one entry per tensor of each fused map: the map, "weight" or "bias", and the full name."""
    return [
        (part, kind, f"{prefix}{name}.{kind}")
        for name, part in _fused(owner)
        for kind, _ in part.named_parameters(recurse=False)
    ]


def _fused(owner: nn.Module) -> list[tuple[str, Fused]]:
    return [(name, part) for name, part in owner.named_children() if isinstance(part, Fused)]


def _split(owner: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    for fused, kind, whole in _parts(owner, prefix):
        if whole in state:
            for name, tensor in fused.apart(state.pop(whole)).items():
                state[f"{prefix}{name}.{kind}"] = tensor
    for inside, outside in _adapters(owner, prefix):
        _rename(state, inside, outside)


def _merge(owner: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    for fused, kind, whole in _parts(owner, prefix):
        names = [f"{prefix}{name}.{kind}" for name in fused.outputs]
        if all(name in state for name in names):
            state[whole] = torch.cat([state.pop(name) for name in names])
    for inside, outside in _adapters(owner, prefix):
        _rename(state, outside, inside)


def _adapters(owner: nn.Module, prefix: str) -> list[tuple[str, str]]:
    """Return the name prefixes of adapters, in a fused map and in a checkpoint."""
    return [
        (f"{prefix}{name}.adapters.{one}.", f"{prefix}{one}.adapter.")
        for name, part in _fused(owner)
        for one in part.outputs
    ]


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    for name in [name for name in state if name.startswith(old)]:
        state[new + name.removeprefix(old)] = state.pop(name)
