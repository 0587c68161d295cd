"""A step as a graph of values. A value is `width` numbers for each row of a batch; values of width 1 are broadcast.

step state row vector gradient    given values, told apart by `index`
number                            the same for all rows
add sub mul div neg ...           elementwise
slice pad cat spread              columns: `offset` is where a slice begins, or where a padded value is placed
sum top                           over a row: the sum and the largest number
product                           x M, with matrix `index`
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GIVEN = frozenset({"step", "state", "row", "vector", "gradient"})
COSTLY = frozenset({"exp", "log", "sqrt", "sigmoid", "tanh", "pow", "sin", "cos"})
"""Operations whose results are stored rather than computed twice."""


@dataclass(frozen=True, eq=False)
class Node:
    op: str
    width: int
    args: tuple[Node, ...] = ()
    index: int = 0
    offset: int = 0
    number: float = 0.0

    def __repr__(self) -> str:
        return f"{self.op}:{self.width}"

    # Operators build nodes, and drop zeros and ones.

    def __add__(self, other: Node) -> Node:
        if is_number(self, 0):
            return other
        return self if is_number(other, 0) else pointwise("add", self, other)

    def __sub__(self, other: Node) -> Node:
        return self if is_number(other, 0) else pointwise("sub", self, other)

    def __mul__(self, other: Node) -> Node:
        if is_number(self, 0) or is_number(other, 0):
            return ZERO
        if is_number(self, 1):
            return other
        return self if is_number(other, 1) else pointwise("mul", self, other)

    def __truediv__(self, other: Node) -> Node:
        if is_number(self, 0):
            return ZERO
        return self if is_number(other, 1) else pointwise("div", self, other)

    def __neg__(self) -> Node:
        return self if is_number(self, 0) else pointwise("neg", self)


def number(value: float) -> Node:
    return Node("number", 1, number=float(value))


ZERO, ONE = number(0), number(1)


def is_number(node: Node, value: float) -> bool:
    return node.op == "number" and node.number == value


def pointwise(op: str, *args: Node, value: float = 0.0) -> Node:
    return Node(op, max(arg.width for arg in args), args, number=value)


def where(condition: Node, yes: Node, no: Node) -> Node:
    return ZERO if is_number(yes, 0) and is_number(no, 0) else pointwise("where", condition, yes, no)


def part(node: Node, offset: int, width: int) -> Node:
    """Return columns offset to offset + width."""
    return node if node.width in (1, width) else Node("slice", width, (node,), offset=offset)


def pad(node: Node, offset: int, width: int) -> Node:
    """Place the node at an offset of a wider value that is zero elsewhere."""
    return node if node.width == width or is_number(node, 0) else Node("pad", width, (node,), offset=offset)


def spread(node: Node, width: int) -> Node:
    return node if node.width == width else Node("spread", width, (node,))


def total(node: Node) -> Node:
    """Return the sum of each row."""
    return node if node.width == 1 else Node("sum", 1, (node,))


def ordered(roots: Iterable[Node]) -> list[Node]:
    """Return all nodes that the roots depend on, arguments first."""
    found: dict[Node, None] = {}
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if ready:
            found[node] = None
        elif node not in found:
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))
    return list(found)
