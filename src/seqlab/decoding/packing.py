"""Linear maps packed for decoding on the CPU: a row's result does not depend on how many rows there are.

F.linear takes another path, and gives other bits, for one row, for a few and for many. Weights packed for oneDNN go
one way only (and are faster for several rows), which makes a request's text independent of its neighbours to the bit.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from seqlab.nn.embedding import TokenEmbedding

M = TypeVar("M", bound=nn.Module)


def packed(model: M) -> M:
    """A twin of a model with packed linear maps, which shares all its other tensors; for reading only.

    On other devices, in other precisions and where oneDNN is missing, the model itself.
    """
    weights = list(model.parameters())
    if not _available() or any(w.device.type != "cpu" or w.dtype != torch.float32 for w in weights):
        return model
    shared = {id(tensor): tensor for tensor in [*weights, *model.buffers()]}
    twin = copy.deepcopy(model, shared).eval()
    for parent in list(twin.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child.weight, child.bias))
            elif type(child) is TokenEmbedding:
                setattr(parent, name, PackedTokenEmbedding(child))
    return twin


class PackedLinear(nn.Module):
    """W x + b"""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")  # type: ignore[no-any-return]


class PackedTokenEmbedding(nn.Module):
    """E[w] and E h"""

    def __init__(self, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.embedding, self.output = embedding, PackedLinear(embedding.weight, None)
        self.weight = embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens)  # type: ignore[no-any-return]

    def logits(self, states: Tensor) -> Tensor:
        return self.output(states)  # type: ignore[no-any-return]


def _available() -> bool:
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
