"""`seqlab train --resume` from the command line: signals, other settings, folders that are not runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from small_runs import differences, last_step, outcome, recipe, saved_steps, until, write_recipe, write_text

from seqlab.runs.launch import train


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    file = write_recipe(recipe(tmp_path, "streams"), tmp_path / "recipe.yaml")
    return ("train", file, "--out", str(tmp_path / "run"))


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]],  # schedulers may send it twice
    ids=["TERM", "INT", "TERM twice"],
)
def test_signals_save_and_exit(signals: list[int], command, server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = server.start(*command, "--resume", SLOW_FSYNC="0.003")
    until(lambda: last_step(run) >= 6, child)
    for number in signals:
        child.signal(number)
    assert child.wait() == 130
    assert f"stopped and saved at step {max(saved_steps(run))} of 40; continue with --resume" in child.output
    assert "Traceback" not in child.output
    assert max(saved_steps(run)) < 30
    assert server.run(*command, "--resume")[0] == 0
    train(recipe(tmp_path, "streams"), out=tmp_path / "whole")
    assert differences(outcome(tmp_path / "whole"), outcome(run)) == []


def test_other_settings_are_listed(command, server, tmp_path: Path) -> None:
    assert server.run(*command)[0] == 0
    before = outcome(tmp_path / "run")
    code, output = server.run(*command, "--resume", "training.learning_rate=0.5", "model.depth=3", "training.seed=9")
    assert code == 2
    for line in (
        "training.learning_rate was 0.01, now 0.5",
        "model.depth was 2, now 3",
        "training.seed was 0, now 9",
    ):
        assert line in output
    assert output.startswith("error: ")
    assert output.count("\n") == 1
    code, output = server.run(*command)
    assert (code, output.count("\n")) == (2, 1)
    assert "already holds a run" in output
    assert differences(before, outcome(tmp_path / "run")) == []


def test_other_data_is_an_error(command, server, tmp_path: Path) -> None:
    """A text that was edited since is not what the run was trained on."""
    assert server.run(*command)[0] == 0
    write_text(tmp_path / "text.txt", seed=1)
    code, output = server.run(*command, "--resume")
    assert (code, output.count("\n")) == (2, 1)
    assert "have changed" in output
    assert "text.txt" in output


def test_killed_before_there_is_a_run(command, server, tmp_path: Path) -> None:
    """The recipe is written last: what lies there without one is made again."""
    assert server.run(*command)[0] == 0
    whole = outcome(tmp_path / "run")
    for path in ("recipe.yaml", "best", "log.jsonl", "samples.jsonl", "timing.jsonl"):
        (tmp_path / "run" / path).unlink()
    for path in sorted((tmp_path / "run" / "checkpoints").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "run" / "checkpoints").rmdir()
    for name in (".draft-recipe", ".draft-recipe.yaml", ".draft-MANIFEST.json", "tokenizer/other.model", ".lock"):
        (tmp_path / "run" / name).write_text("task: {kind: lang")
    assert server.run(*command, "--resume")[0] == 0
    assert differences(whole, outcome(tmp_path / "run")) == []
