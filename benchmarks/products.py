"""The three products of a linear map, in GFLOP/s: PyTorch's, oneDNN's with transposed copies, and our kernels'.

python benchmarks/products.py                # on one thread and on two, the fastest of 20 interleaved turns
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from seqlab.native.compiler import processor_name
from seqlab.native.multiply import product

SHAPES = [(2048, 384, 1536), (2048, 1536, 384), (768, 128, 512), (64, 512, 2048), (256, 512, 32000)]
"""Rows, inputs, outputs."""
TURNS = 20


def fastest(runs: list[Callable[[], object]]) -> list[float]:
    times = [float("inf")] * len(runs)
    for _ in range(TURNS):
        for number, run in enumerate(runs):
            start = time.perf_counter()
            run()
            times[number] = min(times[number], time.perf_counter() - start)
    return times


@torch.no_grad()
def compare(rows: int, inputs: int, outputs: int) -> str:
    x, g = torch.randn(rows, inputs), torch.randn(rows, outputs)
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)

    def onednn(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(a.contiguous(), b.contiguous(), bias, "none", [], "")

    runs = [
        *(lambda: torch.addmm(bias, x, weight.t()), lambda: onednn(x, weight, bias), lambda: product(x, weight, bias)),
        *(lambda: g @ weight, lambda: onednn(g, weight.t()), lambda: product(g, weight.t())),
        *(lambda: g.t() @ x, lambda: onednn(g.t(), x.t()), lambda: product(g.t(), x.t())),
    ]
    speeds = [2e-9 * rows * inputs * outputs / seconds for seconds in fastest(runs)]
    cells = [", ".join(f"{speed:.0f}" for speed in speeds[first : first + 3]) for first in (0, 3, 6)]
    return f"| {rows:,}, {inputs:,}, {outputs:,} | {' | '.join(cells)} |"


def main() -> None:
    torch.manual_seed(0)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        print(f"\n{processor_name()}, {threads} thread{'s' if threads > 1 else ''}\n")
        print("| rows, inputs, outputs | outputs | gradient of the inputs | gradient of the weights |")
        print("|---|---|---|---|")
        for shape in SHAPES:
            print(compare(*shape), flush=True)


if __name__ == "__main__":
    main()
