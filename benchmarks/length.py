"""What does length cost? Decoding a token after T others, and the memory of a training step over T positions.

A recurrent model carries a state of one size: each token costs the same. Attention looks at all that came before: the
cost of a token is linear in T. Training keeps what each position needs for the backward pass: memory is linear in T for
both, since the kernel of attention never makes its T × T matrix. CPU, float32, two threads; each point of memory is
measured in a process of its own.

    python benchmarks/length.py --figure docs/length.png
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "2"

import numpy as np
import torch

from seqlab.decoding.packing import packed
from seqlab.decoding.reading import read
from seqlab.models.gpt import GPT
from seqlab.models.language_model import LanguageModel
from seqlab.models.rnn import RecurrentLanguageModel
from seqlab.nn.cells import LSTM

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
VOCAB, STEPS, ROUNDS = 256, 16, 15
HEADS = 4


def build(name: str) -> LanguageModel:
    torch.manual_seed(0)
    if name == "GPT":
        return GPT(GPT.Settings(kind="gpt", width=256, depth=4, heads=HEADS, context=LENGTHS[-1] + 1024), VOCAB)
    cell = LSTM.Settings(kind="lstm")
    return RecurrentLanguageModel(
        RecurrentLanguageModel.Settings(kind="recurrent", cell=cell, width=256, depth=2), VOCAB
    )


def decoding_times(name: str) -> list[float]:
    """Milliseconds a token after each length: the fastest of several rounds, which take the lengths in turn."""
    model, one = packed(build(name).eval()), torch.tensor([1])
    best = [float("inf")] * len(LENGTHS)
    with torch.inference_mode():
        states = [read(model, [[1] * length]).state for length in LENGTHS]
        for _ in range(ROUNDS):
            for number, state in enumerate(states):
                state = state.select(torch.tensor([0]))  # forward uses a state up
                _, state = model.step(one, state)  # the caches may grow here
                start = time.perf_counter()
                for _ in range(STEPS):
                    _, state = model.step(one, state)
                best[number] = min(best[number], (time.perf_counter() - start) / STEPS)
    return [1e3 * seconds for seconds in best]


def peak_bytes() -> int:
    """Of this program alone: ru_maxrss would also count the one that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def train_once(model: LanguageModel, length: int) -> None:
    tokens = torch.ones(1, length, dtype=torch.long)
    model.losses(model(tokens).states.flatten(0, 1), tokens.flatten()).mean().backward()


def step_memory(name: str, length: int) -> float:
    """MB by which one forward and backward pass raises the peak of this process; a short one comes before."""
    model = build(name).train()
    train_once(model, 16)
    before = peak_bytes()
    train_once(model, length)
    return (peak_bytes() - before) / 1e6


def memory_apart(name: str, length: int) -> float:
    command = [sys.executable, __file__, "--memory-of", name, str(length)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def fit(values: list[float]) -> tuple[float, float, float]:
    """values ≈ a + b T: a, b, and the share of the variance that the line explains."""
    slope, level = np.polyfit(LENGTHS, values, 1)
    rest = np.var(np.array(values) - (level + slope * np.array(LENGTHS)))
    return float(level), float(slope), 1 - float(rest / np.var(values))


def report(what: str, unit: str, found: dict[str, list[float]]) -> None:
    print(f"{what} ({unit})")
    print("  T     " + "".join(f"{length:>9,}" for length in LENGTHS))
    for name, values in found.items():
        level, slope, explained = fit(values)
        print(f"  {name:<6}" + "".join(f"{value:9.3f}" for value in values))
        line = f"{level:.3f} + {slope * 1000:.4f} T/1000, R² {explained:.4f}"
        print(f"         ≈ {line}; last / first {values[-1] / values[0]:.2f}", flush=True)


def draw(path: Path, panels: dict[str, dict[str, list[float]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(9, 3.6), dpi=130)
    for place, (title, lines) in zip(axes, panels.items(), strict=True):
        for name, values in lines.items():
            level, slope, _ = fit(values)
            (drawn,) = place.plot(LENGTHS, values, "o", label=name)
            place.plot(LENGTHS, [level + slope * length for length in LENGTHS], color=drawn.get_color(), linewidth=1)
        place.set_title(title, loc="left", fontsize=10)
        place.set_xlabel("length T")
        place.set_ylim(bottom=0)
        place.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--memory-of", nargs=2, metavar=("MODEL", "T"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.memory_of:
        name, length = arguments.memory_of
        print(step_memory(name, int(length)))
        return
    times = {name: decoding_times(name) for name in ("LSTM", "GPT")}
    report("one more token after T", "ms", times)
    memory = {name: [memory_apart(name, length) for length in LENGTHS] for name in ("LSTM", "GPT")}
    report("a training step over T positions", "MB", memory)
    square = HEADS * LENGTHS[-1] ** 2 * 4 / 1e6
    print(f"the scores of one layer at T = {LENGTHS[-1]:,}, were they kept, would be {square:,.0f} MB")
    if arguments.figure:
        draw(arguments.figure, {"one more token after T (ms)": times, "a training step over T (MB)": memory})


if __name__ == "__main__":
    main()
