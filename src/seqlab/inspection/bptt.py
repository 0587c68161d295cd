"""Backpropagation through time, written out: the sum over all steps at which a weight was used.

    s(t) = U x(t) + W h(t−1)    h(t) = tanh(s(t))    z(t) = V h(t)    J(t) = −log softmax(z(t))[y(t)]

    ∂J(t)/∂W = Σ_k ∂J(t)/∂h(t) · (Π_{j=k+1..t} ∂h(j)/∂h(j−1)) · ∂h(k)/∂W,    ∂h(j)/∂h(j−1) = diag(1 − h(j)²) W

The factors do not commute and are multiplied in this order, from the left. Nothing here uses autograd, which is checked
against these formulas. There is one sequence and no batch dimension. D inputs · H units · V classes
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Explicit:
    """Gradients of Σ J(t) over the outputs that count."""

    u: Tensor
    w: Tensor
    v: Tensor
    outputs: Tensor
    """∂E/∂z(t), (T, V): exactly zero for outputs that do not count."""
    terms: dict[tuple[int, int], float]
    """(t, k) → the norm of what step k contributes to ∂J(t)/∂W: it shows how fast the past fades."""


def explicit_gradients(
    weights: tuple[Tensor, Tensor, Tensor], x: Tensor, y: Tensor, counted: Collection[int] | None = None
) -> Explicit:
    """weights U (H, D), W (H, H), V (V, H); x (T, D); y (T,) classes. `counted`: outputs in the cost, default all."""
    u, w, v = weights
    length = len(x)
    counted = range(length) if counted is None else counted
    h = [torch.zeros(len(w), dtype=x.dtype)]  # h[t + 1] is the state after step t
    for step in x:
        h.append(torch.tanh(u @ step + w @ h[-1]))
    of_u, of_w, of_v = torch.zeros_like(u), torch.zeros_like(w), torch.zeros_like(v)
    outputs = torch.zeros(length, len(v), dtype=x.dtype)
    terms: dict[tuple[int, int], float] = {}
    for t in counted:
        outputs[t] = torch.softmax(v @ h[t + 1], 0)
        outputs[t, y[t]] -= 1
        of_v += torch.outer(outputs[t], h[t + 1])
        arriving = v.T @ outputs[t]  # ∂J(t)/∂h(t), then ∂J(t)/∂h(k) for every k before it
        for k in range(t, -1, -1):
            at_s = arriving * (1 - h[k + 1] ** 2)
            term = torch.outer(at_s, h[k])
            terms[t, k] = float(term.norm())
            of_w += term
            of_u += torch.outer(at_s, x[k])
            arriving = w.T @ at_s
    return Explicit(of_u, of_w, of_v, outputs, terms)
