"""Pieces of a batch and ranks add up to the whole batch; a run on two ranks is resumed to the bit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import READINGS, differences, exactly, last_step, outcome, recipe, saved_steps, until, write_recipe
from tolerance import no_worse, rounding

from seqlab.recipe import Recipe
from seqlab.runs.launch import train
from seqlab.training.log import read_log

NO_DROPOUT = {"dropout": 0.0}  # ranks and pieces have dropout of their own


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def start_ranks(server, arguments: Sequence[str | Path], ranks: int = 2, **environment: str) -> list:
    """What `torchrun` does, by forking: a process a rank, which find each other by the environment."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "GLOO_SOCKET_IFNAME": "lo"}
    sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [
        server.start(*arguments, RANK=str(rank), LOCAL_RANK=str(rank), **meeting, **sizes, **environment)
        for rank in range(ranks)
    ]


def train_ranks(server, plan: Recipe, run: Path, ranks: int = 2) -> None:
    file = write_recipe(plan, run.parent / "recipe.yaml")
    children = start_ranks(server, ["train", file, "--out", run, "--resume"], ranks)
    codes = [child.wait() for child in children]
    assert codes == [0] * ranks, [child.output for child in children]


def losses(run: Path) -> list[float]:
    """The loss and the norm of the gradient at every step, and all evaluations."""
    figures = []
    for entry in read_log(run / "log.jsonl"):
        figures += [entry["valid"]["loss"]] if "valid" in entry else [entry["loss"], entry["gradient_norm"]]
    return figures


def fifty_steps(folder: Path, reading: str, **training: Any) -> Recipe:
    return recipe(folder, reading, model=NO_DROPOUT, steps=50, report_every=1, checkpoint_every=25, **training)


def as_on_one_rank(run: Path, plan: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has the curve of one rank, as far as that curve in float32 is the one in double precision."""
    train(plan, out=run.parent / "one")
    exactly(monkeypatch)
    train(plan, out=run.parent / "exact")
    curves = (torch.tensor(losses(run.parent / name), dtype=torch.double) for name in (run.name, "one", "exact"))
    no_worse(*curves)


def test_torchrun(tmp_path: Path, monkeypatch) -> None:
    """Two ranks with half of each batch, as `torchrun` starts them, have the curve of one with all of it."""
    plan = fifty_steps(tmp_path, "windows")
    file, run = write_recipe(plan, tmp_path / "recipe.yaml"), tmp_path / "ranks"
    meeting = ["--nnodes", "1", "--master-addr", "127.0.0.1", "--master-port", free_port()]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *meeting]
    command = [*launcher, str(Path(sys.executable).parent / "seqlab"), "train", file, "--out", str(run)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("finished: ") == 1, "only the first rank speaks"
    as_on_one_rank(run, plan, monkeypatch)


@pytest.mark.parametrize(
    "training",
    [{}, {"batch_size": 7}, {"batch_size": 1}, {"accumulate": 2}, {"batch_size": 3, "accumulate": 2}],
    ids=["half each", "odd rows", "fewer rows than ranks", "pieces too", "fewer rows than pieces"],
)
@pytest.mark.parametrize("reading", READINGS)
def test_two_ranks_equal_one(reading: str, training: dict[str, int], server, tmp_path: Path, monkeypatch) -> None:
    plan = fifty_steps(tmp_path, reading, **training)
    train_ranks(server, plan, tmp_path / "ranks")
    as_on_one_rank(tmp_path / "ranks", plan.changed({"training.accumulate": 1}), monkeypatch)
    assert len(losses(tmp_path / "one")) == 2 * 50 + 10
    # 50 steps are more than one epoch of most of these, and the last batch of an epoch has fewer rows


def test_three_ranks_equal_one(server, tmp_path: Path, monkeypatch) -> None:
    plan = fifty_steps(tmp_path, "streams")
    train_ranks(server, plan, tmp_path / "ranks", ranks=3)
    as_on_one_rank(tmp_path / "ranks", plan, monkeypatch)


@pytest.mark.parametrize("accumulate", [2, 4, 16])
@pytest.mark.parametrize("reading", READINGS)
def test_pieces_equal_the_whole_batch(reading: str, accumulate: int, tmp_path: Path, monkeypatch) -> None:
    exactly(monkeypatch)
    train(fifty_steps(tmp_path, reading), out=tmp_path / "one")
    train(fifty_steps(tmp_path, reading, accumulate=accumulate), out=tmp_path / "pieces")
    # all that is left of float32 is the sum of the losses of a batch
    assert losses(tmp_path / "pieces") == pytest.approx(losses(tmp_path / "one"), rel=rounding(8))


@pytest.mark.parametrize("to", ["all", "first", "second"])
def test_two_ranks_stopped_and_resumed(to: str, server, tmp_path: Path) -> None:
    """SIGTERM to any rank stops all of them after the same step; what is resumed is exact, dropout included."""
    plan = recipe(tmp_path, "streams")
    train_ranks(server, plan, tmp_path / "whole")
    run, file = tmp_path / "stopped", tmp_path / "recipe.yaml"
    children = start_ranks(server, ["train", file, "--out", run], SLOW_FSYNC="0.003")
    until(lambda: last_step(run) >= 6, children[0])
    for child in {"all": children, "first": children[:1], "second": children[1:]}[to]:
        child.signal(signal.SIGTERM)
    assert [child.wait() for child in children] == [130, 130], [child.output for child in children]
    assert f"stopped and saved at step {max(saved_steps(run))} of 40" in children[0].output
    assert max(saved_steps(run)) < 30
    train_ranks(server, plan, run)
    assert differences(outcome(tmp_path / "whole"), outcome(run)) == []


@pytest.mark.parametrize("reading", READINGS)
def test_two_ranks_killed_and_resumed(reading: str, server, tmp_path: Path) -> None:
    plan = recipe(tmp_path, reading)
    train_ranks(server, plan, tmp_path / "whole")
    run, file = tmp_path / "killed", tmp_path / "recipe.yaml"
    for step in (7, 19):
        children = start_ranks(server, ["train", file, "--out", run, "--resume"], SLOW_FSYNC="0.003")
        until(lambda: last_step(run) >= step, children[0])  # noqa: B023
        for child in children:
            child.signal(signal.SIGKILL)
        assert [child.wait() for child in children] == [-signal.SIGKILL] * 2
    assert max(saved_steps(run)) < 40
    train_ranks(server, plan, run)
    assert differences(outcome(tmp_path / "whole"), outcome(run)) == []
    states = [path.name for path in (run / "checkpoints" / "step-00000040").glob("state*.safetensors")]
    assert sorted(states) == ["state-1.safetensors", "state.safetensors"], "each rank has its own generator"


def test_another_number_of_ranks_is_an_error(server, tmp_path: Path) -> None:
    plan = recipe(tmp_path, "windows", steps=4)
    train_ranks(server, plan, tmp_path / "run")
    code, output = server.run("train", tmp_path / "recipe.yaml", "--out", tmp_path / "run", "--resume")
    assert (code, output.count("\n")) == (2, 1)
    assert "ranks were 2, now 1" in output
