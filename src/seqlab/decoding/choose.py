"""Choosing the next token: greedy, or sampling as scores plus Gumbel noise.

B rows · V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from seqlab.decoding.logits import Filter


class Choose(Protocol):
    """Chooses one token per row. `requests` and `positions` (B,) identify the request and the token's index in it."""

    def __call__(self, logits: Tensor, requests: Tensor, positions: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Greedy:
    """argmax: always the most likely token."""

    def __call__(self, logits: Tensor, requests: Tensor, positions: Tensor) -> Tensor:
        return logits.max(-1).indices  # argmax(-1) takes half as long again


class Sample:
    """argmax(logits + Gumbel noise), which is a draw from softmax(logits).

    The noise is a function of (seed, request, position), so that a request's text depends neither on its
    neighbours in the batch nor on the device.
    """

    def __init__(self, *filters: Filter, seed: int = 0) -> None:
        self.filters, self.seed = filters, seed

    def __call__(self, logits: Tensor, requests: Tensor, positions: Tensor) -> Tensor:
        for change in self.filters:
            logits = change(logits)
        return (logits + gumbel(self.seed, requests, positions, logits.shape[-1])).argmax(-1)


def gumbel(seed: int, requests: Tensor, positions: Tensor, count: int) -> Tensor:
    """−log(−log u) with u uniform in (0, 1): `count` numbers per row, (B,), (B,) → (B, count)."""
    mixed = _mix(_mix(torch.full_like(requests, seed)) + requests)
    mixed = _mix(mixed + positions)
    bits = _mix(mixed[:, None] + torch.arange(count, device=requests.device))
    # 23 bits plus a half: with one more bit, the largest would round up to 1, and its noise to infinity
    uniform = bits.bitwise_right_shift_(41).bitwise_and_(0x7FFFFF).float().add_(0.5).div_(1 << 23)
    return uniform.log_().neg_().log_().neg_()  # in place, since this can take as long as a small model


def _mix(values: Tensor) -> Tensor:
    """The finaliser of splitmix64. torch's shifts keep the sign, so the upper bits are masked off."""
    values = values + -0x61C8864680B583EB
    values.bitwise_xor_((values >> 30).bitwise_and_(0x3FFFFFFFF)).mul_(-0x40A7B892E31B1A47)
    values.bitwise_xor_((values >> 27).bitwise_and_(0x1FFFFFFFFF)).mul_(-0x6B2FB644ECCEEE15)
    return values.bitwise_xor_((values >> 31).bitwise_and_(0x1FFFFFFFF))
