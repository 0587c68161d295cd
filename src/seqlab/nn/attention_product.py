"""Attention by `attention.cpp`, forward and backward, where linear maps are computed by kernels too.

Hand-written, because PyTorch's multiplies by the library that is slow on some processors, and computes the scores of
later positions too (benchmarks/small_parts.py).
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from seqlab.native.compiler import compiled
from seqlab.native.multiply import by_kernels

SOURCE = Path(__file__).with_name("attention.cpp")
WIDEST = 256
"""The widest head for the kernels."""


def computable(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, compiled_from: int | None) -> bool:
    """Whether the kernels compute this: attention to all keys, or to those that a mask (B, 1, 1, N) allows."""
    return (
        by_kernels(q.numel() * k.shape[2], compiled_from, q, k, v)
        and q.shape[-1] == v.shape[-1] <= WIDEST
        and k.shape[2] > 0
        and (not causal or q.shape[2] == k.shape[2])
        and (mask is None or (mask.dtype == torch.bool and mask.shape == (len(k), 1, 1, k.shape[2])))
        and library() is not None
    )


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    """softmax(scale · q kᵀ) v: (B, H, T, K), (B, G, N, K) twice → (B, H, T, K)"""
    bias = None if mask is None else torch.zeros(len(mask), mask.shape[3]).masked_fill_(~mask[:, 0, 0], -torch.inf)
    found = _Attention.apply(q, k, v, bias, causal, scale or q.shape[-1] ** -0.5)  # type: ignore[no-untyped-call]
    return cast(Tensor, found)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float) -> Tensor:
        q, k, v = (_in_rows(one) for one in (q, k, v))
        y, sums = _like(q), q.new_empty(q.shape[:3])
        _call("attend", _Call.of(q, k, v, y, sums, bias, causal, scale))
        ctx.save_for_backward(q, k, v, y, sums, bias)
        ctx.causal, ctx.scale = causal, scale
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, y, sums, bias = ctx.saved_tensors
        gradient = _in_rows(gradient)
        slopes = [_like(q), _like(k).zero_(), _like(v).zero_()]
        own = _Slopes(*(_Heads.of(one) for one in (gradient, *slopes)))
        _call("attend_back", _Call.of(q, k, v, y, sums, bias, ctx.causal, ctx.scale), own)
        return *slopes, None, None, None


def _in_rows(x: Tensor) -> Tensor:
    """Return a tensor whose last dimension is contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(x: Tensor) -> Tensor:
    """Return room for (B, H, T, K), stored as (B, T, H, K), so that joining the heads copies nothing."""
    return x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2)


class _Heads(ctypes.Structure):
    _fields_ = (
        ("numbers", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("row", "head", "step")),
    )

    @classmethod
    def of(cls, x: Tensor) -> _Heads:
        return cls(x.data_ptr(), *x.stride()[:3])


class _Call(ctypes.Structure):
    _fields_ = (
        *((name, _Heads) for name in ("q", "k", "v", "y")),
        *((name, ctypes.c_void_p) for name in ("sums", "bias")),
        *((name, ctypes.c_int64) for name in ("B", "H", "G", "T", "N", "K")),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_int),
        ("threads", ctypes.c_int),
    )

    @classmethod
    def of(
        cls, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, bias: Tensor | None, causal: bool, scale: float
    ) -> _Call:
        (rows, heads, time, width), (_, groups, keys, _) = q.shape, k.shape
        pointers = (sums.data_ptr(), None if bias is None else bias.data_ptr())
        parts = (_Heads.of(one) for one in (q, k, v, y))
        return cls(*parts, *pointers, rows, heads, groups, time, keys, width, scale, causal, torch.get_num_threads())


class _Slopes(ctypes.Structure):
    _fields_ = tuple((name, _Heads) for name in ("y", "q", "k", "v"))


def _call(name: str, *structures: ctypes.Structure) -> None:
    kernels = library()
    assert kernels is not None
    if not getattr(kernels, name)(*map(ctypes.byref, structures)):
        raise MemoryError("no memory for attention")


@cache
def library() -> ctypes.CDLL | None:
    """`attention.cpp` compiled for this machine; None if it cannot be compiled."""
    return compiled(SOURCE.read_text(encoding="utf-8"))
