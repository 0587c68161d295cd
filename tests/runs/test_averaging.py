"""The mean of a run's last checkpoints: a run like any other, and clear refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from tolerance import SMALL_NET, close, rounding

import seqlab
from seqlab.cli import group
from seqlab.errors import SeqlabError
from seqlab.training.checkpoint import Checkpoints

STEPS = [12, 16, 20]


@pytest.fixture(scope="module")
def trained(_own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its rate is so high that every checkpoint is somewhere else."""
    folder = tmp_path_factory.mktemp("averaging")
    small = {"data.train": "reverse:4:1000", "tokenizer": "word", "model.width": 8, "model.heads": 2, "model.depth": 1}
    grid = {"training.steps": 20, "training.checkpoint_every": 4, "training.evaluate_every": 4, "training.keep": 3}
    seqlab.train(
        "translation/transformer", {**small, **grid, "training.learning_rate": 0.05, "name": "bold"}, out=folder / "run"
    )
    return folder / "run"


def command(*arguments: object) -> str:
    return CliRunner().invoke(group, [str(one) for one in arguments], catch_exceptions=False).stdout


def test_the_weights_are_the_mean(trained, tmp_path):
    found = json.loads(command("average", trained, "--last", 3, "--out", tmp_path / "mean", "--json"))
    assert found["steps"] == STEPS
    run = seqlab.load(tmp_path / "mean")
    models = [one.model for one in Checkpoints(trained).whole()][:3]
    assert len(models) == 3
    for name, weight in run.objective.state_dict().items():
        expected = sum(model[name].double() for model in models) / 3
        close(weight, expected, steps=3)
    assert run.evaluate(metrics=[])["loss"] == pytest.approx(found["loss"], rel=rounding(SMALL_NET))
    assert "the mean of 3 checkpoints of bold" in (tmp_path / "mean" / "recipe.yaml").read_text()


def test_a_run_that_was_never_evaluated_has_a_mean_too(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run/log.jsonl").write_text("")
    said = command("average", tmp_path / "run", "--last", 2, "--out", tmp_path / "mean")
    assert "held-out loss" in said
    assert "best checkpoint" not in said


def test_people_see_whether_it_helped(trained, tmp_path):
    said = command("average", trained, "--last", 2, "--out", tmp_path / "mean")
    assert "steps 16, 20" in said
    best = min(entry["valid"]["loss"] for entry in seqlab.load(trained).log if "valid" in entry)
    assert f"(best checkpoint of {trained}: {best:.4f})" in said


def test_what_cannot_be_averaged_leaves_nothing_behind(trained, tmp_path):
    with pytest.raises(SeqlabError, match=r"has \d of the 9 intact checkpoints needed; train with training.keep=9"):
        seqlab.average(trained, tmp_path / "mean", last=9)
    damaged = shutil.copytree(trained, tmp_path / "damaged")
    (damaged / "checkpoints" / "step-00000016" / "model.safetensors").write_bytes(b"")
    kept = len(list(Checkpoints(trained).whole()))
    with pytest.raises(SeqlabError, match=f"has {kept - 1} of the {kept} intact checkpoints"):
        seqlab.average(damaged, tmp_path / "mean", last=kept)
    assert not (tmp_path / "mean").exists()
    with pytest.raises(SeqlabError, match="already holds a run"):
        seqlab.average(trained, trained)
