"""What do long sequences cost a recurrent net? Time and memory of forward and backward over T steps.

All T steps at once: time and memory should be linear in T. Windows of 100 steps, each from the state that the one
before left (truncated backpropagation): memory should not depend on T at all. B = 8 rows, 128 wide, one thread; each
point is measured in a process of its own: the fastest of several turns, and how far the first one raises its peak.

    python benchmarks/recurrence_length.py --figure docs/recurrence-length.png       # about three minutes
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from length import peak_bytes
from recurrence import OwnCell

from seqlab.nn.cells import GRU, LSTM
from seqlab.nn.recurrent import Recurrent

LENGTHS = (100, 300, 1000, 3000, 10_000)
ROWS, WIDTH, WINDOW = 8, 128, 100
CELLS = {"LSTM": LSTM, "GRU": GRU, "own": OwnCell}
WAYS = ("whole", "windows")


def learn(net: Recurrent, x: torch.Tensor, windows: int) -> None:
    """Forward and backward over x, as often as there are windows; the state is carried on, the gradient is not."""
    state = net.start(len(x), x)
    for _ in range(windows):
        outputs, state = net(x, state)
        outputs.sum().backward()
        state = [tuple(part.detach() for part in layer) for layer in state]


def measure(name: str, way: str, length: int) -> tuple[float, float]:
    """µs a step, and MB by which the peak of this process rises."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Recurrent([CELLS[name](WIDTH, WIDTH)])
    at_once = length if way == "whole" else min(length, WINDOW)
    x = torch.randn(ROWS, at_once, WIDTH)
    learn(net, x[:, :2], 1)  # compiled, and gradients are there
    before, best = peak_bytes(), float("inf")
    for turn in range(3 + 3000 // length):
        start = time.perf_counter()
        learn(net, x, length // at_once)
        best = min(best, time.perf_counter() - start)
        if turn == 0:
            memory = peak_bytes() - before
    return 1e6 * best / length, memory / 1e6


def measured_apart(name: str, way: str, length: int) -> tuple[float, float]:
    command = [sys.executable, __file__, "--one", name, way, str(length)]
    micros, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(micros), float(memory)


def exponent(values: list[float]) -> float:
    """value ≈ a T^p: p, by least squares of the logarithms, from T = 300 on."""
    return float(np.polyfit(np.log(LENGTHS[1:]), np.log(np.maximum(values[1:], 1e-3)), 1)[0])


def draw(path: Path, seconds: dict[str, list[float]], memory: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.8), dpi=130)
    titles = ("forward and backward over T steps (s)", "peak memory (MB)")
    for place, title, lines in zip(panels, titles, (seconds, memory), strict=True):
        for number, (name, values) in enumerate(lines.items()):
            style = "o-" if name.endswith("whole") else "s--"
            place.loglog(LENGTHS, values, style, color=f"C{number // 2}", markersize=4, linewidth=1.2, label=name)
        place.set_title(title, loc="left", fontsize=10)
        place.set_xlabel("T")
        place.grid(alpha=0.3)
    panels[1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--one", nargs=3, metavar=("CELL", "WAY", "T"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, way, length = arguments.one
        print(*measure(name, way, int(length)))
        return
    seconds, memory = {}, {}
    print("| | " + " | ".join(f"{length:,}" for length in LENGTHS) + " | grows as |\n|" + "---|" * (len(LENGTHS) + 2))
    for name in CELLS:
        for way in WAYS:
            label = f"{name}, {way}"
            found = [measured_apart(name, way, length) for length in LENGTHS]
            seconds[label] = [1e-6 * micros * length for (micros, _), length in zip(found, LENGTHS, strict=True)]
            memory[label] = [megabytes for _, megabytes in found]
            micros = " | ".join(f"{one:.1f}" for one, _ in found)
            print(f"| {label}: µs a step | {micros} | T^{exponent(seconds[label]):.2f} |")
            megabytes = " | ".join(f"{one:.1f}" for one in memory[label])
            print(f"| {label}: MB | {megabytes} | T^{exponent(memory[label]):.2f} |", flush=True)
    if arguments.figure:
        draw(arguments.figure, seconds, memory)


if __name__ == "__main__":
    main()
