"""−log p(target) by a softmax, and its gradients, a few rows at a time.

N positions · D width · V vocabulary
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 256
"""Logits of so many positions are computed, used and forgotten: they stay in the processor's cache."""


def softmax_losses(states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    """(1 − ε) (−log p_target) + ε mean_k (−log p_k), p = softmax(W h + b): (N, D), (V, D), (V,), (N,) → (N,)

    On the CPU gradients are computed on the way there: (N, V) numbers are then written once and read from the cache,
    where the library writes and reads them five times, from memory.
    """
    plain = states.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled(states.device.type)
    if states.device.type == "cpu" and plain and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        losses: Tensor = _Losses.apply(states, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
        return losses
    return F.cross_entropy(F.linear(states, weight, bias), targets, reduction="none", label_smoothing=smoothing)


class _Losses(torch.autograd.Function):
    """∂loss/∂logits = p − (1 − ε) y − ε / V, of which the gradients of h, W and b are products."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        losses, gradients = _computed(states, weight, bias, targets, smoothing, None)
        ctx.smoothing = smoothing
        ctx.save_for_backward(states, weight, bias, targets, *gradients)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, targets, *gradients = ctx.saved_tensors
        scale = upstream[0] if len(upstream) else upstream.sum()
        if not bool((upstream == scale).all()):  # each position counts differently: all over again
            _, gradients = _computed(states, weight, bias, targets, ctx.smoothing, upstream)
            scale = upstream.new_ones(())
        of_states, of_weight, of_bias = gradients
        return of_states * scale, of_weight * scale, None if bias is None else of_bias * scale, None, None


def _computed(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, scales: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """The losses, and the gradients of states, weight and bias where each loss counts `scales` times."""
    losses, of_states = states.new_empty(len(states)), torch.empty_like(states)
    of_weight, of_bias = torch.zeros_like(weight), weight.new_zeros(len(weight))
    for start in range(0, len(states), ROWS):
        rows = slice(start, start + ROWS)
        h, target = states[rows], targets[rows, None]
        logits = h @ weight.t() if bias is None else torch.addmm(bias, h, weight.t())
        total = logits.logsumexp(1, keepdim=True)
        loss = (total - logits.gather(1, target))[:, 0]
        if smoothing:
            loss = (1 - smoothing) * loss + smoothing * (total[:, 0] - logits.mean(1))
        losses[rows] = loss
        slope = logits.sub_(total).exp_()
        if smoothing:
            slope -= smoothing / slope.shape[1]
        slope.scatter_add_(1, target, slope.new_full((len(h), 1), smoothing - 1))
        if scales is not None:
            slope *= scales[rows, None]
        torch.mm(slope, weight, out=of_states[rows])
        of_weight.addmm_(slope.t(), h)
        if bias is not None:
            of_bias += slope.sum(0)
    return losses, [of_states, of_weight, of_bias]
