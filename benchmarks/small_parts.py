"""Two parts that are written here because the library's take longer on the CPU, beside the library's; one thread.

The loss of a softmax with its gradients (`nn/likelihood.py`), and dropout with its gradient (`nn/dropout.py`). Ours and
theirs take turns; the ratio is that of the fastest.

    python benchmarks/small_parts.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.nn.activations import activated
from seqlab.nn.attention_product import attention
from seqlab.nn.dropout import Dropout
from seqlab.nn.likelihood import softmax_losses

TURNS = 7


def compare(what: str, ours: Callable[[], Tensor], theirs: Callable[[], Tensor]) -> None:
    def seconds(run: Callable[[], Tensor]) -> float:
        start = time.perf_counter()
        run().sum().backward()  # type: ignore[no-untyped-call]
        return time.perf_counter() - start

    seconds(ours), seconds(theirs)
    measured = [(seconds(ours), seconds(theirs)) for _ in range(TURNS)]
    own, other = (min(column) for column in zip(*measured, strict=True))
    print(f"| {what} | {1e3 * own:.1f} | {1e3 * other:.1f} | {other / own:.2f} |", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| | ours, ms | the library's, ms | ratio |\n|---|---|---|---|")
    for count, width, vocabulary in ((1900, 128, 8000), (1900, 256, 10000), (1000, 512, 32000)):
        states, weight = (torch.randn(shape) for shape in ((count, width), (vocabulary, width)))
        states, weight = states.requires_grad_(), (weight / width**0.5).requires_grad_()
        targets = torch.randint(vocabulary, (count,))
        for smoothing in (0.0, 0.1):
            compare(
                f"softmax loss, {count:,} positions, width {width}, {vocabulary:,} tokens, smoothing {smoothing}",
                lambda h=states, w=weight, t=targets, s=smoothing: softmax_losses(h, w, None, t, s),
                lambda h=states, w=weight, t=targets, s=smoothing: F.cross_entropy(
                    F.linear(h, w), t, reduction="none", label_smoothing=s
                ),
            )
    qkv = torch.randn(8, 256, 3 * 6, 64, requires_grad=True)
    q, k, v = qkv.transpose(1, 2).split(6, 1)
    compare(
        "causal attention, batch 8, 6 heads of 64, 256 positions",
        lambda: attention(q, k, v, None, True, None),
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    )
    x = torch.randn(2048, 1536, requires_grad=True)
    compare("gelu of 3,145,728 numbers", lambda: activated(x, "gelu", 0), lambda: F.gelu(x, approximate="tanh"))
    x = torch.randn(128, 16, 128, requires_grad=True)
    own, library = Dropout(0.3), nn.Dropout(0.3)
    compare("dropout of 262,144 numbers", lambda: own(x), lambda: library(x))


if __name__ == "__main__":
    main()
