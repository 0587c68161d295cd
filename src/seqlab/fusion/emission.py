"""Generates C++ from a graph: whatever can be computed together becomes one pass over the memory of a row.

A stage is everything that can be computed before the next product. Its loops run over columns, a vector at a time, and
read only what earlier stages left in memory; sums over a row come first, since later columns may depend on them. Sizes
and numbers are not written into the code but passed to it, so that a cell is compiled once, whatever its width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from seqlab.fusion.graph import COSTLY, GIVEN, Node, is_number

Form = Literal["time", "before", "after", "row", "vector", "incoming", "outgoing"]
STEP_OF: dict[Form, str] = {
    "time": "t",  # (T, B, width): one per step
    "before": "before",  # (T + 1, B, width): the states before and after each step
    "after": "after",
    "row": "0",  # (B, width): the same at every step, or only for one step
    "incoming": "(step + 1) % 2",  # (2, B, width): gradients passed from step to step
    "outgoing": "step % 2",
}

OPERATIONS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "div": "{} / {}",
    "neg": "-{}",
    "relu": "{0} > 0 ? {0} : zero",
    "abs": "{0} < 0 ? -{0} : {0}",
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
    "where": "{} != 0 ? {} : {}",
    "sigmoid": "sigmoid({})",
    "tanh": "tangent({})",
    "exp": "exponential({})",
    **{name: f"each({{}}, [](Number x) {{{{ return std::{name}(x); }}}})" for name in ("log", "sqrt", "sin", "cos")},
    "pow": "each({}, [=](Number x) {{ return std::pow(x, {number}); }})",
    "spread": "{}",
    "detach": "{}",
    **{
        name: f"{{}} {sign} {{}} ? one : zero"
        for name, sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items()
    },
}


@dataclass(frozen=True)
class Buffer:
    """Memory for a value: `number` is its index among the pointers passed to the code."""

    number: int
    form: Form
    width: int

    def row(self, row: str, tables: Constants) -> str:
        """Return the address of a row at this step."""
        if self.form == "vector":
            return f"b[{self.number}]"
        return f"b[{self.number}] + ({STEP_OF[self.form]} * rows + {row}) * {tables.size(self.width)}"


@dataclass
class Constants:
    """Sizes and numbers that the code reads at run time, without duplicates."""

    sizes: list[int] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)

    def size(self, value: int) -> str:
        return f"w[{_index(self.sizes, value)}]"

    def number(self, value: float) -> str:
        return f"k[{_index(self.numbers, value)}]"


def _index(table: list, value: float) -> int:  # type: ignore[type-arg]
    if value not in table:
        table.append(value)
    return table.index(value)


def needed(roots: Iterable[Node], loaded: Mapping[Node, Buffer]) -> Iterator[Node]:
    """Yield all nodes that must be computed for the roots, including these, except those in memory."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen and node not in loaded:
            seen.add(node)
            stack.extend(node.args)
            yield node


