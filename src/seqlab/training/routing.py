"""Decides where the products of linear maps are computed: by PyTorch, or by kernels compiled for this machine.

Which is faster depends on the processor and on the size, so it is measured, once for a machine and a number of threads.
A run records the result, since its bits depend on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from seqlab.data.storage.cache import EntryLock, kept
from seqlab.errors import DataError
from seqlab.native.compiler import processor_name
from seqlab.native.multiply import library
from seqlab.nn.cells import Cell
from seqlab.nn.linear_map import LinearMap, linear
from seqlab.recipe import ProductsName

SIZES = ((16, 16, 16), (32, 32, 32), (128, 32, 64), (256, 64, 128), (512, 128, 256), (1024, 256, 512))
"""Rows, inputs and outputs of the maps that are measured."""
NEVER = -1
"""What the cache holds where the kernels are not faster."""
GAIN = 0.95
"""The kernels are used if they take at most this share of PyTorch's time."""
TURNS, SECONDS = 5, 0.006
"""The fastest of so many turns counts, each of about this time."""
ENVIRONMENT = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")
"""Variables that change how fast PyTorch's library is."""


def compiled_from(products: ProductsName, device: torch.device) -> int | None:
    """Return the number of multiplications from which the kernels compute a linear map; None for never."""
    if products == "torch" or device.type != "cpu" or (kernels := library()) is None:
        return None
    # the name of the compiled file stands for its sources, the compiler and all that this assumes of the processor
    return 0 if products == "compiled" else _measured_once(Path(kernels._name).name)


def _measured_once(kernels: str) -> int | None:
    name, threads = processor_name(), torch.get_num_threads()
    facts = [kernels, name, threads, torch.__version__, *map(os.environ.get, ENVIRONMENT)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def load(folder: Path, lock: EntryLock) -> int | None:
        try:
            found = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["compiled_from"]
            return int(found)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def build(folder: Path) -> None:
        about = f"linear maps on {name}, {threads} thread{'s' if threads != 1 else ''}"
        found = measured()
        meta = {"about": about, "compiled_from": NEVER if found is None else found}
        (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")

    try:
        found = kept("measurements", key, load, build)
    except DataError:  # a cache that cannot be written
        return measured()
    return None if found == NEVER else found


def measured() -> int | None:
    """Return the smallest size from which on the kernels are faster than PyTorch, forward and backward together."""
    found = None
    for rows, inputs, outputs in reversed(SIZES):
        kernels, torchs = _times(rows, inputs, outputs)
        if kernels > GAIN * torchs:
            break
        found = rows * inputs * outputs
    return found


def _times(rows: int, inputs: int, outputs: int) -> tuple[float, float]:
    """Return the seconds that the kernels and PyTorch take."""
    x, weight, bias = torch.zeros(rows, inputs), torch.zeros(outputs, inputs), torch.zeros(outputs)
    for one in (x, weight, bias):
        one.requires_grad_()
    gradient = torch.zeros(rows, outputs)

    def step(compiled: int | None) -> None:
        torch.autograd.grad(linear(x, weight, bias, compiled), (x, weight, bias), gradient)

    with torch.inference_mode(False), torch.enable_grad():
        once = _timed(step, 0, 1) + _timed(step, None, 1)  # warms up
        times = max(1, int(SECONDS / max(_timed(step, None, 1), once / 100)))
        turns = [(_timed(step, 0, times), _timed(step, None, times)) for _ in range(TURNS)]
    kernels, torchs = zip(*turns, strict=True)
    return min(kernels), min(torchs)


def _timed(step: Callable[[int | None], None], compiled: int | None, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        step(compiled)
    return (time.perf_counter() - start) / times


def route(model: nn.Module, compiled_from: int | None) -> None:
    """Set from which size on the linear maps of a model are computed by the kernels; also in classes of one's own.

    The maps in the step of a recurrent cell stay as they are: the loop over all steps has kernels of its own.
    """
    for part in _outside_of_steps(model):
        if type(part) is nn.Linear and compiled_from is not None:
            part.__class__ = LinearMap
        if hasattr(part, "compiled_from"):
            part.compiled_from = compiled_from  # type: ignore[assignment]


def _outside_of_steps(module: nn.Module) -> Iterator[nn.Module]:
    yield module
    for name, child in module.named_children():
        if not isinstance(module, Cell) or name == "input":
            yield from _outside_of_steps(child)
