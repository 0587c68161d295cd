"""Packs models for decoding on the CPU, so that a row's result does not depend on the number of rows.

F.linear takes different paths, with different bits, for one row, a few and many. Packed weights take a single path (and
a faster one), which makes a request's text independent of its neighbours to the bit. Sigmoid and the tanh form of gelu
have the same problem: the last numbers of a tensor (the remainder of n / 32) are computed by another formula than the
others, and which ones are last depends on the rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seqlab.decoding.compiled import (
    CompiledBlock,
    CompiledCrossAttention,
    CompiledLinear,
    best_outputs,
    library,
    steady_product,
)
from seqlab.models.language_model import TokenModel
from seqlab.nn.adapters import merge_adapters
from seqlab.nn.attention import CrossAttention, DotProduct
from seqlab.nn.blocks import Block, FeedForward, GatedFeedForward
from seqlab.nn.cells import Cell, CellState
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.fused import Fused
from seqlab.nn.linear_map import is_plain
from seqlab.nn.output import Softmax
from seqlab.nn.recording import note, unobserved
from seqlab.nn.recurrent import Recurrent
from seqlab.nn.source_attention import SourceAttention

M = TypeVar("M", bound=nn.Module)


class LibraryLinear(nn.Module):
    """g(W x + b) by oneDNN, where g is the identity by default"""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor, activation: str = "none") -> Tensor:
        after, form = ("gelu", "tanh") if activation == "gelu" else (activation, "")
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, after, [], form)  # type: ignore[no-any-return]


Linear = type[CompiledLinear] | type[LibraryLinear]


def packed(model: M) -> M:
    """Return a copy of a model, or of an objective with its models, with packed parts. It shares all other tensors and
    must not be modified.

    On other devices, in other precisions, or if packing is not available, return the model itself.
    """
    weights = list(model.parameters())
    linear = _linear()
    if linear is None or any(w.device.type != "cpu" or w.dtype != torch.float32 for w in weights):
        return model
    shared = {id(tensor): tensor for tensor in [*weights, *model.buffers()]}
    twin = copy.deepcopy(model, shared).eval()
    merge_adapters(twin)
    _pack(twin, linear)
    for part in twin.modules():
        if (output := _output_map(part)) is not None:
            part.best = partial(best_outputs, output)  # type: ignore[assignment]
    return twin


def _output_map(model: nn.Module) -> CompiledLinear | None:
    """Return the map from states to logits, if this is a single linear map."""
    if not isinstance(model, TokenModel) or type(model).logits is not TokenModel.logits:
        return None
    output = model.output
    if not isinstance(output, Softmax) or type(output).logits is not Softmax.logits or output.bias is not None:
        return None
    found = getattr(model.embedding, "output", None) if output.matrix is None else output.matrix
    return found if isinstance(found, CompiledLinear) else None


def _pack(parent: nn.Module, linear: Linear) -> None:
    if getattr(parent, "activation", None) is torch.sigmoid:
        parent.activation = steady_sigmoid  # type: ignore[assignment]
    if getattr(parent, "compiled_from", None) is not None:
        parent.compiled_from = 0  # type: ignore[assignment]  # whatever the size: it depends on the neighbours
    if isinstance(parent, Recurrent):
        parent.fuse = False  # fusion is not made for a step or two
        parent.sigmoid = steady_sigmoid  # type: ignore[assignment]
    if isinstance(parent, SourceAttention):
        parent.sigmoid = steady_sigmoid  # type: ignore[assignment]
        parent.product = steady_product if linear is CompiledLinear else parent.product
    if isinstance(parent, DotProduct):
        parent.multiple = 4
        parent.multiply = steady_product if linear is CompiledLinear else parent.multiply
    if isinstance(parent, Cell):
        if "sigmoid" not in parent._modules and parent.sigmoid is torch.sigmoid:  # unless it is the name of a part
            parent.sigmoid = steady_sigmoid  # type: ignore[assignment]
        if _calls_sigmoid(parent):
            parent.step = partial(_steadily, parent.step)  # type: ignore[method-assign]
    for name, child in parent.named_children():
        if is_plain(child) or type(child) is Fused:
            assert isinstance(child, nn.Linear)
            bias = _released_bias(parent) if isinstance(parent, Softmax) else child.bias
            setattr(parent, name, linear(child.weight, bias))
        elif type(child) is TokenEmbedding:
            if hasattr(parent, "output"):  # others never compute logits
                setattr(parent, name, PackedTokenEmbedding(child, linear, _bias_for(child, parent)))
        elif isinstance(child, FeedForward | GatedFeedForward) and type(child) in (FeedForward, GatedFeedForward):
            setattr(parent, name, PackedFeedForward(child, linear))
        elif isinstance(child, nn.Dropout):
            setattr(parent, name, nn.Identity())
        else:
            compiled = _compiled(child) if linear is CompiledLinear else None
            _pack(child, linear)
            if compiled is not None:
                setattr(parent, name, compiled(child))


def _compiled(part: nn.Module) -> Callable[[Any], nn.Module] | None:
    """Return the class that computes a part in one call, if there is one; call this before the part is packed."""
    if isinstance(part, Block) and CompiledBlock.computes(part):
        return CompiledBlock
    if isinstance(part, CrossAttention) and CompiledCrossAttention.computes(part):
        return CompiledCrossAttention
    return None


class PackedTokenEmbedding(nn.Module):
    """E[w] and, if it is tied to the output, E h with the output's bias"""

    def __init__(self, embedding: TokenEmbedding, linear: Linear, bias: Tensor | None) -> None:
        super().__init__()
        self.embedding, self.output = embedding, linear(embedding.weight, bias)
        self.weight = embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens)  # type: ignore[no-any-return]

    def logits(self, states: Tensor) -> Tensor:
        return self.output(states)  # type: ignore[no-any-return]


