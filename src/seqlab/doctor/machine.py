"""What this machine has, and how seqlab therefore computes on it. All of it is plain data."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import seqlab
from seqlab.build import choose_device
from seqlab.data.storage.cache import cache_folder, cache_limit, entries
from seqlab.decoding.compiled import CompiledLinear, library
from seqlab.decoding.packing import LibraryLinear, packed
from seqlab.errors import RecipeError, SeqlabError
from seqlab.fusion.loop import maps
from seqlab.native import compiler
from seqlab.native.compiler import processor_name
from seqlab.native.multiply import library as products
from seqlab.training.compiling import need_compiler
from seqlab.training.routing import compiled_from

PACKAGES = (
    *(
        "torch",
        "numpy",
        "tokenizers",
        "sentencepiece",
        "safetensors",
        "pydantic",
        "PyYAML",
        "click",
        "rich",
        "matplotlib",
    ),
    *("platformdirs", "Babel", "sacrebleu", "jiwer", "pyarrow", "tensorboard", "scikit-learn"),
)
"""Packages that seqlab imports, extras last."""
VARIABLES = ("CXX", "SEQLAB_NATIVE_ARCH", "SEQLAB_CACHE", "SEQLAB_CACHE_LIMIT", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that change how seqlab computes or where it writes."""
VARIABLES_OF_TORCH = ("ATEN_CPU_CAPABILITY", "CUDA_VISIBLE_DEVICES", "PYTORCH_ENABLE_MPS_FALLBACK")


def report(device: torch.device) -> dict[str, Any]:
    """Return the full report. Kernels are compiled if they are not in the cache."""
    native = native_code()
    return {
        "versions": versions(),
        "system": system(),
        "processor": processor(),
        "memory": memory(),
        "devices": devices(),
        "device": str(device),
        "default_device": str(choose_device("auto")),
        "compiler": native,
        "cache": cache(),
        "paths": paths(device, native),
    }


