"""Traces a step, written in plain PyTorch, into a graph by running it once on a few rows.

Values that depend neither on the inputs nor on the state (a transposed weight, a unitary matrix computed from its
parameters) are not part of the graph: they are computed once before the first step and passed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seqlab.fusion.graph import ONE, Node, number, part, pointwise, spread, total, where

ROWS = 7  # rows of the trial run; any number would do
aten = torch.ops.aten


class NotFused(Exception):
    """Raised when a step does something that the graph cannot express; the message says what."""


@dataclass
class Trace:
    outputs: list[Node]
    vectors: list[Tensor] = field(default_factory=list)
    matrices: list[Tensor] = field(default_factory=list)
    """The constants of the graph, still attached to autograd: gradients flow on from them to the parameters."""


def trace(
    step: Callable[..., Sequence[Tensor]], steps: Sequence[Tensor], states: Sequence[Tensor], rows: Sequence[Tensor]
) -> Trace:
    """Return the graph of step(steps, states, rows). Of the tensors, only the last dimension, the precision and the
    device matter."""
    tape = _Tape()
    groups = [
        [tape.given(kind, index, like) for index, like in enumerate(group)]
        for kind, group in (("step", steps), ("state", states), ("row", rows))
    ]
    with tape:
        outputs = step(*groups)
    result = Trace([])
    for output, state in zip(outputs, states, strict=True):
        node = tape.node(output)
        result.outputs.append(spread(node, state.shape[-1]))
        if node.width not in (1, state.shape[-1]):
            raise NotFused(f"the width of a state changes from {state.shape[-1]} to {node.width}")
    result.vectors, result.matrices = tape.vectors, tape.matrices
    return result


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every operation unchanged, and notes those that depend on given values."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch's compiler must skip this mode. Nothing is compiled under it, and True would import the
        compiler, which takes a second."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: dict[int, Node] = {}
        self.alive: list[Any] = []  # an id identifies a tensor only while it is alive
        self.turned: dict[int, Tensor] = {}
        self.vectors: list[Tensor] = []
        self.matrices: list[Tensor] = []

    def given(self, kind: str, index: int, like: Tensor) -> Tensor:
        width = like.shape[-1]
        value = torch.zeros(ROWS, width, dtype=like.dtype, device=like.device)
        self.alive.append(value)
        self.nodes[id(value)] = Node(kind, width, index=index)
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS and id(args[-2]) in self.nodes:
            result = args[-2].new_zeros(ROWS, args[-1].shape[1])  # only the shape matters
        elif func is aten.linear.default and id(args[0]) in self.nodes:
            result = args[0].new_zeros(ROWS, len(args[1]))
        else:
            result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            raise NotFused(f"{func} is random, or changes its arguments")
        given = [arg for arg in _flat(args) if isinstance(arg, Tensor)]
        if any(id(tensor) in self.nodes for tensor in given):
            rule = RULES.get(func)
            if rule is None:
                raise NotFused(f"{func} is not supported")
            made = rule(self, *args, **(kwargs or {}))
            for tensor, node in zip(_flat([result]), made if isinstance(made, list) else [made], strict=True):
                if tuple(tensor.shape) != (ROWS, node.width):
                    raise NotFused(f"{func} turns rows into the shape {tuple(tensor.shape)}")
                self.alive.append(tensor)
                self.nodes[id(tensor)] = node
        return result

    def node(self, value: Any) -> Node:
        """Return the node of a tensor that depends on given values, of a constant tensor, or of a number."""
        if not isinstance(value, Tensor):
            return number(value)
        if id(value) in self.nodes:
            return self.nodes[id(value)]
        if value.numel() == 1 and not value.requires_grad:
            return number(value.item())
        if value.dim() == 1 or (value.dim() == 2 and len(value) == 1):
            return Node("vector", value.shape[-1], index=_place(self.vectors, value))
        raise NotFused(f"a constant of shape {tuple(value.shape)}")

    def transposed(self, weight: Tensor) -> Tensor:
        """Return Wᵀ, the same tensor every time."""
        if id(weight) not in self.turned:
            self.alive.append(weight)
            self.turned[id(weight)] = weight.t()
        return self.turned[id(weight)]

    def product(self, x: Any, matrix: Tensor) -> Node:
        if id(matrix) in self.nodes or id(x) not in self.nodes or matrix.dim() != 2:
            raise NotFused("a product of two values that both vary")
        return Node("product", matrix.shape[1], (self.node(x),), index=_place(self.matrices, matrix))


def _place(known: list[Tensor], value: Tensor) -> int:
    for index, one in enumerate(known):
        if one is value:
            return index
    known.append(value)
    return len(known) - 1


def _flat(values: Any) -> list[Any]:
    return [one for value in values for one in (_flat(value) if isinstance(value, list | tuple) else [value])]


# ---------------------------------------------------------------------- the meaning of torch's operations


def _simple(op: str) -> Callable[..., Node]:
    return lambda tape, *args: pointwise(op, *(tape.node(arg) for arg in args))


def _add(tape: _Tape, a: Any, b: Any, alpha: float = 1) -> Node:
    return tape.node(a) + number(alpha) * tape.node(b)


def _sub(tape: _Tape, a: Any, b: Any, alpha: float = 1) -> Node:
    return tape.node(a) - number(alpha) * tape.node(b)


def _addmm(tape: _Tape, bias: Any, x: Any, matrix: Tensor, beta: float = 1, alpha: float = 1) -> Node:
    return tape.product(x, matrix) * number(alpha) + tape.node(bias) * number(beta)


def _columns(dim: int) -> None:
    if dim not in (1, -1):
        raise NotFused("rows are mixed")


def _slice(tape: _Tape, x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Node:
    node = tape.node(x)
    if dim == 0 and (start or 0) == 0 and (end is None or end >= ROWS):
        return node
    _columns(dim)
    first, last, stride = slice(start, end, step).indices(node.width)
    if stride != 1:
        raise NotFused("a slice of columns with a step")
    return part(node, first, last - first)


def _split(tape: _Tape, x: Any, sizes: int | list[int], dim: int = 0) -> list[Node]:
    _columns(dim)
    node = tape.node(x)
    if isinstance(sizes, int):
        sizes = [min(sizes, node.width - first) for first in range(0, node.width, sizes)]
    return [part(node, sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def _cat(tape: _Tape, values: list[Any], dim: int = 0) -> Node:
    _columns(dim)
    nodes = tuple(tape.node(value) for value in values)
    return Node("cat", sum(node.width for node in nodes), nodes)


def _sum(tape: _Tape, x: Any, dim: list[int] | None, keepdim: bool = False, dtype: Any = None) -> Node:
    if not dim or len(dim) != 1 or not keepdim:
        raise NotFused("a sum that is not over the last dimension with keepdim=True")
    _columns(dim[0])
    return total(tape.node(x))


def _mean(tape: _Tape, x: Any, dim: list[int] | None, keepdim: bool = False, dtype: Any = None) -> Node:
    return _sum(tape, x, dim, keepdim) * number(1 / tape.node(x).width)


def _softmax(tape: _Tape, x: Any, dim: int, half: bool) -> Node:
    _columns(dim)
    node = tape.node(x)
    powers = pointwise("exp", node - Node("top", 1, (node,)))
    return powers / total(powers)


def _layer_norm(tape: _Tape, x: Any, shape: list[int], weight: Any, bias: Any, epsilon: float) -> list[Node]:
    node = tape.node(x)
    share = number(1 / node.width)
    mean = total(node) * share
    apart = node - mean
    scale = ONE / pointwise("sqrt", total(apart * apart) * share + number(epsilon))
    y = apart * scale
    y = y if weight is None else y * tape.node(weight)
    return [y if bias is None else y + tape.node(bias), mean, scale]


def _clamp(tape: _Tape, x: Any, low: Any = None, high: Any = None) -> Node:
    node = tape.node(x)
    inside = node
    for bound, op in ((low, "ge"), (high, "le")):
        if bound is not None:
            inside = where(pointwise(op, node, number(bound)), inside, number(bound))
    return inside


def _softplus(tape: _Tape, x: Any, beta: float = 1, threshold: float = 20) -> Node:
    node = tape.node(x)
    scaled = node * number(beta)
    soft = pointwise("log", ONE + pointwise("exp", scaled)) / number(beta)
    return where(pointwise("gt", scaled, number(threshold)), node, soft)


def _elu(tape: _Tape, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Node:
    node = tape.node(x)
    low = number(alpha) * (pointwise("exp", node * number(input_scale)) - ONE)
    return number(scale) * where(pointwise("gt", node, number(0)), node, low)


def _compare(op: str) -> dict[Any, Callable[..., Node]]:
    packet = getattr(aten, op)
    return dict.fromkeys((packet.Scalar, packet.Tensor), _simple(op))


def _silu(tape: _Tape, x: Any) -> Node:
    return tape.node(x) * pointwise("sigmoid", tape.node(x))


def _linear(tape: _Tape, x: Any, weight: Tensor, bias: Any = None) -> Node:
    """Reached only without gradients; with gradients, torch turns it into a product with the transpose first."""
    if torch.is_grad_enabled() and weight.requires_grad:
        raise NotFused("a linear map that hides its gradients")
    product = tape.product(x, tape.transposed(weight))
    return product if bias is None else product + tape.node(bias)


PRODUCTS = frozenset({aten.mm.default, aten.addmm.default})
RULES: dict[Any, Callable[..., Node | list[Node]]] = {
    aten.add.Tensor: _add,
    aten.sub.Tensor: _sub,
    aten.rsub.Scalar: lambda tape, a, b, alpha=1: tape.node(b) - number(alpha) * tape.node(a),
    aten.mul.Tensor: lambda tape, a, b: tape.node(a) * tape.node(b),
    aten.div.Tensor: lambda tape, a, b: tape.node(a) / tape.node(b),
    aten.neg.default: lambda tape, a: -tape.node(a),
    aten.reciprocal.default: lambda tape, a: ONE / tape.node(a),
    aten.rsqrt.default: lambda tape, a: ONE / pointwise("sqrt", tape.node(a)),
    aten.square.default: lambda tape, a: tape.node(a) * tape.node(a),
    aten.pow.Tensor_Scalar: lambda tape, a, b: (
        tape.node(a) * tape.node(a) if b == 2 else pointwise("pow", tape.node(a), value=b)
    ),
    aten.lerp.Tensor: lambda tape, a, b, w: tape.node(a) + tape.node(w) * (tape.node(b) - tape.node(a)),
    aten.lerp.Scalar: lambda tape, a, b, w: tape.node(a) + number(w) * (tape.node(b) - tape.node(a)),
    aten.addcmul.default: lambda tape, a, b, c, value=1: tape.node(a) + number(value) * tape.node(b) * tape.node(c),
    **{getattr(aten, op).default: _simple(op) for op in ("exp", "log", "sqrt", "sigmoid", "tanh", "relu", "abs")},
    **{getattr(aten, op).default: _simple(op) for op in ("sin", "cos", "maximum", "minimum")},
    aten.silu.default: _silu,
    aten.softplus.default: _softplus,
    aten.elu.default: _elu,
    aten.leaky_relu.default: lambda tape, a, slope=0.01: where(
        pointwise("gt", tape.node(a), number(0)), tape.node(a), number(slope) * tape.node(a)
    ),
    aten.clamp.default: _clamp,
    aten.hardtanh.default: lambda tape, a, low=-1, high=1: _clamp(tape, a, low, high),
    aten.clamp_min.default: lambda tape, a, low: _clamp(tape, a, low),
    aten.clamp_max.default: lambda tape, a, high: _clamp(tape, a, None, high),
    aten.where.self: lambda tape, c, a, b: where(tape.node(c), tape.node(a), tape.node(b)),
    **{func: rule for op in ("lt", "le", "gt", "ge", "eq", "ne") for func, rule in _compare(op).items()},
    aten.mm.default: lambda tape, x, matrix: tape.product(x, matrix),
    aten.addmm.default: _addmm,
    aten.linear.default: _linear,
    aten.slice.Tensor: _slice,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.cat.default: _cat,
    aten.sum.dim_IntList: _sum,
    aten.mean.dim: _mean,
    aten._softmax.default: _softmax,
    aten.native_layer_norm.default: _layer_norm,
    aten.detach.default: _simple("detach"),
    **dict.fromkeys((aten.alias.default, aten.clone.default), lambda tape, a, **_: tape.node(a)),
    aten.zeros_like.default: lambda tape, a, **_: spread(number(0), tape.node(a).width),
    aten.ones_like.default: lambda tape, a, **_: spread(number(1), tape.node(a).width),
    aten.expand.default: lambda tape, a, shape, **_: spread(tape.node(a), shape[-1]),
}