def _bias_for(embedding: TokenEmbedding, model: nn.Module) -> Tensor | None:
    """Return the bias of an output that is tied to the embedding."""
    output = getattr(model, "output", None)
    own = getattr(model, "embedding", None) is embedding
    if not own or not isinstance(output, Softmax) or output.matrix is not None:
        return None
    return _released_bias(output)


def _released_bias(output: Softmax) -> Tensor | None:
    """Move the bias of an output to its map, which saves a pass over all logits."""
    bias, output.bias = output.bias, None
    return bias


class PackedFeedForward(nn.Module):
    """W₂ g(W₁ x), with g in the same pass; or gated, W₂ (g(V x) ∘ W₁ x)"""

    def __init__(self, feed: FeedForward | GatedFeedForward, linear: Linear) -> None:
        super().__init__()
        self.gate = linear(feed.gate.weight, feed.gate.bias) if isinstance(feed, GatedFeedForward) else None
        self.expand = linear(feed.expand.weight, feed.expand.bias)
        self.contract = linear(feed.contract.weight, feed.contract.bias)
        self.activation = feed.activation

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            hidden = note(self, "gate", self.gate(x, self.activation)) * self.expand(x)
        else:
            hidden = self.expand(x, self.activation)
        return note(self, "output", self.contract(note(self, "hidden", hidden)))


def _steadily(step: Callable[..., CellState], inputs: Tensor, state: CellState) -> CellState:
    with _Steady():
        return step(inputs, state)


def steady_sigmoid(x: Tensor) -> Tensor:
    """σ(x) = (1 + tanh(x / 2)) / 2"""
    return (x / 2).tanh_().add_(1).div_(2)


class _Steady(TorchFunctionMode):
    """Replaces every sigmoid of a cell by the steady one. This costs more than a small step itself."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.sigmoid, Tensor.sigmoid):
            self.count += 1
            return steady_sigmoid(args[0])
        return func(*args, **(kwargs or {}))


def _calls_sigmoid(cell: Cell) -> bool:
    """Whether a step calls any sigmoid other than `cell.sigmoid`."""
    some = next(cell.parameters())
    state = tuple(some.new_zeros(1, cell.width) for _ in cell.parts)
    seen = _Steady()
    with torch.no_grad(), unobserved(), seen:
        cell.step(cell.inputs(some.new_zeros(1, cell.input_width)), state)
    return seen.count > 0


def _linear() -> Linear | None:
    if library() is not None:
        return CompiledLinear
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return LibraryLinear if there and hasattr(torch.ops.mkldnn, "_reorder_linear_weight") else None
