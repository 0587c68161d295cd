"""How much of the memory's bandwidth does decoding reach? GPT-2's block and Llama's, one row, in turns.

    python benchmarks/bandwidth.py            15 rounds of 64 tokens each, two threads

A token of a single row reads all weights once. The first line is a plain read of as many numbers (`torch.sum`).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from versions import GPT, LLAMA, NEW, Jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(Path(folder))
        ways: dict[str, Callable[[], float]] = {}
        for name, model in (("gpt", GPT), ("llama", LLAMA)):
            jobs.decode(name, model, 1)  # trains it for a step, loads it, and warms up
            size = sum(weight.numel() for weight in jobs.runs[name].model.parameters()) * 4
            ways[f"plain read for {name}"] = lambda size=size: plain(size)  # type: ignore[misc]
            ways[name] = lambda name=name, model=model, size=size: size * jobs.decode(name, model, 1)  # type: ignore[misc]
        best = dict.fromkeys(ways, 0.0)
        for _ in range(given.rounds):
            for name, way in ways.items():
                best[name] = max(best[name], way())
    print("| what | GB/s | of a plain read |\n| --- | --- | --- |")
    for name, rate in best.items():
        share = "" if name.startswith("plain") else f"{rate / best[f'plain read for {name}']:.2f}"
        print(f"| {name} | {rate / 1e9:.1f} | {share} |")


def plain(size: int) -> float:
    """Bytes a second of reading so many bytes as often as tokens are written."""
    numbers = torch.ones(size // 4)
    numbers.sum()
    start = time.perf_counter()
    for _ in range(NEW):
        numbers.sum()
    return size * NEW / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
