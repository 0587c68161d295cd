"""Linear maps and attention by `kernels.cpp`, which is compiled for the machine at hand when it is first needed.

By hand, because it is faster than the library for the few rows of decoding: torch calls oneDNN in 18 µs where this
takes 5, and with two threads and 92 MB of weights 25 maps take 2.2 ms instead of 2.9 for one row, 3.8 instead of 5.5
for 16 (benchmarks/decoding.py). Where there is no compiler, or no OpenMP, the library does it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.data.cache import cache_folder
from seqlab.nn.attention import Cache, SelfAttention

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared")


class CompiledLinear(nn.Module):
    """W x + b, or gelu(W x + b) in its tanh form"""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        found = library()
        assert found is not None
        self.outputs, self.inputs = weight.shape
        self.linear, lanes = found.linear, found.lanes()
        weight = F.pad(weight.detach(), [0, 0, 0, -self.outputs % lanes])
        self.panels = weight.view(-1, lanes, self.inputs).transpose(1, 2).contiguous()
        self.bias = weight.new_zeros(len(weight))
        if bias is not None:
            self.bias[: self.outputs] = bias.detach()

    def forward(self, x: Tensor, gelu: bool = False) -> Tensor:
        assert x.shape[-1] == self.inputs
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], self.outputs)
        failed = self.linear(
            x.data_ptr(),
            self.panels.data_ptr(),
            self.bias.data_ptr(),
            y.data_ptr(),
            x.numel() // self.inputs,
            self.inputs,
            self.outputs,
            gelu,
            torch.get_num_threads(),
        )
        if failed:
            raise MemoryError
        return y


class CompiledAttention(nn.Module):
    """Self-attention that attends from a single new position by itself, and from several as the library does"""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        found = library()
        assert found is not None
        self.attention, self.attend = attention, found.attend

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        if cache is None or x.shape[1] > 1:
            return self.attention(x, cache)  # type: ignore[no-any-return]
        assert cache.keys.is_contiguous()
        assert cache.values.is_contiguous()
        rows, heads, capacity, width = cache.keys.shape
        qkv, attended = self.attention.query_key_value(x), torch.empty_like(x)
        failed = self.attend(
            qkv.data_ptr(),
            cache.keys.data_ptr(),
            cache.values.data_ptr(),
            cache.places.positions.data_ptr(),
            attended.data_ptr(),
            rows,
            heads,
            capacity,
            width,
            torch.get_num_threads(),
        )
        if failed:
            raise MemoryError
        return self.attention.output(attended)  # type: ignore[no-any-return]


@cache
def library() -> ctypes.CDLL | None:
    """`kernels.cpp` compiled for this machine, by this compiler, from this source; None where that cannot be had."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None
    try:
        # all that the compiler assumes of this machine, and its own version
        command = [compiler, *FLAGS, "-dM", "-E", "-x", "c++", "/dev/null"]
        assumed = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
        key = hashlib.sha256(b"\0".join([SOURCE.read_bytes(), *map(str.encode, FLAGS), assumed])).hexdigest()
        path = cache_folder() / "compiled" / f"kernels-{key[:32]}.so"
        if not path.exists():
            _compile(compiler, path)
        if not _is_own(path):
            return None
        found = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None
    found.linear.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_long] * 3, *[ctypes.c_int] * 2]
    found.attend.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_long] * 4, ctypes.c_int]
    return found


def _is_own(path: Path) -> bool:
    """Whether nobody but this user can have written it: the one file outside of the package that is ever executed."""
    if not hasattr(os, "getuid"):
        return True
    states = [place.stat() for place in (path, path.parent)]
    return all(state.st_uid == os.getuid() and not state.st_mode & 0o022 for state in states)


def _compile(compiler: str, path: Path) -> None:
    """Under another name first, so that no other process loads half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(made)], capture_output=True, check=True, timeout=300)
        made.replace(path)
