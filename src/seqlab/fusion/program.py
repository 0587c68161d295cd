"""Turns the graph of a step into two functions: all steps forward, and all steps backward.

The forward pass stores states and the results of products and costly functions, if the backward pass needs them; the
rest is recomputed. Gradients of matrices are deferred: one product over all steps is cheaper than one per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from seqlab.fusion.emission import Buffer, Constants, Form, Stage, costly, is_given, needed
from seqlab.fusion.gradient import Gradients, differentiate
from seqlab.fusion.graph import ZERO, Node, ordered, spread
from seqlab.fusion.trace import Trace

FORMS: dict[str, Form] = {"step": "time", "state": "before", "row": "row", "vector": "vector", "gradient": "incoming"}

HEAD = """#include "vectors.h"

struct Map;
typedef void (*Apply)(const Map *, const Number *, Number *, Number *, Size);

struct Call {
    Size steps, rows, reverse, threads;
    Number **buffers;
    const Size *sizes;
    const Number *numbers;
    const Map *const *maps;
    Number *turned;
    Apply apply;
};
"""

FUNCTION = """
extern "C" void {name}(const Call *call) {{
    const Size steps = call->steps, rows = call->rows;
    Number **b = call->buffers;
    const Size *w = call->sizes;
    const Number *k = call->numbers;
    const Vector zero = {{}}, one = zero + 1;
#pragma omp parallel num_threads(call->threads)
    {{
        const Flushed flushed;
        for (Size n = 0; n < steps; n++) {{
            const Size step = {order}, t = call->reverse ? steps - 1 - step : step;
            const Size before = t + (call->reverse != 0), after = t + (call->reverse == 0);
            (void)before, (void)after, (void)zero, (void)one, (void)w, (void)k;
{body}
        }}
    }}
}}
"""


@dataclass(frozen=True)
class Product:
    """x M, written to a buffer; a negative matrix index is ~M, for M transposed."""

    matrix: int
    x: Buffer
    y: Buffer


@dataclass
class Pass:
    """One of the two functions: its code and the memory that it needs."""

    buffers: list[Buffer] = field(default_factory=list)
    loaded: dict[Node, Buffer] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def buffer(self, form: Form, width: int) -> Buffer:
        self.buffers.append(Buffer(len(self.buffers), form, width))
        return self.buffers[-1]

    def load(self, node: Node, form: Form | None = None) -> Buffer:
        if node not in self.loaded:
            self.loaded[node] = self.buffer(form or FORMS[node.op], node.width)
        return self.loaded[node]

    def function(self, name: str, order: str) -> str:
        return FUNCTION.format(name=name, order=order, body="\n".join(self.lines))


class Program:
    """`source` is the code; `forward` and `backward` describe what its pointers point to."""

    def __init__(self, trace: Trace, varying: frozenset[tuple[str, int]]) -> None:
        """`varying` lists the given values, by kind and index, that need a gradient; states always do."""
        self.outputs = trace.outputs
        self.tables = Constants()
        given = [node for node in ordered(self.outputs) if is_given(node)]
        self.given = {(node.op, node.index): node for node in given}
        incoming = [Node("gradient", node.width, index=index) for index, node in enumerate(self.outputs)]
        self.sequence = Node("gradient", self.outputs[0].width, index=-1)
        after = [incoming[0] + self.sequence, *incoming[1:]]
        self.incoming = incoming
        self.gradients = differentiate(
            self.outputs, after, lambda node: node.op != "state" and (node.op, node.index) not in varying
        )
        self.kept = self._kept(self.gradients)
        self.saved = [node for node in self.kept if node not in self.outputs]
        self.forward, self.after = self._forward()
        self.backward, self.of, self.deferred = self._backward()
        functions = self.forward.function("forward", "n") + self.backward.function("backward", "steps - 1 - n")
        self.source = HEAD + functions

    def _kept(self, gradients: Gradients) -> list[Node]:
        """Return the values of the forward pass that the backward pass starts from."""
        inside = set(ordered(self.outputs))
        known = set(self.outputs) | {node for node in inside if costly(node) or is_given(node)}
        leaves: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = [*gradients.of.values(), *(one.g for one in gradients.matrices)]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in known:
                leaves[node] = None
            else:
                stack.extend(node.args)
        for one in gradients.matrices:
            leaves[one.x] = None
        return [node for node in leaves if node.args]

    def _forward(self) -> tuple[Pass, list[Buffer]]:
        own = Pass()
        for node in self.given.values():
            own.load(node)
        targets = {node: own.buffer("time", node.width) for node in self.saved}
        after = []
        for index, node in enumerate(self.outputs):
            state = self.given.get(("state", index))
            number = own.loaded[state].number if state is not None else own.buffer("before", node.width).number
            after.append(Buffer(number, "after", node.width))
        outputs = list(zip(self.outputs, after, strict=True))
        self._stages(own, targets, outputs)
        return own, after

    def _backward(self) -> tuple[Pass, dict[Node, Buffer], list[tuple[int, Node, Buffer]]]:
        own = Pass()
        for node in self.incoming:
            own.load(node)
        own.load(self.sequence, "time")
        for node in self.given.values():
            own.load(node)
        for node in self.kept:
            if node in self.outputs:
                index = self.outputs.index(node)
                state = self.given.get(("state", index))
                number = own.loaded[state].number if state is not None else own.buffer("before", node.width).number
                own.loaded[node] = Buffer(number, "after", node.width)
            else:
                own.load(node, "time")
        targets: dict[Node, Buffer] = {}
        for one in self.gradients.matrices:
            if one.g not in targets:
                targets[one.g] = own.buffer("time", one.g.width)
        of: dict[Node, Buffer] = {}
        for node, gradient in self.gradients.of.items():
            if node.op != "state":
                if gradient not in targets:
                    targets[gradient] = own.buffer("time", gradient.width)
                of[node] = targets[gradient]
        outputs = []
        for index, node in enumerate(self.incoming):
            state = self.given.get(("state", index))
            gradient = self.gradients.of.get(state, ZERO) if state is not None else ZERO
            outputs.append((spread(gradient, node.width), Buffer(own.loaded[node].number, "outgoing", node.width)))
        self._stages(own, targets, outputs)
        return own, of, [(one.index, one.x, targets[one.g]) for one in self.gradients.matrices]

    def _stages(self, own: Pass, targets: dict[Node, Buffer], outputs: Sequence[tuple[Node, Buffer]]) -> None:
        """Write the code: stage after stage, with the products between them."""
        roots = [*targets, *(node for node, _ in outputs)]
        missing = set(needed(roots, own.loaded))
        nodes = [node for node in ordered(roots) if node in missing]
        level: dict[Node, int] = dict.fromkeys(own.loaded, 0)
        for node in nodes:
            level[node] = max((level[arg] for arg in node.args), default=0) + (node.op == "product")
        targets = dict(targets)
        for node in nodes:
            if node.op == "product" and node.args[0] not in own.loaded and node.args[0] not in targets:
                targets[node.args[0]] = own.buffer("row", node.args[0].width)
            for arg in node.args:  # store it rather than compute it in two stages
                if level[arg] < level[node] and costly(arg) and arg not in targets and arg not in own.loaded:
                    targets[arg] = own.buffer("row", arg.width)
        for stage in range(max(level.values(), default=0) + 1):
            now = [(node, buffer) for node, buffer in targets.items() if level[node] == stage and node.op != "product"]
            now += [(node, buffer) for node, buffer in outputs if level[node] == stage and node.op != "product"]
            if now:
                own.lines += Stage(own.loaded, self.tables).code(now)
            own.loaded |= {node: buffer for node, buffer in now if node not in own.loaded}
            for node in nodes:
                if node.op == "product" and level[node] == stage + 1:
                    y = targets[node] if node in targets else own.buffer("row", node.width)
                    self._product(own, node, y)
        for node, buffer in outputs:  # a state that is nothing but a product
            if node.op == "product":
                own.lines += Stage(own.loaded, self.tables).code([(node, buffer)])

    def _product(self, own: Pass, node: Node, y: Buffer) -> None:
        x = own.loaded[node.args[0]]
        own.loaded[node] = y
        number = len(own.products)
        own.products.append(Product(node.index, x, y))
        first = [one.row("0", self.tables) for one in (x, y)]
        own.lines.append(f"call->apply(call->maps[{number}], {first[0]}, call->turned, {first[1]}, rows);")
