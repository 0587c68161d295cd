"""A run that is given more steps is, to the bit, the one that had them from the start; where it cannot be, an error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from small_runs import differences, outcome, recipe, saved_steps, train_until, write_recipe

import seqlab
from seqlab.errors import RunError
from seqlab.recipe import Recipe
from seqlab.runs.launch import train
from seqlab.runs.run import load
from seqlab.tasks.language_modelling import LanguageModelling
from seqlab.training.log import read_log
from seqlab.training.trainer import Trainer

CONSTANT = {"schedule": {"kind": "constant"}}
SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {"kind": "constant"},
    "constant after a warm-up": {"kind": "constant", "warmup": 5},
    "inverse square root": {"kind": "inverse-sqrt", "warmup": 4},
}


def longer(plan: Recipe, steps: int) -> Recipe:
    return plan.changed({"training.steps": steps})


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("reading", ["windows", "streams"])
@pytest.mark.parametrize("steps", [20, 21, 22, 23])
def test_prolonged_is_never_stopped(steps: int, reading: str, schedule: dict[str, Any], tmp_path: Path) -> None:
    """The last step of the short run is on the grids of reports (3), evaluations (5), samples (4), or on none."""
    plan = recipe(tmp_path, reading, steps=steps, schedule=schedule)
    train(longer(plan, 40), out=tmp_path / "whole")
    train(plan, out=tmp_path / "run")
    assert saved_steps(tmp_path / "run")[-1] == steps
    train(longer(plan, 40), out=tmp_path / "run", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []


def test_prolonged_before_it_has_ended(tmp_path: Path) -> None:
    plan = recipe(tmp_path, "streams", steps=20, **CONSTANT)
    train(longer(plan, 40), out=tmp_path / "whole")
    train_until(plan, tmp_path / "run", 9)
    train_until(longer(plan, 30), tmp_path / "run", 25)
    train(longer(plan, 40), out=tmp_path / "run", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []


@pytest.mark.parametrize("killed", [23, 24, 25])
def test_killed_soon_after_it_was_prolonged(killed: int, tmp_path: Path) -> None:
    """Before it has saved anything new: the recipe has the new number, the newest checkpoint is that of the end."""
    plan = recipe(tmp_path, "streams", steps=22, **CONSTANT)
    train(longer(plan, 40), out=tmp_path / "whole")
    train(plan, out=tmp_path / "run")
    train_until(longer(plan, 40), tmp_path / "run", killed)
    assert load(tmp_path / "run").recipe.training.steps == 40
    train(longer(plan, 40), out=tmp_path / "run", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []


@pytest.mark.parametrize("checkpoint_every", [7, 100])
@pytest.mark.parametrize("killed", [23, 26, 31, 39])
def test_killed_before_the_next_checkpoint(
    killed: int, checkpoint_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was logged after the former end is cut off, and its checkpoint is not one that stays."""
    monkeypatch.setattr(LanguageModelling, "metrics", lambda *_: {"loss": 1.0})
    plan = recipe(tmp_path, "streams", steps=22, checkpoint_every=checkpoint_every, report_every=1, **CONSTANT)
    train(longer(plan, 40), out=tmp_path / "whole")
    train(plan, out=tmp_path / "run")
    train_until(longer(plan, 40), tmp_path / "run", killed)
    train_until(longer(plan, 40), tmp_path / "run", killed)
    train(longer(plan, 40), out=tmp_path / "run", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []


def test_the_best_until_then_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end was better than all before it, but is not on the grid: a longer run has never measured it."""
    now, evaluate = 0, Trainer._evaluate

    def evaluated(self: Trainer) -> bool:
        nonlocal now
        now = self.progress.step
        return evaluate(self)

    figures = {5: 1.0, 22: 0.5}
    monkeypatch.setattr(Trainer, "_evaluate", evaluated)
    monkeypatch.setattr(LanguageModelling, "metrics", lambda *_: {"loss": figures.get(now, 2.0)})
    plan = recipe(tmp_path, "streams", steps=22, **CONSTANT)
    train(longer(plan, 40), out=tmp_path / "whole")
    assert saved_steps(tmp_path / "whole") == [5, 38, 40]
    assert train(plan, out=tmp_path / "run").step == 22
    assert train(longer(plan, 40), out=tmp_path / "run", resume=True).step == 5
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []


def test_averaged_weights_are_prolonged(tmp_path: Path) -> None:
    plan = recipe(tmp_path, "windows", steps=21, average=0.9, **CONSTANT)
    train(longer(plan, 40), out=tmp_path / "whole")
    train(plan, out=tmp_path / "run")
    train(longer(plan, 40), out=tmp_path / "run", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []


def test_patience_has_the_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that stopped early would have stopped early with more steps too."""
    monkeypatch.setattr(LanguageModelling, "metrics", lambda *_: {"loss": 1.0})
    plan = recipe(tmp_path, "streams", steps=20, patience=2, **CONSTANT)
    train(longer(plan, 40), out=tmp_path / "whole")
    train(plan, out=tmp_path / "run")
    assert saved_steps(tmp_path / "run")[-1] == 15
    train(longer(plan, 40), out=tmp_path / "run", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "run")) == []