def versions() -> dict[str, str | None]:
    """Return the version of each package; None if it is not installed."""
    found: dict[str, str | None] = {"seqlab": seqlab.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def system() -> dict[str, Any]:
    named = {name: os.environ[name] for name in (*VARIABLES, *VARIABLES_OF_TORCH) if name in os.environ}
    return {
        "name": platform.platform(),
        "machine": platform.machine(),
        "variables": {name: without_home(value) for name, value in named.items()},
    }


def processor() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "name": processor_name(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "threads": torch.get_num_threads(),
        "torch_instructions": torch.backends.cpu.get_cpu_capability(),
    }


def memory() -> dict[str, int | None]:
    """Return memory sizes in bytes; None if the system does not report them."""
    total = available = None
    with suppress(OSError, ValueError, AttributeError):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = 1024 * int(line.split()[1])
    return {"bytes": total, "available": available, "limit": _group_limit()}


def _group_limit() -> int | None:
    """Return the memory limit of the container, if it has one."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int(Path(path).read_text(encoding="ascii"))
            return limit if limit < 2**60 else None  # a huge number stands for no limit
    return None


def devices() -> list[dict[str, Any]]:
    """List the devices other than the CPU."""
    found: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            capability = f"{about.major}.{about.minor}"
            found.append(
                {"device": f"cuda:{number}", "name": about.name, "bytes": about.total_memory, "capability": capability}
            )
    if torch.backends.mps.is_available():
        size = torch.mps.recommended_max_memory()
        found.append({"device": "mps", "name": processor_name(), "bytes": size})
    return found


def native_code() -> dict[str, Any]:
    """Report the C++ compiler, and whether the kernels for decoding and for recurrent nets are available."""
    before, start = len(compiler.kept_kernels()), time.perf_counter()
    kernels, loops = library(), maps(torch.float32)
    new, seconds = len(compiler.kept_kernels()) - before, time.perf_counter() - start
    tools = compiler.toolchain()
    about = asdict(tools) if tools is not None else None
    return {
        "found": None if about is None else {**about, "compiler": without_home(about["compiler"])},
        "decoding": kernels is not None,
        "loops": loops is not None,
        "lanes": None if kernels is None else kernels.lanes(),
        "compiled_now": new,
        "seconds": round(seconds, 2),
        "kept": len(compiler.kept_kernels()),
        "problems": ["switched off by CXX=false"] if _off() else [without_home(one) for one in compiler.failures],
    }


def cache() -> dict[str, Any]:
    """Report the size of the cache, and whether it is writable."""
    try:
        folder = cache_folder()
        size = sum(one.bytes for one in entries())
        kernels = sum(path.stat().st_size for path in compiler.kept_kernels())
        limit = cache_limit()
    except (OSError, SeqlabError) as error:
        return {"folder": None, "writable": False, "problem": without_home(str(error))}
    problem = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = error.strerror or str(error)
    place = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
    return {
        "folder": without_home(str(folder)),
        "writable": problem is None,
        "problem": problem,
        "bytes": size + kernels,
        "limit": limit,
        "free": shutil.disk_usage(place).free,
    }


# ---------------------------------------------------------------------- how things are computed


def paths(device: torch.device, native: dict[str, Any]) -> list[dict[str, Any]]:
    """Report how things are computed on a device; `slow` if the user can change that as `advice` says."""
    return [
        _linear_maps(device),
        _training(device, native),
        _decoding(device, native),
        _compile(device),
        *_graphics(),
        *_precision(device),
    ]


def _path(what: str, how: str, advice: str = "") -> dict[str, Any]:
    return {"what": what, "how": how, "slow": bool(advice), "advice": advice}


def _linear_maps(device: torch.device) -> dict[str, Any]:
    what = "training linear maps"
    found = compiled_from("auto", device)
    if found is not None:
        return _path(what, f"by compiled kernels from {found:,} multiplications on, below that by torch (measured)")
    return _path(what, "by torch", _install() if device.type == "cpu" and products() is None else "")


def _training(device: torch.device, native: dict[str, Any]) -> dict[str, Any]:
    what = "training recurrent nets"
    if device.type != "cpu":
        return _path(what, "by torch's kernel if it has one for the cell, otherwise step by step")
    if native["loops"]:
        return _path(what, f"by compiled loops ({_instructions(native)})")
    return _path(what, "by torch, several times slower", _install())


def _decoding(device: torch.device, native: dict[str, Any]) -> dict[str, Any]:
    rounding = "batching affects texts only by rounding errors"
    if device.type != "cpu":
        return _path("decoding", f"by torch on {device.type}; {rounding}")
    kind = type(packed(nn.Sequential(nn.Linear(1, 1)))[0])
    if kind is CompiledLinear:
        return _path("decoding", f"by compiled kernels ({_instructions(native)}); batching does not affect texts")
    by = "oneDNN" if kind is LibraryLinear else "torch"
    return _path("decoding", f"by {by}, several times slower; {rounding}", _install())


def _instructions(native: dict[str, Any]) -> str:
    used = native["found"]["instructions"] if native["found"] else ()
    named = used[0] if used else "no vector instructions"
    return f"{named}, {native['lanes']} lanes" if native["lanes"] else named


def _install() -> str:
    return "unset CXX" if _off() else compiler.INSTALL.removeprefix("; ")


def _off() -> bool:
    return os.environ.get("CXX") == "false"


def _compile(device: torch.device) -> dict[str, Any]:
    what = "training.compile=true"
    try:
        need_compiler(device)
    except RecipeError as error:
        return _path(what, f"would fail: {error.what}")
    return _path(what, "works")


def _graphics() -> list[dict[str, Any]]:
    found = []
    for name in ("cuda", "mps"):
        try:
            choose_device(name)
            found.append(_path(f"--device {name}", "works"))
        except RecipeError:
            found.append(_path(f"--device {name}", f"would fail: {_why_not(name)}"))
    return found


def _why_not(name: str) -> str:
    built = torch.version.cuda if name == "cuda" else torch.backends.mps.is_built()
    return f"torch finds no such device, or no driver for it (torch {torch.__version__}" + (
        ")" if built else f", built without {name.upper()})"
    )


def _precision(device: torch.device) -> list[dict[str, Any]]:
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 8 or not torch.backends.cudnn.allow_tf32:
        return []
    how = "convolutions and torch's recurrent kernels round to TF32 (10 bits); the self-test does not"
    return [_path("float32 on this device", how)]


def without_home(text: str) -> str:
    """Replace the home folder by ~, so that a report can be shared without the user's name."""
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text
