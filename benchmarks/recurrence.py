"""Every cell beside nn.LSTM, nn.GRU and the loop that people write: forward and backward, as a ratio of minima.

python benchmarks/recurrence.py            all cells at three shapes
python benchmarks/recurrence.py lstm gru   only these
python benchmarks/recurrence.py --parts    where the time of the LSTM goes
python benchmarks/recurrence.py --compile  what it takes to meet a new cell
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

import torch
from torch import Tensor, nn

from seqlab import registry
from seqlab.decoding.compiled import CompiledLinear
from seqlab.fusion import loop as loop_over_time
from seqlab.nn.cells import LSTM, Cell
from seqlab.nn.recording import remarks
from seqlab.nn.recurrent import Recurrent
from seqlab.training.routing import compiled_from, route

SHAPES = [(35, 20, 200, 200), (35, 20, 650, 650), (50, 64, 256, 512)]


class OwnCell(Cell):
    """A cell as a user writes it, one matrix a gate: an LSTM whose forget gate also scales what is given."""

    parts = ("h", "c")
    blocks = 3

    def __init__(self, input_width: int, width: int, settings: object = None) -> None:
        super().__init__(input_width, width)
        self.to_input, self.to_forget, self.to_new = (nn.Linear(width, width) for _ in range(3))

    def step(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, c = state
        i, f, g = inputs.chunk(3, dim=-1)
        i, f = torch.sigmoid(i + self.to_input(h)), torch.sigmoid(f + self.to_forget(h))
        c = f * c + i * torch.tanh(g + self.to_new(h))
        return f * torch.tanh(c), c


def loop(cell: Cell, x: Tensor) -> Tensor:
    """What people write: both products at each step, x[t] by index."""
    state, outputs = tuple(x.new_zeros(x.shape[1], cell.width) for _ in cell.parts), []
    for t in range(len(x)):
        state = cell.step(cell.inputs(x[t]), state)
        outputs.append(state[0])
    return torch.stack(outputs)


def best(runs: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, float]:
    times = dict.fromkeys(runs, float("inf"))
    for number in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run().sum().backward()
            if number:  # the first is for warming up
                times[name] = min(times[name], time.perf_counter() - start)
    return times


def compare(name: str, shape: tuple[int, int, int, int], repeats: int, products: str) -> str:
    T, B, D, H = shape
    torch.manual_seed(0)
    cls = OwnCell if name == "own" else registry.find("cell", name)
    net, lstm, gru = Recurrent([cls(D, H, cls.Settings(kind=name))]), nn.LSTM(D, H), nn.GRU(D, H)
    route(net, compiled_from(products, torch.device("cpu")))  # as a training does
    x = torch.randn(T, B, D, requires_grad=True)
    runs = {
        "ours": lambda: net(x.transpose(0, 1), net.start(B, x))[0],
        "lstm": lambda: lstm(x)[0],
        "gru": lambda: gru(x)[0],
        "loop": lambda: loop(net.layers[0], x),
    }
    said: list[str] = []
    with remarks(said.append):
        times = best(runs, repeats)
    ours = times["ours"]
    ratios = [f"{ours / times['lstm']:.2f}", f"{times['gru'] / ours:.2f}", f"{times['loop'] / ours:.2f}"]
    return f"| {name} | {1000 * ours:.1f} | {' | '.join(ratios)} | {said[0]} |"


def fastest(run: Callable[[], object], repeats: int) -> float:
    """Milliseconds."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    return min(times[1:])


def parts(repeats: int) -> None:
    """Where the time of forward and backward goes: what each part takes in the fastest of its turns."""
    T, B, D, H = SHAPES[-1]
    torch.manual_seed(0)
    cell = LSTM(D, H)
    net, x = Recurrent([cell]), torch.randn(B, T, D, requires_grad=True)
    route(net, compiled_from("auto", torch.device("cpu")))
    turns: dict[str, list[float]] = {"trace": [], "_call": [], "_collected": []}

    def timed(name: str) -> Callable[..., object]:
        function = getattr(loop_over_time, name)

        def run(*arguments: object) -> object:
            start = time.perf_counter()
            result = function(*arguments)
            turns[name].append(1000 * (time.perf_counter() - start))
            return result

        return run

    with ExitStack() as patches:
        for name in turns:
            patches.enter_context(mock.patch.object(loop_over_time, name, timed(name)))
        whole = fastest(lambda: net(x, net.start(B, x))[0].sum().backward(), repeats)
    forward, backward = min(turns["_call"][2::2]), min(turns["_call"][3::2])  # the first two are for warming up
    inputs = fastest(lambda: cell.inputs(x), repeats)
    given, gradient = cell.inputs(x), torch.randn(B, T, 4 * H)
    inputs_back = fastest(lambda: given.backward(gradient, retain_graph=True), repeats)
    h, matrix = torch.randn(B, H), cell.recurrent.weight.detach()
    ours, flops = CompiledLinear(matrix, None), 2e-6 * B * H * 4 * H
    product, library = (fastest(lambda run=run: run(h), 20 * repeats) for run in (ours, lambda h: h @ matrix.t()))
    for what, took in {
        "forward and backward": whole,
        "the product of all inputs": inputs,
        "the trace of the step": min(turns["trace"][1:]),
        "the loop forward": forward,
        f"... of it {T} products, as long as they take alone": T * product,
        "the loop back": backward,
        "the gradient of the recurrent matrix, in one product": min(turns["_collected"][1:]),
        "the gradients of the inputs and their matrix": inputs_back,
    }.items():
        print(f"{what}: {took:.1f} ms")
    print(f"a product of {B} rows: {flops / product:.0f} GFLOP/s, torch.mm {flops / library:.0f}")


def compiling() -> None:
    """A folder for compiled code that is empty, so that all of it is compiled here; then a cell not met before."""
    x = torch.randn(20, 35, 200)
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"SEQLAB_CACHE": folder}):
        for what, cls in {"the first cell of all": LSTM, "a new cell after it": OwnCell}.items():
            net, took = Recurrent([cls(200, 200)]), []
            for _ in range(2):
                start = time.perf_counter()
                net(x, net.start(20, x))[0].sum().backward()
                took.append(time.perf_counter() - start)
            print(f"{what}: {took[0]:.2f} s for the first forward and backward, {took[1]:.4f} s for the second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--products", default="auto", choices=["auto", "torch", "compiled"], help="training.products")
    args = parser.parse_args()
    torch.set_num_threads(2)
    if args.parts or args.compile:
        parts(args.repeats) if args.parts else compiling()
        return
    for shape in SHAPES:
        print(f"\n(T, B, D, H) = {shape}\n")
        print("| cell | ms | of nn.LSTM | nn.GRU takes | the loop takes | path |\n|---|---|---|---|---|---|")
        for name in args.cells or [*registry.CELLS, "own"]:
            print(compare(name, shape, args.repeats, args.products), flush=True)


if __name__ == "__main__":
    main()
