"""`seqlab doctor` as a person, or a program, uses it."""

from __future__ import annotations

import json

import pytest
import torch

from seqlab import registry
from seqlab.doctor import selftest
from seqlab.nn.cells import Cell


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    """One cell and one model: tests/doctor has all of them."""
    monkeypatch.setattr(selftest, "cell_names", lambda: ["elman", *(name for kin, name in registry._given)])
    monkeypatch.setattr(selftest, "model_names", lambda: ["mlp"])
    monkeypatch.setattr("seqlab.fusion.loop.maps", lambda dtype: None)


class Noisy(Cell):
    def step(self, inputs, state):
        (h,) = state
        return (torch.tanh(inputs + self.recurrent(h) + 1e-3 * torch.randn_like(h)),)


def test_a_report_for_people(seqlab):
    said = seqlab("doctor", "--device", "cpu")
    assert said.code == 0, said.err
    for part in ("versions", "processor", "memory", "compiler", "cache", "decoding", "8 of 8 checks passed on cpu"):
        assert part in said.out
    assert "FAIL" not in said.out
    assert sum(line.startswith("ok ") for line in said.out.splitlines()) == 8


def test_without_the_test(seqlab):
    said = seqlab("doctor", "--no-test")
    assert said.code == 0
    assert "self-test" not in said.out
    assert json.loads(seqlab("doctor", "--no-test", "--json").out)["test"] is None


def test_one_object_for_programs(seqlab):
    said = seqlab("doctor", "--device", "cpu", "--json")
    assert said.code == 0
    assert said.err == ""
    found = json.loads(said.out)
    assert found["device"] == found["test"]["device"] == "cpu"
    assert found["test"]["failed"] == 0
    assert {check["subject"] for check in found["test"]["checks"]} == {"cell elman", "model mlp"}
    assert all(check["ok"] and check["error"] <= check["allowed"] for check in found["test"]["checks"])
    assert {"versions", "system", "processor", "memory", "devices", "compiler", "cache", "paths"} <= set(found)


def test_what_fails_is_named_and_the_exit_code_is_1(seqlab, monkeypatch):
    monkeypatch.setitem(registry._given, ("cell", "noisy"), Noisy)
    said = seqlab("doctor", "--device", "cpu")
    assert said.code == 1
    assert any(line.startswith("FAIL") and "cell noisy" in line for line in said.out.splitlines())
    assert "Do not trust" in said.out
    found = json.loads(seqlab("doctor", "--device", "cpu", "--json").out)
    assert found["test"]["failed"] > 0


def test_an_error_is_shown_without_figures(seqlab, monkeypatch):
    class Raising(Cell):
        def step(self, inputs, state):
            raise NotImplementedError("no such operation")

    monkeypatch.setitem(registry._given, ("cell", "raising"), Raising)
    said = seqlab("doctor", "--device", "cpu", "--json")
    assert said.code == 1
    (error,) = {check["note"] for check in json.loads(said.out)["test"]["checks"] if not check["ok"]}
    assert error == "no such operation"
    assert "–        –  no such operation" in seqlab("doctor", "--device", "cpu").out


def test_classes_of_ones_own_are_tested_too(seqlab, tmp_path, monkeypatch):
    code = tmp_path / "mine.py"
    code.write_text(
        "import seqlab, torch\n"
        "from seqlab.nn.cells import Cell\n"
        "class Mine(Cell):\n"
        "    def step(self, inputs, state):\n"
        "        return (torch.tanh(inputs + self.recurrent(state[0])),)\n"
        "seqlab.register('cell', 'mine', Mine)\n"
    )
    monkeypatch.setattr(registry, "_given", {})
    said = seqlab("doctor", "--device", "cpu", "--code", code)
    assert said.code == 0, said.err
    assert "cell mine" in said.out


@pytest.mark.parametrize("device", ["cuda:77", "gpu", "xpu"])
def test_a_device_that_does_not_exist_is_one_line(device, seqlab):
    said = seqlab("doctor", "--device", device)
    assert (said.code, said.out, len(said.errors)) == (2, "", 1)
    assert f"this machine has no '{device}' device" in said.errors[0]


OWN = """
import seqlab, torch
from seqlab.metrics.metric import Metric
from seqlab.nn.cells import Cell


class Nan(Cell):
    def step(self, inputs, state):
        return (torch.sqrt(inputs + self.recurrent(state[0])),)


class Claims(Cell):
    def step(self, inputs, state):
        assert len(inputs) == 0
        return state


class Exact(Metric):
    def statistics(self, hypothesis, references):
        return [1.0]

    def figure(self, sums):
        return 1.0


seqlab.register("cell", "nan-of-mine", Nan)
seqlab.register("cell", "claims-of-mine", Claims)
seqlab.register("metric", "exact-of-mine", Exact)
"""


def test_what_is_said_of_classes_of_ones_own(seqlab, tmp_path, monkeypatch):
    names = lambda: ["elman", *(name for kin, name in registry._given if kin == "cell")]  # noqa: E731
    monkeypatch.setattr(selftest, "cell_names", names)
    monkeypatch.setattr(registry, "_given", {})
    monkeypatch.setattr("seqlab.runs.run._imported", {})
    (tmp_path / "mine.py").write_text(OWN)
    said = seqlab("doctor", "--device", "cpu", "--code", tmp_path / "mine.py")
    assert said.code == 1
    lines = [line for line in said.out.splitlines() if line.startswith(("ok ", "FAIL"))]
    assert ["of-mine" in line for line in lines] == [True] * 8 + [False] * 8  # they come first
    nan, claims = lines[:4], lines[4:8]
    assert all(line.startswith("FAIL") and "AssertionError in mine.py, line 14" in line for line in claims)
    assert all(line.startswith("FAIL") and line.endswith("not finite") for line in nan)
    assert "note: not tested: metric 'exact-of-mine' (the self-test covers cells, language models and" in said.err
    assert "correct them" in said.out
    assert "bug report" not in said.out
