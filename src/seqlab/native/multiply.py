"""Products of large matrices by `multiply.cpp`, compiled for this machine when first needed.

Hand-written, because PyTorch's library for float32 products is fast on some processors only: on an AMD EPYC (Zen 5) it
reaches 106 GFLOP/s per thread, this code 200 to 250 (docs/speed.md). Moreover, here the bits of a number depend neither
on the other rows nor on the number of threads.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from seqlab.native.compiler import compiled

SOURCE = Path(__file__).with_name("multiply.cpp")


def product(a: Tensor, b: Tensor, bias: Tensor | None = None, out: Tensor | None = None, add: bool = False) -> Tensor:
    """A Bᵀ + bias, or with `add`, out + A Bᵀ: float32 matrices (m, k) and (n, k) on the CPU → (m, n)

    There must be a `library()`, and `out` must be contiguous.
    """
    (m, k), n = a.shape, len(b)
    out = a.new_empty(m, n) if out is None else out
    if not out.numel():
        return out
    if not k:
        return out if add else out.zero_() if bias is None else out.copy_(bias.expand_as(out))
    (a, down, across), (b, *strides), kernels = _in_lines(a), _in_lines(b), library()
    assert kernels is not None
    bias = None if bias is None else bias.contiguous()
    place = None if bias is None else bias.data_ptr()
    threads = torch.get_num_threads() if m * n * k > SMALL else 1
    done = kernels.multiply(
        a.data_ptr(), down, across, b.data_ptr(), *strides, place, out.data_ptr(), m, n, k, add, threads
    )
    if not done:
        raise MemoryError("no memory for a matrix product")
    return out


def by_kernels(size: int, compiled_from: int | None, *parts: Tensor | None) -> bool:
    """Whether the kernels compute a product of `size` multiplications, which they do from `compiled_from` on.

    They need float32 on the CPU, outside of autocast and torch.compile. Where a dispatch mode counts or traces
    operations, PyTorch computes them, since the kernels are none that it could see.
    """
    return (
        compiled_from is not None
        and size >= compiled_from
        and all(one is None or (one.dtype == torch.float32 and one.device.type == "cpu") for one in parts)
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._len_torch_dispatch_stack()
        and library() is not None
    )


def multiplied(a: Tensor, b: Tensor, compiled_from: int | None, out: Tensor | None = None, add: bool = False) -> Tensor:
    """A Bᵀ, or with `add` out + A Bᵀ, without gradients, by the kernels or by torch: (m, k), (n, k) → (m, n)"""
    if by_kernels(a.numel() * len(b), compiled_from, a, b):
        return product(a, b, None, out, add)
    if out is not None and add:
        return out.addmm_(a, b.t())
    return torch.mm(a, b.t(), out=out)


SMALL = 1 << 17
"""Up to this number of multiplications, one thread is faster than several that wait for each other."""


def _in_lines(x: Tensor) -> tuple[Tensor, int, int]:
    """Return a matrix whose rows or columns are contiguous, and its strides."""
    down, across = x.stride()
    if down != 1 and across != 1:
        x = x.contiguous()
        down, across = x.stride()
    return x, down, across


@cache
def library() -> ctypes.CDLL | None:
    """`multiply.cpp` compiled for this machine; None if it cannot be compiled."""
    kernels = compiled(SOURCE.read_text(encoding="utf-8"))
    if kernels is not None:
        pointer, count, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        matrix = (pointer, count, count)
        kernels.multiply.argtypes = [*matrix, *matrix, pointer, pointer, count, count, count, number, number]
    return kernels
