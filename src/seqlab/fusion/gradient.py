"""The chain rule, backwards through the graph of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seqlab.fusion.graph import ONE, ZERO, Node, is_number, number, ordered, pad, part, pointwise, spread, total, where

HALF = number(0.5)


def _power(y: Node, g: Node, a: Node) -> Node:
    return g * number(y.number) * pointwise("pow", a, value=y.number - 1)


def _larger(y: Node, g: Node, a: Node, b: Node) -> list[Node]:
    """If both are equal, each gets half, as in torch."""
    tie = pointwise("eq", a, b)
    return [where(tie, HALF * g, where(pointwise("eq", y, one), g, ZERO)) for one in (a, b)]


RULES: dict[str, Callable[..., Node | Sequence[Node]]] = {
    "add": lambda y, g, a, b: [g, g],
    "sub": lambda y, g, a, b: [g, -g],
    "mul": lambda y, g, a, b: [g * b, g * a],
    "div": lambda y, g, a, b: [g / b, -(g * y / b)],
    "neg": lambda y, g, a: -g,
    "exp": lambda y, g, a: g * y,
    "log": lambda y, g, a: g / a,
    "sqrt": lambda y, g, a: HALF * g / y,
    "sigmoid": lambda y, g, a: g * y * (ONE - y),
    "tanh": lambda y, g, a: g * (ONE - y * y),
    "relu": lambda y, g, a: where(pointwise("gt", y, ZERO), g, ZERO),
    "abs": lambda y, g, a: g * where(pointwise("eq", a, ZERO), ZERO, where(pointwise("gt", a, ZERO), ONE, -ONE)),
    "sin": lambda y, g, a: g * pointwise("cos", a),
    "cos": lambda y, g, a: -(g * pointwise("sin", a)),
    "pow": _power,
    "maximum": _larger,
    "minimum": _larger,
    "where": lambda y, g, condition, a, b: [ZERO, where(condition, g, ZERO), where(condition, ZERO, g)],
    "slice": lambda y, g, a: pad(g, y.offset, a.width),
    "pad": lambda y, g, a: part(g, y.offset, a.width),
    "sum": lambda y, g, a: spread(g, a.width),
    "spread": lambda y, g, a: g,
    "detach": lambda y, g, a: ZERO,
    "top": lambda y, g, a: ZERO,  # used only by softmax, which does not depend on it
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), lambda y, g, a, b: [ZERO, ZERO]),
}


@dataclass(frozen=True)
class Deferred:
    """The gradient of matrix `index`, Σ xᵀ g over all steps and rows, computed as one product after the last step."""

    index: int
    x: Node
    g: Node


@dataclass(frozen=True)
class Gradients:
    of: Mapping[Node, Node]
    """Gradients of the given values, for one step."""
    matrices: Sequence[Deferred]


def differentiate(outputs: Sequence[Node], gradients: Sequence[Node], constant: Callable[[Node], bool]) -> Gradients:
    """Return the gradients of Σ ⟨output, gradient⟩. `constant` is true for given values that need none."""
    order = ordered(outputs)
    varies: dict[Node, bool] = {}
    for node in order:
        varies[node] = any(varies[arg] for arg in node.args) if node.args else not constant(node)
        varies[node] |= node.op == "product"
    of: dict[Node, Node] = {}
    for output, gradient in zip(outputs, gradients, strict=True):
        of[output] = of[output] + gradient if output in of else gradient
    matrices = []
    for node in reversed(order):
        g = of.get(node)
        if g is None or is_number(g, 0) or not varies[node] or not node.args:
            continue
        if node.op == "product":
            matrices.append(Deferred(node.index, node.args[0], g))
        for arg, found in zip(node.args, _shares(node, g), strict=True):
            if varies[arg] and not is_number(found, 0):
                found = total(found) if arg.width < found.width else found  # the argument was spread
                of[arg] = of[arg] + found if arg in of else found
    return Gradients({node: of[node] for node in order if not node.args and node in of}, matrices)


def _shares(node: Node, g: Node) -> Sequence[Node]:
    if node.op == "product":
        return [Node("product", node.args[0].width, (g,), index=~node.index)]  # by the transposed matrix
    if node.op == "cat":
        offsets = [sum(arg.width for arg in node.args[:i]) for i in range(len(node.args))]
        return [part(g, offset, arg.width) for offset, arg in zip(offsets, node.args, strict=True)]
    found = RULES[node.op](node, g, *node.args)
    return [found] if isinstance(found, Node) else found
