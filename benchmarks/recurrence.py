"""Every cell beside nn.LSTM, nn.GRU and the loop that people write: forward and backward, as a ratio of minima.

python benchmarks/recurrence.py            all cells at three shapes
python benchmarks/recurrence.py lstm gru   only these
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqlab import registry
from seqlab.nn.cells import Cell
from seqlab.nn.recording import remarks
from seqlab.nn.recurrent import Recurrent

SHAPES = [(35, 20, 200, 200), (35, 20, 650, 650), (50, 64, 256, 512)]


class OwnCell(Cell):
    """A cell as a user writes it, one matrix a gate: an LSTM whose forget gate also scales what is given."""

    parts = ("h", "c")
    blocks = 3

    def __init__(self, width: int, hidden: int, settings: object = None) -> None:
        super().__init__(width, hidden)
        self.to_input, self.to_forget, self.to_new = (nn.Linear(hidden, hidden) for _ in range(3))

    def step(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, c = state
        i, f, g = inputs.chunk(3, dim=-1)
        i, f = torch.sigmoid(i + self.to_input(h)), torch.sigmoid(f + self.to_forget(h))
        c = f * c + i * torch.tanh(g + self.to_new(h))
        return f * torch.tanh(c), c


def loop(cell: Cell, x: Tensor) -> Tensor:
    """What people write: both products at each step, x[t] by index."""
    state, outputs = tuple(x.new_zeros(x.shape[1], cell.hidden) for _ in cell.parts), []
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


def compare(name: str, shape: tuple[int, int, int, int], repeats: int) -> str:
    T, B, D, H = shape
    torch.manual_seed(0)
    cls = OwnCell if name == "own" else registry.find("cell", name)
    net, lstm, gru = Recurrent([cls(D, H, cls.Settings(kind=name))]), nn.LSTM(D, H), nn.GRU(D, H)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(2)
    for shape in SHAPES:
        print(f"\n(T, B, D, H) = {shape}\n")
        print("| cell | ms | of nn.LSTM | nn.GRU takes | the loop takes | path |\n|---|---|---|---|---|---|")
        for name in args.cells or [*registry.CELLS, "own"]:
            print(compare(name, shape, args.repeats), flush=True)


if __name__ == "__main__":
    main()
