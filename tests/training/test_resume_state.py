"""All that is saved is needed: a resumed run is exact, and leaving out any one part of the saved state is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import (
    READINGS,
    differences,
    outcome,
    recipe,
    saved_steps,
    train_until,
    write_text,
)

from seqlab.build import choose_device
from seqlab.errors import RunError
from seqlab.objectives.next_token import NextToken
from seqlab.objectives.objective import Loss
from seqlab.recipe import Recipe
from seqlab.runs.launch import prepare, train
from seqlab.training.checkpoint import Checkpoints, Snapshot
from seqlab.training.trainer import Silence

# the checkpoint of step 20 is in the second epoch, between two reports, some evaluations after the best one;
# when the run is killed, what comes after the checkpoint (a report, a sample) has been written
SAVED, KILLED = 20, 23


def overfitting(folder: Path, reading: str) -> Recipe:
    """The held-out text is all rare letters, so that every evaluation is worse and training stops early."""
    valid = write_text(folder / "valid.txt", 300, words=["buff", "wug", "vic"])
    grid = {"report_every": 3, "evaluate_every": 4, "sample_every": 3, "checkpoint_every": 10}
    return recipe(folder, reading, **grid, patience=7).changed({"data.valid": str(valid)})


def initial_weights(run: Path) -> dict[str, torch.Tensor]:
    made = prepare(Recipe.load(run / "recipe.yaml"), choose_device("cpu"), Silence(), load_from=run)
    return dict(made.objective.state_dict())


Change = Callable[[Snapshot, Path], None]


def fact(name: str, value: Any) -> Change:
    def change(snapshot: Snapshot, run: Path) -> None:
        assert snapshot.facts[name] != value, "the scenario does not exercise this fact"
        snapshot.facts[name] = value

    return change


def running_sum(name: str) -> Change:
    def change(snapshot: Snapshot, run: Path) -> None:
        assert snapshot.facts["sums"][name] != 0
        snapshot.facts["sums"][name] = 0.0

    return change


def zero(kind: str, ending: str) -> Change:
    def change(snapshot: Snapshot, run: Path) -> None:
        tensors = getattr(snapshot, kind)
        names = [name for name in tensors if name.endswith(ending)]
        assert any(tensors[name].any() for name in names)
        tensors.update({name: torch.zeros_like(tensors[name]) for name in names})

    return change


def forget_model(snapshot: Snapshot, run: Path) -> None:
    snapshot.model = initial_weights(run)


def forget_optimizer(snapshot: Snapshot, run: Path) -> None:
    snapshot.optimizer = {}


def forget_generator(snapshot: Snapshot, run: Path) -> None:
    snapshot.state["generator"] = torch.get_rng_state()  # as the trainer has just seeded it


def forget_carried(snapshot: Snapshot, run: Path) -> None:
    snapshot.state = {"generator": snapshot.state["generator"]}


END_OF_FILE = 10**9
CHANGES: dict[str, Change] = {
    "model": forget_model,
    "optimizer": forget_optimizer,
    "optimizer, first moments": zero("optimizer", ".exp_avg"),
    "optimizer, second moments": zero("optimizer", ".exp_avg_sq"),
    "optimizer, step": zero("optimizer", ".step"),
    "generator": forget_generator,
    "step": fact("step", 0),
    "cursor": fact("cursor", [0, 0, 0]),
    "cursor, epoch": fact("cursor", [0, 0, 7]),
    "cursor, batch": fact("cursor", [1, 0, 0]),
    "tokens": fact("tokens", 0),
    "best": fact("best", None),
    "stale": fact("stale", 0),
    "sums, loss": running_sum("loss"),
    "sums, count": running_sum("count"),
    "sums, norm": running_sum("norm"),
    "sums, steps": running_sum("steps"),
    "log": fact("log", END_OF_FILE),
    "samples": fact("samples", END_OF_FILE),
}
CARRIED: dict[str, Change] = {
    "carried": forget_carried,  # its lengths are not listed below: an LSTM does not read them
    **{f"carried, {part}": zero("state", f".rows.{part}") for part in ("h.0", "c.0", "h.1", "c.1")},
}
TESTED_APART = {"finished"}  # by test_a_finished_run_stays_as_it_is


@pytest.fixture(scope="module", params=READINGS)
def scenario(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A recipe, a folder to work in, and what an undisturbed run of the recipe writes."""
    folder = tmp_path_factory.mktemp(request.param)
    plan = overfitting(folder, request.param)
    train(plan, out=folder / "whole")
    return request.param, plan, folder, outcome(folder / "whole")


