"""What `seqlab doctor` reports of a machine, also of machines that are not here."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from seqlab.build import choose_device
from seqlab.data.storage.cache import cache_folder
from seqlab.decoding.compiled import library
from seqlab.doctor import machine
from seqlab.errors import RecipeError
from seqlab.native import compiler

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
NATIVE = {"loops": True, "decoding": True, "lanes": 8, "found": {"instructions": ["AVX2", "SSE2"]}}
NONE = {"loops": False, "decoding": False, "lanes": None, "found": None}


@pytest.fixture
def two_cards(monkeypatch):
    """A machine with two CUDA devices, as torch would describe it."""
    card = SimpleNamespace(name="Card", total_memory=8 * 10**9, major=8, minor=6)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: card)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))


def hows(device, native):
    return {path["what"]: path for path in machine.paths(device, native)}


def test_a_report_is_plain_data():
    found = machine.report(CPU)
    assert json.loads(json.dumps(found)).keys() == found.keys()
    assert found["versions"]["torch"] == torch.__version__
    assert found["processor"]["threads"] == torch.get_num_threads()
    assert found["processor"]["torch_instructions"] == torch.backends.cpu.get_cpu_capability()
    assert found["memory"]["bytes"] > 10**8
    assert found["compiler"]["decoding"] == (library() is not None)
    assert found["cache"]["writable"]
    assert found["cache"]["folder"] == machine.without_home(str(cache_folder()))
    assert found["cache"]["free"] > 0


def test_the_compiler_is_the_one_that_is_used():
    tools = compiler.toolchain()
    assert (tools is None) == (library() is None)
    if tools is not None:
        assert tools.compiler == (os.environ.get("CXX") or tools.compiler)
        assert ("AVX-512" in tools.instructions) == (library().lanes() == 16)
        assert tools.version


def test_without_a_compiler_the_report_says_what_to_do(monkeypatch):
    monkeypatch.setattr(compiler, "_compiler", lambda: None)
    monkeypatch.setattr(machine, "packed", lambda model: model)
    monkeypatch.delenv("CXX", raising=False)
    assert compiler.toolchain() is None
    found = hows(CPU, NONE)
    for what in ("training recurrent nets", "decoding"):
        assert found[what]["slow"]
        assert "install g++" in found[what]["advice"]
    monkeypatch.setenv("CXX", "false")
    assert hows(CPU, NONE)["decoding"]["advice"] == "unset CXX"


def test_a_compiler_without_openmp_is_none(monkeypatch):
    monkeypatch.setattr(compiler, "_compiler", lambda: "cc")
    monkeypatch.setattr(compiler, "_assumed", lambda *about: b"#define __AVX2__ 1\n")
    monkeypatch.setattr(compiler.subprocess, "run", lambda *a, **k: SimpleNamespace(stdout=b"cc 1.0\n"))
    assert compiler.toolchain() is None
    monkeypatch.setattr(compiler, "_assumed", lambda *about: b"#define __AVX2__ 1\n#define _OPENMP 201511\n")
    assert compiler.toolchain() == compiler.Toolchain("cc", "cc 1.0", compiler._architecture(), ("AVX2",))


def test_compiled_paths_name_their_instructions():
    assert "compiled loops (AVX2, 8 lanes)" in hows(CPU, NATIVE)["training recurrent nets"]["how"]


def test_no_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert machine.devices() == []
    found = hows(CPU, NATIVE)
    assert found["--device cuda"]["how"].startswith("would fail")
    assert found["--device mps"]["how"].startswith("would fail")


def test_cuda_devices_are_listed(two_cards):
    one, other = machine.devices()
    assert one == {"device": "cuda:0", "name": "Card", "bytes": 8 * 10**9, "capability": "8.6"}
    assert other["device"] == "cuda:1"
    found = hows(CUDA, NATIVE)
    assert found["--device cuda"]["how"] == "works"
    assert "by torch on cuda" in found["decoding"]["how"]
    assert "TF32" in found["float32 on this device"]["how"]


def test_mps_is_listed(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 10**10)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (one,) = machine.devices()
    assert (one["device"], one["bytes"]) == ("mps", 10**10)
    assert str(choose_device("auto")) == "mps"


def test_only_devices_that_exist_are_chosen(two_cards):
    assert str(choose_device("auto")) == "cuda"
    assert str(choose_device("cuda:1")) == "cuda:1"
    for name in ("cuda:2", "xpu", "gpu", "", "cpu:1", "cuda:x"):
        with pytest.raises(RecipeError, match=f"this machine has no '{name}' device"):
            choose_device(name)


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("SEQLAB_CACHE", str(file / "cache"))
    found = machine.cache()
    assert not found["writable"]
    assert found["problem"]
    monkeypatch.setenv("SEQLAB_CACHE_LIMIT", "much")
    assert "SEQLAB_CACHE_LIMIT" in machine.cache()["problem"]


def test_a_report_has_no_home_folder_in_it(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("SEQLAB_CACHE", "/home/somebody/cache")
    assert machine.without_home(str(Path("/home/somebody/cache"))) == "~/cache"
    assert machine.system()["variables"]["SEQLAB_CACHE"] == "~/cache"