class Stage:
    """The code of one stage, which computes targets from loaded values and stores them."""

    def __init__(self, loaded: Mapping[Node, Buffer], tables: Constants) -> None:
        self.loaded, self.tables = loaded, tables
        self.lines: list[str] = []
        self.pointers: dict[Buffer, str] = {}
        self.scalars: dict[Node, str] = {}

    def code(self, targets: Sequence[tuple[Node, Buffer]]) -> list[str]:
        for node in self._reductions([node for node, _ in targets]):
            self._reduce(node)
        groups: dict[int, list[tuple[Node, int, Buffer]]] = {}
        for node, buffer in targets:
            for first, last in self._intervals(node, 0, node.width):
                groups.setdefault(last - first, []).append((node, first, buffer))
        for width, group in groups.items():
            self._loop(width, group)
        pointers = [f"Number *{name} = {buffer.row('r', self.tables)};" for buffer, name in self.pointers.items()]
        return ["#pragma omp for schedule(static)", "for (Size r = 0; r < rows; r++) {", *pointers, *self.lines, "}"]

    def _reductions(self, roots: Sequence[Node]) -> list[Node]:
        """Return reductions over rows, and single columns of wider values, ordered by their dependencies."""
        depth: dict[Node, int] = {}

        def visit(node: Node) -> int:
            if node in self.loaded:
                return 0
            if node not in depth:
                depth[node] = max((visit(arg) for arg in node.args), default=0) + _reduces(node)
            return depth[node]

        for root in roots:
            visit(root)
        return sorted((node for node in depth if _reduces(node)), key=depth.__getitem__)

    def _reduce(self, node: Node) -> None:
        name, (arg,) = f"s{len(self.scalars)}", node.args
        columns = (node.offset, node.offset + 1) if node.op == "slice" else (0, arg.width)
        empty = "-INFINITY" if node.op == "top" else "0"
        self.lines.append(f"Vector {name} = Vector{{}} + Number({empty});")
        for first, last in self._intervals(arg, columns[0], columns[1] - columns[0]):
            loop = _Loop(self, last - first)
            value = loop.at(arg, columns[0] + first)
            chosen = f"inside(j, count) ? {value} : Vector{{}} + Number({empty})"
            joined = f"{name} > part ? {name} : part" if node.op == "top" else f"{name} + part"
            self.lines += loop.wrapped([f"const Vector part = {chosen};", f"{name} = {joined};"])
        whole = f"largest({name})" if node.op == "top" else f"total({name})"
        self.lines.append(f"{name} = Vector{{}} + {whole};")
        self.scalars[node] = name

    def _loop(self, width: int, group: Sequence[tuple[Node, int, Buffer]]) -> None:
        loop = _Loop(self, width)
        stores = []
        for node, first, buffer in group:
            place = f"{self.pointer(buffer)} + {self.tables.size(first)}"
            stores.append(f"store({loop.at(node, first)}, {place}, j, count, whole);")
        self.lines += loop.wrapped(stores)

    def pointer(self, buffer: Buffer) -> str:
        return self.pointers.setdefault(buffer, f"x{len(self.pointers)}")

    def _intervals(self, node: Node, offset: int, width: int) -> list[tuple[int, int]]:
        """Return intervals of columns, counted from the offset, in each of which a single formula holds."""
        cuts = sorted({0, width} | {cut - offset for cut in self._cuts(node, offset, offset + width)})
        return list(pairwise(cuts))

    def _cuts(self, node: Node, first: int, last: int) -> set[int]:
        if node in self.loaded or node.width == 1 or _reduces(node):
            return set()
        if node.op == "slice":
            return {cut - node.offset for cut in self._cuts(node.args[0], first + node.offset, last + node.offset)}
        found: set[int] = set()
        if node.op in ("cat", "pad"):
            start = node.offset
            for arg in node.args:
                stop = start + arg.width
                inner = max(first, start), min(last, stop)
                if inner[0] < inner[1]:
                    found |= {cut + start for cut in self._cuts(arg, inner[0] - start, inner[1] - start)}
                found |= {cut for cut in (start, stop) if first < cut < last}
                start = stop
            return found
        for arg in node.args:
            found |= self._cuts(arg, first, last)
        return found


class _Loop:
    """The body of one loop over columns, which computes every value once."""

    def __init__(self, stage: Stage, width: int) -> None:
        self.stage, self.width = stage, width
        self.lines: list[str] = []
        self.names: dict[tuple[Node, int], str] = {}

    def wrapped(self, body: Sequence[str]) -> list[str]:
        count = f"const Size count = {self.stage.tables.size(self.width)};"
        return ["{", count, "over_columns(count, [&](Size j, auto whole) {", *self.lines, *body, "});", "}"]

    def at(self, node: Node, offset: int) -> str:
        """Return the name of the vector of columns from offset + j on."""
        if node in self.stage.scalars:
            return self.stage.scalars[node]
        key = (node, 0 if node.width == 1 else offset)
        if key not in self.names:
            formula = self._formula(node, offset)
            self.names[key] = f"v{len(self.names)}"
            self.lines.append(f"const Vector {self.names[key]} = {formula};")
        return self.names[key]

    def _formula(self, node: Node, offset: int) -> str:
        tables = self.stage.tables
        if node in self.stage.loaded:
            pointer = self.stage.pointer(self.stage.loaded[node])
            if node.width == 1:
                return f"Vector{{}} + {pointer}[0]"
            return f"load({pointer} + {tables.size(offset)}, j, count, whole)"
        if node.op == "number":
            if is_number(node, 0) or is_number(node, 1):
                return "one" if node.number else "zero"
            return f"Vector{{}} + {tables.number(node.number)}"
        if node.op == "slice":
            return self.at(node.args[0], offset + node.offset)
        if node.op in ("cat", "pad"):
            start = node.offset
            for arg in node.args:
                if start <= offset < start + arg.width:
                    return self.at(arg, offset - start)
                start += arg.width
            return "zero"
        names = [self.at(arg, offset) for arg in node.args]
        number = tables.number(node.number) if node.op == "pow" else ""
        return OPERATIONS[node.op].format(*names, number=number)


def _reduces(node: Node) -> bool:
    return node.op in ("sum", "top") or (node.op == "slice" and node.width == 1)


def costly(node: Node) -> bool:
    return node.op in COSTLY or node.op in ("product", "sum", "top")


def is_given(node: Node) -> bool:
    return node.op in GIVEN
