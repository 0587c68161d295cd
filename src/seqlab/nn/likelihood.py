"""−log p(target) under a softmax, and its gradients, computed a few rows at a time.

N positions · D width · V vocabulary
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqlab.native.compiler import compiled
from seqlab.native.multiply import multiplied

SOURCE = Path(__file__).with_name("softmax.cpp")
ROWS = 256
"""The number of positions whose logits are held at a time. More are no faster and take more memory."""


def softmax_losses(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    compiled_from: int | None = None,
) -> Tensor:
    """(1 − ε) (−log p_target) + ε mean_k (−log p_k), p = softmax(W h + b): (N, D), (V, D), (V,), (N,) → (N,)

    On the CPU, gradients are computed along with the losses, so that at most ROWS · V logits are held at a time.
    `compiled_from` is that of `LinearMap`.
    """
    parts = [states, weight] if bias is None else [states, weight, bias]
    plain = all(one.device.type == "cpu" and one.dtype == torch.float32 for one in parts)
    plain = plain and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
    if plain and torch.is_grad_enabled() and _all_are_tokens(targets, len(states), len(weight)):
        losses: Tensor = _Losses.apply(states, weight, bias, targets, smoothing, compiled_from)  # type: ignore[no-untyped-call]
        return losses
    return F.cross_entropy(F.linear(states, weight, bias), targets, reduction="none", label_smoothing=smoothing)


def _all_are_tokens(targets: Tensor, count: int, vocabulary: int) -> bool:
    """Whether targets are what the compiled code needs; the library accepts or rejects everything else."""
    if targets.dtype != torch.long or targets.shape != (count,) or not count:
        return False
    least, most = targets.aminmax()
    return int(least) >= 0 and int(most) < vocabulary


class _Losses(torch.autograd.Function):
    """∂loss/∂logits = p − (1 − ε) y − ε / V; the gradients of h, W and b are products with it."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        compiled_from: int | None,
    ) -> Tensor:
        losses, ctx.gradients = _computed(states, weight, bias, targets, smoothing, None, compiled_from)
        ctx.smoothing, ctx.compiled_from = smoothing, compiled_from
        ctx.save_for_backward(states, weight, bias, targets)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None  # given away; a second backward pass recomputes them
        scale = upstream[0]
        if gradients is None or not bool((upstream == scale).all()):  # positions with different weights
            states, weight, bias, targets = ctx.saved_tensors
            _, gradients = _computed(states, weight, bias, targets, ctx.smoothing, upstream, ctx.compiled_from)
        else:
            gradients = [one.mul_(scale) for one in gradients]
        of_states, of_weight, of_bias = gradients
        return of_states, of_weight, None if ctx.saved_tensors[2] is None else of_bias, None, None, None


def _computed(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    scales: Tensor | None,
    compiled_from: int | None,
) -> tuple[Tensor, list[Tensor]]:
    """Return the losses, and the gradients of states, weight and bias, with each loss multiplied by `scales`."""
    losses, of_states = states.new_empty(len(states)), torch.empty_like(states)
    of_weight, of_bias = torch.empty_like(weight), weight.new_zeros(len(weight))
    for start in range(0, len(states), ROWS):
        rows = slice(start, start + ROWS)
        own = None if scales is None else scales[rows].contiguous()
        slope = multiplied(states[rows], weight, compiled_from)
        losses[rows] = slopes(slope, bias, targets[rows], own, smoothing)
        multiplied(slope, weight.t(), compiled_from, out=of_states[rows])
        multiplied(slope.t(), states[rows].t(), compiled_from, out=of_weight, add=start > 0)
        if bias is not None:
            of_bias += slope.sum(0)
    return losses, [of_states, of_weight, of_bias]


def slopes(logits: Tensor, bias: Tensor | None, targets: Tensor, scales: Tensor | None, smoothing: float) -> Tensor:
    """The losses of logits without bias, (N, V) → (N,); in place, the logits become ∂loss/∂logits times `scales`.

    Hand-written, because the library makes many passes over data that has left the caches (benchmarks/small_parts.py).
    """
    kernels = library()
    if kernels is None:
        return slopes_by_library(logits, bias, targets, scales, smoothing)
    targets, losses = targets.contiguous(), logits.new_empty(len(logits))
    bias = None if bias is None else bias.contiguous()
    parts = [None if one is None else one.data_ptr() for one in (logits, bias, targets, scales, losses)]
    kernels.slopes(*parts, *logits.shape, smoothing, torch.get_num_threads())
    return losses


def slopes_by_library(
    logits: Tensor, bias: Tensor | None, targets: Tensor, scales: Tensor | None, smoothing: float
) -> Tensor:
    if bias is not None:
        logits += bias
    total, target = logits.logsumexp(1, keepdim=True), targets[:, None]
    losses = (1 - smoothing) * (total - logits.gather(1, target))[:, 0]
    if smoothing:
        losses += smoothing * (total[:, 0] - logits.mean(1))
    logits.sub_(total).exp_().sub_(smoothing / logits.shape[1])
    logits.scatter_add_(1, target, logits.new_full((len(logits), 1), smoothing - 1))
    if scales is not None:
        logits *= scales[:, None]
    return losses


@cache
def library() -> ctypes.CDLL | None:
    """`softmax.cpp` compiled for this machine; None if it cannot be compiled."""
    kernels = compiled(SOURCE.read_text(encoding="utf-8"))
    if kernels is not None:
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        kernels.slopes.argtypes = [*[pointer] * 5, count, count, ctypes.c_float, ctypes.c_int]
        kernels.slopes.restype = None
    return kernels