def test_the_command_line(server, tmp_path: Path) -> None:
    plan = recipe(tmp_path, "streams", steps=20, **CONSTANT)
    command = ["train", write_recipe(plan, tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run"), "--resume"]
    assert server.run(*command)[0] == 0
    code, output = server.run(*command, "training.steps=30")
    assert code == 0, output
    assert f"{tmp_path / 'run'} continues from step 20 of 30" in output
    assert read_log(tmp_path / "run/log.jsonl")[-1]["step"] == 30
    code, output = server.run(*command, "training.steps=30")
    assert "is already finished (step 30)" in output
    code, output = server.run(*command)
    assert (code, output.count("\n")) == (2, 1)
    assert "training.steps was 30, now 20 (steps can be added, not removed)" in output


# ------------------------------------------------------------------------ where it cannot be

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "cosine": ({"schedule": {"kind": "cosine"}}, {}, r"\(schedule 'cosine', warmup 0\); .*kind: constant"),
    "linear": ({"schedule": {"kind": "linear"}}, {}, r"\(schedule 'linear', warmup 0\); .*kind: constant"),
    "a share": (
        {"schedule": {"kind": "constant", "warmup": 0.5}},
        {},
        r"'constant', warmup 0\.5\); .*warmup: 100",
    ),
    "a long warm-up": ({"schedule": {"kind": "constant", "warmup": 50}}, {}, "the learning rate of the steps so far"),
    "forcing": (CONSTANT, {"objective": {"kind": "next-token", "forcing": {"own": 0.5}}}, "objective.forcing"),
}


@pytest.mark.parametrize(("training", "changes", "message"), REFUSED.values(), ids=REFUSED)
def test_steps_that_depend_on_their_number(training, changes, message: str, tmp_path: Path) -> None:
    plan = recipe(tmp_path, "streams", steps=6, **training).changed(changes)
    train(plan, out=tmp_path / "run")
    before = outcome(tmp_path / "run")
    with pytest.raises(RunError, match=f"training.steps cannot be raised from 6 to 12: .*{message}") as refused:
        train(longer(plan, 12), out=tmp_path / "run", resume=True)
    assert "train again with another --out" in str(refused.value)
    assert differences(before, outcome(tmp_path / "run")) == []


def test_a_budget_becomes_steps(tmp_path: Path) -> None:
    """A run whose number of steps was measured can be given more."""
    plan = recipe(tmp_path, "streams", **CONSTANT)
    made = train(plan.changed({"training.budget": "1s"}), out=tmp_path / "run")
    more = made.recipe.training.steps + 5
    grown = train(longer(plan, more), out=tmp_path / "run", resume=True)
    assert (grown.recipe.training.steps, grown.recipe.training.budget) == (more, None)
    assert read_log(tmp_path / "run/log.jsonl")[-1]["step"] == more


def test_a_run_that_was_never_trained(tmp_path: Path) -> None:
    """The mean of checkpoints has no step to go on from."""
    plan = recipe(tmp_path, "streams", steps=6, **CONSTANT)
    train(plan, out=tmp_path / "run")
    seqlab.average(tmp_path / "run", tmp_path / "mean", last=2)
    before = outcome(tmp_path / "mean")
    for own in (plan, longer(plan, 12)):
        with pytest.raises(RunError, match="was mixed, averaged or imported, not trained"):
            train(own, out=tmp_path / "mean", resume=True)
    assert differences(before, outcome(tmp_path / "mean")) == []


def test_a_run_of_an_earlier_version_is_prolonged(tmp_path: Path) -> None:
    """It has no manifest, and nothing is filled in that its recipe does not say."""
    plan = recipe(tmp_path, "streams", steps=20, **CONSTANT)
    train(longer(plan, 40), out=tmp_path / "whole")
    train(plan, out=tmp_path / "run")
    for run in (tmp_path / "whole", tmp_path / "run"):
        (run / "MANIFEST.json").unlink()
        text = (run / "recipe.yaml").read_text().replace("  average: null\n", "")
        (run / "recipe.yaml").write_text(text)
    shutil.rmtree(tmp_path / "run/checkpoints")
    train(longer(plan, 40), out=tmp_path / "run", resume=True)
    assert not (tmp_path / "run/MANIFEST.json").exists()
    assert (tmp_path / "run/recipe.yaml").read_text() == (tmp_path / "whole/recipe.yaml").read_text()
