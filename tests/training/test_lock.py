"""Two trainings never write into one run folder; whoever only reads one needs not wait."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import warnings
from pathlib import Path

import pytest
from small_runs import differences, outcome, recipe, saved_steps, train_until, until, write_recipe
from test_ranks import start_ranks

import seqlab
from seqlab.errors import Caution, RunError
from seqlab.runs.launch import train
from seqlab.runs.run import load
from seqlab.training.lock import Locked, RunLock

SLOW = {"SLOW_FSYNC": "0.01"}
"""Makes a training long enough to be met."""


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """What a training writes that is alone."""
    train(recipe(tmp_path, "streams"), out=tmp_path / "whole")
    return outcome(tmp_path / "whole")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write_recipe(recipe(tmp_path, "streams"), tmp_path / "recipe.yaml")


def is_refusal(output: str, pid: int | None = None) -> bool:
    """One line that says who writes into the run."""
    who = rf"process {pid or '[0-9]+'} on {re.escape(socket.gethostname())} \(since [0-9-]+ [0-9:+]+\)"
    return re.fullmatch(rf"error: .*: {who} is writing to this run; wait until it ends, .*--out\n", output) is not None


# --------------------------------------------------------------------- two processes


def test_two_trainings_into_one_folder_at_once(file: str, whole, server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    children = [server.start("train", file, "--out", run, **SLOW) for _ in range(2)]
    codes = [child.wait() for child in children]
    assert sorted(codes) == [0, 2], [child.output for child in children]
    refused = children[codes.index(2)].output
    assert is_refusal(refused, children[codes.index(0)].id) or "already holds a run" in refused, refused
    assert differences(whole, outcome(run)) == []


def test_two_trainings_without_a_name_at_once(file: str, whole, server, tmp_path: Path) -> None:
    """Each has a folder of its own: runs/NAME and runs/NAME-2."""
    (tmp_path / "here").mkdir()
    children = [server.start("train", file, FOLDER=str(tmp_path / "here"), **SLOW) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0], [child.output for child in children]
    assert sorted(path.name for path in (tmp_path / "here/runs").iterdir()) == ["run", "run-2", "run-3"]
    for name in ("run", "run-2", "run-3"):
        assert differences(whole, outcome(tmp_path / "here/runs" / name)) == []
    assert {child.output.rpartition("finished: ")[2].split()[0] for child in children} == {
        "runs/run",
        "runs/run-2",
        "runs/run-3",
    }


def test_a_training_that_runs_is_left_alone(file: str, whole, server, tmp_path: Path) -> None:
    run, arpa = tmp_path / "run", tmp_path / "small.arpa"
    arpa.write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-1 </s>\n-1 <s>\n-1 <unk>\n\n\\end\\\n")
    child = server.start("train", file, "--out", run, **SLOW)
    until(lambda: (run / "best").exists(), child)
    child.signal(signal.SIGSTOP)  # it must not end before all others were refused
    for command in (
        ["train", file, "--out", run, "--resume"],
        ["train", file, "--out", run],
        ["average", tmp_path / "whole", "--last", "2", "--out", run],
        ["mix", tmp_path / "whole", "--out", run],
        ["ngram", "import", arpa, run],
        ["accept", run],
    ):
        code, output = server.run(*command)
        assert code == 2, command
        assert is_refusal(output, child.id), (command, output)
    child.signal(signal.SIGCONT)
    assert child.wait() == 0, child.output
    assert differences(whole, outcome(run)) == []


def test_reading_a_run_that_is_being_written(file: str, server, tmp_path: Path) -> None:
    """Checkpoints come and go, and there is always one to be read, without a word."""
    plan = recipe(tmp_path, "streams", steps=60, checkpoint_every=1, evaluate_every=1)
    run = tmp_path / "run"
    child = server.start("train", write_recipe(plan, tmp_path / "often.yaml"), "--out", run, SLOW_FSYNC="0.003")
    until(lambda: (run / "best").exists(), child)
    seen = set()

    def read_to_the_end() -> bool:
        seen.update({load(run, checkpoint="last").step, load(run).step})
        return 60 in saved_steps(run)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        until(read_to_the_end, child)
    assert child.wait() == 0, child.output
    assert len(seen) > 1


def test_a_killed_training_holds_nothing(file: str, whole, server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = server.start("train", file, "--out", run, **SLOW)
    until(lambda: (run / "best").exists(), child)
    child.signal(signal.SIGKILL)
    child.wait()
    assert json.loads((run / ".lock").read_text())["pid"] == child.id
    copy = shutil.copytree(run, tmp_path / "copy")
    for folder in (run, copy):
        code, output = server.run("train", file, "--out", folder, "--resume")
        assert code == 0, output
        assert differences(whole, outcome(folder)) == []


def test_ranks_that_are_refused_all_end(file: str, server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunLock(run):
        children = start_ranks(server, ["train", file, "--out", run])
        assert [child.wait() for child in children] == [2, 2]
    assert is_refusal(children[0].output, os.getpid()), children[0].output
    assert not run.exists()


def test_ranks_agree_on_a_free_name(file: str, server, tmp_path: Path) -> None:
    (tmp_path / "runs/run").mkdir(parents=True)
    (tmp_path / "runs/run/notes.txt").touch()
    children = start_ranks(server, ["train", file, "training.steps=2"], FOLDER=str(tmp_path))
    assert [child.wait() for child in children] == [0, 0], [child.output for child in children]
    assert load(tmp_path / "runs/run-2").step == 2
    assert [path.name for path in (tmp_path / "runs/run").iterdir()] == ["notes.txt"]


# --------------------------------------------------------------------------- the lock


def test_one_holds_it_and_then_another(tmp_path: Path) -> None:
    run = tmp_path / "some/run"
    with RunLock(run):
        with pytest.raises(Locked, match=f"process {os.getpid()} on "):
            RunLock(run)
        assert run.is_dir()
    assert list(tmp_path.iterdir()) == [], "what was made for the lock alone is gone"
    with RunLock(run):
        (run / "file").touch()
    assert [path.name for path in run.iterdir()] == ["file"]


def test_a_failure_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = recipe(tmp_path, "streams").changed({"data.train": "missing.txt"})
    for out in (None, "some/where"):
        with pytest.raises(seqlab.SeqlabError, match=r"missing\.txt"):
            train(plan, out=out)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems: it is said once, and all goes on."""

    flock = fcntl.flock

    def unsupported(file: int, how: int) -> None:
        if how & fcntl.LOCK_NB:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        flock(file, how)  # the cache, which is elsewhere

    train(recipe(tmp_path, "streams", steps=4), out=tmp_path / "run")
    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.warns(Caution, match="does not support locks") as told:
        seqlab.average(tmp_path / "run", tmp_path / "mean", last=2)
    assert len(told) == 1
    assert not (tmp_path / "mean/.lock").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(RunError, match=r"run: cannot write here \(No space left on device\); .* free disk space"):
            RunLock(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("out", ["/proc/seqlab/out", "link", "link/run"])
def test_a_folder_that_cannot_be_made(out: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"cannot write here .*; choose another --out"):
        RunLock(tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_resume_of_a_run_that_holds_its_own_lock(tmp_path: Path) -> None:
    """Also in one process: two threads of a program are two trainings."""
    plan = recipe(tmp_path, "streams")
    train_until(plan, tmp_path / "run", 7)
    with RunLock(tmp_path / "run"), pytest.raises(Locked):
        train(plan, out=tmp_path / "run", resume=True)
    train(plan, out=tmp_path / "run", resume=True)
