"""Runs all steps of a recurrence in one call, forward and backward, given one step written in plain PyTorch.

T steps · B rows
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqlab.fusion.emission import Buffer
from seqlab.fusion.graph import Node, ordered
from seqlab.fusion.program import Pass, Program
from seqlab.fusion.trace import NotFused, Trace, trace
from seqlab.native import compiler
from seqlab.native.compiler import compiled
from seqlab.native.linear import Map
from seqlab.native.multiply import multiplied

NUMBERS = {torch.float32: "float", torch.float64: "double"}
Step = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def fused(
    step: Step,
    steps: Sequence[Tensor],
    states: Sequence[Tensor],
    rows: Sequence[Tensor],
    reverse: bool = False,
    compiled_from: int | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Repeat step(inputs, states, rows) → states; return the first state after each step (T, B, H) and the last states.

    `steps` (T, B, n) are split along T; `rows` (B, n) are the same at every step. Raises NotFused, with the reason, if
    the step cannot be fused.
    """
    first = states[0]
    if first.device.type != "cpu" or first.dtype not in NUMBERS:
        raise NotFused(f"{first.dtype} on {first.device.type}")
    if torch.is_autocast_enabled("cpu"):
        raise NotFused("autocast")
    if maps(first.dtype) is None:
        raise NotFused("there is no C++ compiler with OpenMP")
    steps, rows = [one.to(first.dtype) for one in steps], [one.to(first.dtype) for one in rows]
    with torch.inference_mode(False):  # in inference mode, composite operations are not decomposed
        seen = trace(step, steps, states, rows)
    groups = {"step": steps, "row": rows, "vector": seen.vectors}
    varying = [(kind, i) for kind, group in groups.items() for i, one in enumerate(group) if one.requires_grad]
    program = _program(seen, frozenset(varying))
    code = compiled(program.source, f"NUMBER={NUMBERS[first.dtype]}")
    if code is None:
        raise NotFused("the C++ compiler failed")
    counts = [len(group) for group in (steps, states, rows, seen.vectors)]
    tensors = [*steps, *states, *rows, *seen.vectors, *seen.matrices]
    outputs, *last = _Loop.apply(program, code, counts, reverse, compiled_from, *tensors)  # type: ignore[no-untyped-call]
    return outputs, tuple(last)


@cache
def maps(dtype: torch.dtype) -> ctypes.CDLL | None:
    source = Path(compiler.HEADERS / "maps.cpp").read_text(encoding="utf-8")
    library = compiled(source, f"NUMBER={NUMBERS[dtype]}")
    if library is not None:
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        library.pack.argtypes = [pointer, count, count, pointer, count, count, ctypes.c_int]
    return library


MOST_PROGRAMS = 1000
_programs: dict[Any, Program] = {}


def _program(seen: Trace, varying: frozenset[tuple[str, int]]) -> Program:
    """Return the program of a graph, which is made only once."""
    order = ordered(seen.outputs)
    place = {node: index for index, node in enumerate(order)}
    described = [
        (node.op, node.width, node.index, node.offset, node.number, tuple(place[arg] for arg in node.args))
        for node in order
    ]
    key = (tuple(described), tuple(place[node] for node in seen.outputs), varying)
    if key not in _programs:
        if len(_programs) >= MOST_PROGRAMS:  # a number in a step may differ in every window
            _programs.clear()
        _programs[key] = Program(seen, varying)
    return _programs[key]


class _Call(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "rows", "reverse", "threads")),
        *((name, ctypes.c_void_p) for name in ("buffers", "sizes", "numbers", "maps", "turned", "apply")),
    )


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        program: Program,
        code: Any,
        counts: list[int],
        reverse: bool,
        compiled_from: int | None,
        *tensors: Tensor,
    ) -> Any:
        steps, states, rows, vectors, matrices = _grouped(tensors, counts)
        length, count = (len(steps[0]), len(states[0])) if steps else (0, len(states[0]))
        start, end = (length, 0) if reverse else (0, length)
        slots = []
        for state in states:
            slots.append(state.new_empty(length + 1, count, state.shape[-1]))
            slots[-1][start] = state
        given = {"step": steps, "state": slots, "row": rows, "vector": vectors}
        memory: dict[int, Tensor] = {
            program.forward.loaded[node].number: given[kind][index].contiguous()
            for (kind, index), node in program.given.items()
        }
        memory |= {buffer.number: slots[index] for index, buffer in enumerate(program.after)}
        call = _Memory(program.forward, memory, length, count, slots[0])
        _call(code.forward, program, program.forward, call, matrices, reverse)
        kept = [call.memory[program.forward.loaded[node].number] for node in program.saved]
        ctx.program, ctx.code, ctx.counts, ctx.reverse, ctx.length = program, code, counts, reverse, length
        ctx.compiled_from = compiled_from
        ctx.save_for_backward(*steps, *slots, *rows, *vectors, *matrices, *kept)
        outputs = slots[0][:-1] if reverse else slots[0][1:]
        return outputs, *(slot[end].clone() for slot in slots)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *last: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("a fused recurrence has no gradients of gradients; use Recurrent(..., fuse=False)")
        program: Program = ctx.program
        tensors = ctx.saved_tensors  # read only once: this may recompute them
        count = len(tensors) - len(program.saved)
        steps, slots, rows, vectors, matrices = _grouped(tensors[:count], ctx.counts)
        own, length, batch = program.backward, ctx.length, slots[0].shape[1]
        given = {"step": steps, "state": slots, "row": rows, "vector": vectors}
        memory = {own.loaded[program.sequence].number: gradient.contiguous()}
        for index, node in enumerate(program.incoming):
            carry = gradient.new_empty(2, batch, node.width)
            carry[length % 2] = last[index]
            memory[own.loaded[node].number] = carry
        for (kind, index), node in program.given.items():
            memory[own.loaded[node].number] = given[kind][index].contiguous()
        for node, slot in zip(program.outputs, slots, strict=True):
            if node in program.kept:  # shares memory with the states before each step, which may be given
                memory.setdefault(own.loaded[node].number, slot)
        for node, saved in zip(program.saved, tensors[count:], strict=True):
            memory[own.loaded[node].number] = saved
        call = _Memory(own, memory, length, batch, gradient)
        _call(ctx.code.backward, program, own, call, matrices, ctx.reverse)
        return *[None] * 5, *_collected(ctx, program, call, matrices)


