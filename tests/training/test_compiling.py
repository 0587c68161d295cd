"""`training.compile`: the same training to rounding, exact to the bit when resumed, and an error without a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import differences, exactly, outcome, recipe, train_until
from tolerance import no_worse
from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

from seqlab.errors import RecipeError
from seqlab.runs.launch import train
from seqlab.training.compiling import need_compiler
from seqlab.training.log import read_log


@pytest.fixture
def _compiler() -> None:
    try:
        need_compiler(torch.device("cpu"))
    except RecipeError:
        pytest.skip("there is no C++ compiler on this machine")


def losses(run: Path) -> list[float]:
    return [entry["loss"] for entry in read_log(run / "log.jsonl") if "loss" in entry]


@pytest.mark.usefixtures("_compiler")
def test_resumed_to_the_bit_and_close_to_the_plain_training(tmp_path: Path, monkeypatch) -> None:
    plan = recipe(tmp_path, "windows", {"dropout": 0.0}, steps=8, report_every=1, checkpoint_every=3)
    compiled = plan.changed({"training.compile": True})
    train(plan, out=tmp_path / "plain")
    train(compiled, out=tmp_path / "whole")
    train_until(compiled, tmp_path / "killed", 5)
    torch.compiler.reset()  # as in a new process
    train(compiled, out=tmp_path / "killed", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "killed")) == []
    exactly(monkeypatch)
    train(plan, out=tmp_path / "exact")
    curves = (torch.tensor(losses(tmp_path / name), dtype=torch.double) for name in ("whole", "plain", "exact"))
    no_worse(*curves)
    seconds = [entry for entry in read_log(tmp_path / "whole" / "timing.jsonl") if "compile_seconds" in entry]
    assert len(seconds) == 2  # the second batch is the smaller one of the epoch


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(RecipeError, match=r"C\+\+ compiler"):
        train(recipe(tmp_path, "windows", compile=True), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