def test_the_scenario_exercises_everything(scenario) -> None:
    reading, plan, folder, _ = scenario
    train_until(plan, folder / "looked-at", KILLED)
    snapshot = Checkpoints(folder / "looked-at").newest()
    facts = snapshot.facts
    assert facts["step"] == SAVED
    assert facts["cursor"] == [1, 0, 7]
    assert facts["stale"] > 0
    assert facts["best"]["step"] < SAVED
    named = {name.split(",")[0] for name in CHANGES}
    assert set(facts) - TESTED_APART | {"model", "optimizer", "generator"} == named, "a part that no test leaves out"
    carried = {f"carried.0.{part}" for part in ("lengths", "rows.h.0", "rows.c.0", "rows.h.1", "rows.c.1")}
    assert set(snapshot.state) == {"generator"} | (carried if reading == "streams" else set())
    stopped = max(saved_steps(folder / "whole"))
    assert SAVED < stopped < plan.training.steps, "training stops early"


def resumed(scenario, run: Path) -> list[str]:
    """What differs after a kill and a resume from an undisturbed run."""
    _, plan, _, whole = scenario
    train_until(plan, run, KILLED)
    train(plan, out=run, resume=True)
    return differences(whole, outcome(run))


def test_nothing_left_out(scenario, tmp_path: Path) -> None:
    assert resumed(scenario, tmp_path / "run") == []


NEEDED = [(reading, part) for reading in READINGS for part in CHANGES] + [("streams", part) for part in CARRIED]


@pytest.mark.parametrize(("scenario", "part"), NEEDED, indirect=["scenario"], scope="module")
def test_every_part_is_needed(scenario, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = Checkpoints.newest

    def without(self: Checkpoints, rank: int = 0) -> Snapshot | None:
        snapshot = newest(self, rank)
        if snapshot is not None:
            {**CHANGES, **CARRIED}[part](snapshot, self.run)
        return snapshot

    monkeypatch.setattr(Checkpoints, "newest", without)
    assert resumed(scenario, tmp_path / "run") != []


@pytest.mark.parametrize(
    "training",
    [
        *({"optimizer": name} for name in ("sgd", "momentum", "nesterov", "rmsprop", "adam", "muon")),
        {"accumulate": 3},
        {"accumulate": 5, "batch_size": 3},
        {"precision": "bfloat16"},
        {"clip_value": 0.01, "schedule": {"kind": "linear", "warmup": 9}},
    ],
    ids=str,
)
@pytest.mark.parametrize("reading", READINGS)
def test_resume_is_exact(reading: str, training: dict[str, Any], tmp_path: Path) -> None:
    """With every optimizer, and with gradients gathered over pieces, where every piece carries its own state."""
    plan = recipe(tmp_path, reading, steps=24, **training)
    train(plan, out=tmp_path / "whole")
    for step in (9, 20):
        train_until(plan, tmp_path / "killed", step)
    train(plan, out=tmp_path / "killed", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "killed")) == []


def times(run: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.rglob("*")}


def test_a_finished_run_stays_as_it_is(scenario) -> None:
    """Also one that early stopping ended."""
    _, plan, folder, whole = scenario
    before = times(folder / "whole")
    train(plan, out=folder / "whole", resume=True)
    assert differences(whole, outcome(folder / "whole")) == []
    assert times(folder / "whole") == before


@pytest.mark.parametrize("lost", ["best", "prune"])
def test_killed_in_the_last_moment(scenario, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last checkpoint has its name, but `best` is not updated, or old checkpoints are still there."""
    _, plan, _, whole = scenario
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_prune", lambda self, facts: None)
        if lost == "best":
            patch.setattr(Checkpoints, "_point_best", lambda self, facts: None)
        train(plan, out=tmp_path / "run")
    train(plan, out=tmp_path / "run", resume=True)
    assert differences(whole, outcome(tmp_path / "run")) == []


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_not_finite(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops before a weight or a checkpoint has seen it; the run can be resumed, and is exact."""
    plan = recipe(tmp_path, "streams", checkpoint_every=1)
    forward, steps = NextToken.forward, []

    def seventh_fails(self: NextToken, *inputs: Any) -> Loss:
        loss = forward(self, *inputs)
        steps.append(self.training)
        if self.training and sum(steps) == 7:
            zero = self.body.output.bias.sum() * 0
            loss.sum = loss.sum + (zero.sqrt() if what == "gradient" else zero + torch.nan)
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(NextToken, "forward", seventh_fails)
        with pytest.raises(RunError, match=f"the {what} became nan at step 7; .*lower training.learning_rate"):
            train(plan, out=tmp_path / "stopped")
    assert saved_steps(tmp_path / "stopped") == [5, 6]
    assert all(tensor.isfinite().all() for tensor in Checkpoints(tmp_path / "stopped").newest().model.values())
    train(plan, out=tmp_path / "stopped", resume=True)
    train(plan, out=tmp_path / "whole")
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "stopped")) == []