def _collected(ctx: Any, program: Program, call: _Memory, matrices: list[Tensor]) -> list[Any]:
    """Return gradients in the order of the input tensors."""
    found: list[Tensor | None] = []
    for kind, count in zip(("step", "state", "row", "vector"), ctx.counts, strict=True):
        for index in range(count):
            node = program.given.get((kind, index))
            if kind == "state":
                found.append(call.memory[program.backward.loaded[program.incoming[index]].number][0])
            elif node is None or node not in program.of:
                found.append(None)
            else:
                gradient = call.memory[program.of[node].number]
                along = {"step": (), "row": (0,), "vector": (0, 1)}[kind]
                found.append(gradient.sum(along) if along else gradient)
    sums: list[Tensor | None] = [None] * len(matrices)
    needed = ctx.needs_input_grad[-len(matrices) :] if matrices else []
    for index, x, buffer in program.deferred:
        if needed[index]:
            inputs = _over_time(program, call, x, ctx)
            gradients = call.memory[buffer.number].flatten(0, 1)
            product = multiplied(gradients.t(), inputs.flatten(0, 1).t(), ctx.compiled_from).t()
            known = sums[index]
            sums[index] = product if known is None else known + product
    return [*found, *sums]


def _over_time(program: Program, call: _Memory, x: Node, ctx: Any) -> Tensor:
    """Return what was multiplied by a matrix at every step, (T, B, n)."""
    buffer = program.backward.loaded[x]
    values = call.memory[buffer.number]
    if buffer.form == "before":
        return values[1:] if ctx.reverse else values[:-1]
    if buffer.form == "after":
        return values[:-1] if ctx.reverse else values[1:]
    return values.expand(ctx.length, *values.shape) if buffer.form == "row" else values


class _Memory:
    """The tensors behind all buffers of a pass."""

    def __init__(self, own: Pass, memory: dict[int, Tensor], length: int, rows: int, like: Tensor) -> None:
        self.length, self.rows, self.like = length, rows, like
        self.memory = memory
        for buffer in own.buffers:
            if buffer.number not in memory:
                memory[buffer.number] = like.new_empty(self._shape(buffer))

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        first = {"time": (self.length,), "before": (self.length + 1,), "row": (), "incoming": (2,)}[buffer.form]
        return (*first, self.rows, buffer.width)


def _call(function: Any, program: Program, own: Pass, call: _Memory, matrices: list[Tensor], reverse: bool) -> None:
    like = call.like
    threads = torch.get_num_threads() if call.rows > 1 else 1  # one row does not justify barriers at every step
    library = maps(like.dtype)
    assert library is not None
    lanes = library.lanes()
    alive, structures = [], []
    bias = like.new_zeros(max((one.y.width for one in own.products), default=0) + lanes)
    for product in own.products:
        matrix = matrices[~product.matrix].t() if product.matrix < 0 else matrices[product.matrix]
        inputs, outputs = matrix.shape
        panels = like.new_empty(-(-outputs // lanes) * lanes * inputs)
        down, across = matrix.stride(1), matrix.stride(0)
        library.pack(matrix.data_ptr(), down, across, panels.data_ptr(), outputs, inputs, threads)
        alive.append(panels)
        structures.append(Map(panels.data_ptr(), bias.data_ptr(), inputs, outputs))
    turned = like.new_empty(max((one.inputs for one in structures), default=0) * call.rows)
    pointers = [call.memory[number].data_ptr() for number in range(len(own.buffers))]
    buffers = (ctypes.c_void_p * len(pointers))(*pointers)
    sizes = (ctypes.c_int64 * len(program.tables.sizes))(*program.tables.sizes)
    numbers = torch.tensor(program.tables.numbers, dtype=like.dtype)
    places = (ctypes.c_void_p * len(structures))(*(ctypes.addressof(one) for one in structures))
    function(
        ctypes.byref(
            _Call(
                call.length,
                call.rows,
                reverse,
                threads,
                ctypes.cast(buffers, ctypes.c_void_p),
                ctypes.cast(sizes, ctypes.c_void_p),
                numbers.data_ptr(),
                ctypes.cast(places, ctypes.c_void_p),
                turned.data_ptr(),
                ctypes.cast(library.apply_map, ctypes.c_void_p),
            )
        )
    )


def _grouped(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[list[Tensor]]:
    groups, first = [], 0
    for count in counts:
        groups.append(list(tensors[first : first + count]))
        first += count
    return [*groups, list(tensors[first:])]
