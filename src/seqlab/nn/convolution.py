"""Causal convolution over a sequence in pieces of any length; the state carries the past from piece to piece.

B batch · T time · D width · K kernel size · P = (K − 1) · dilation past positions
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CausalConvolution(nn.Module):
    """y_t = W [x_{t − (K−1)d}; …; x_{t−d}; x_t] + b, with zeros before the text.

    Computed as one product with the K positions side by side. On the CPU this is as fast as the library's convolution,
    and once the map is packed for decoding, a row's bits do not depend on its neighbours.
    """

    def __init__(self, width: int, out: int, kernel_size: int, dilation: int = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.past = kernel_size, dilation, (kernel_size - 1) * dilation
        self.linear = nn.Linear(kernel_size * width, out)

    def forward(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (B, T, D), preceded by `before` (B, P, D) → y (B, T, out), and both together (B, P + T, D)."""
        if before is None:
            before = x.new_zeros(x.shape[0], self.past, x.shape[2])
        history = torch.cat([before, x], 1)
        time = x.shape[1]
        read = [history[:, start : start + time] for start in range(0, self.past + 1, self.dilation)]
        return self.linear(torch.cat(read, -1)), history


def last_positions(history: Tensor, past: int, mask: Tensor | None = None) -> Tensor:
    """Return the last `past` real positions of a history (B, past + T, ...); `mask` (B, T) marks the real ones of T."""
    if mask is None:
        return history[:, history.shape[1] - past :].clone()  # so that the rest need not be kept
    places = mask.sum(1, keepdim=True) + torch.arange(past, device=mask.device)
    return history[torch.arange(len(history), device=mask.device)[:, None], places]
