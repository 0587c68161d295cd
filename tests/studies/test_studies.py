"""Studies: tables and pictures of several trainings; what is wrong with one is said before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from seqlab.cli.study import study as command
from seqlab.errors import RecipeError, SeqlabError
from seqlab.recipe import Recipe
from seqlab.recipe_tree import shipped
from seqlab.studies.study import load
from seqlab.studies.trainings import Trainings

SMALL = {
    "kind": "trainings",
    "about": "a small study",
    "metric": "mse",
    "test": "adding-test:{steps}:60",
    "along": {"steps": [5, 8]},
    "baseline": 0.167,
    "seeds": 2,
    "set": {"data.train": "adding:{steps}:60", "training": {"steps": 3, "evaluate_every": 3}, "model.width": 6},
    "arms": {
        "elman": {"recipe": "forecasting/adding", "set": {"model.cell": "elman"}, "printed": 0.1},
        "relu": {"recipe": "forecasting/adding", "set": {"model": {"cell": {"kind": "elman", "activation": "relu"}}}},
    },
}


def written(folder: Path, **changes: object) -> str:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", shipped("study"))
def test_every_shipped_study_can_begin(name: str):
    """All its recipes are valid, and the data are named as they are measured."""
    study = load(name)
    assert study.settings.about
    if isinstance(study, Trainings):
        for at in study.points():
            for arm in study.settings.arms:
                assert len(study.recipes(arm, at)) == study.settings.seeds


def test_a_table_a_picture_and_all_figures(tmp_path: Path):
    asked = [written(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(command, [*asked, "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert [(row["arm"], row["at"]) for row in found["table"]] == [
        ("elman", 5),
        ("relu", 5),
        ("elman", 8),
        ("relu", 8),
    ]
    for row in found["table"]:
        assert len(row["values"]) == 2
        assert row["values"][0] != row["values"][1]  # of two seeds
        assert row["baseline"] == 0.167
    assert (tmp_path / "out" / "study.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "out" / "study.json").read_text(encoding="utf-8")) == found
    recipe = Recipe.load(tmp_path / "out" / "relu-8-seed1")
    assert (recipe.data.train, recipe.training.seed, recipe.model.cell.activation) == ("adding:8:60", 1, "relu")
    shown = CliRunner().invoke(command, asked, catch_exceptions=False).stdout  # finished runs are taken as they are
    assert "lowest to highest" in shown
    assert f"{found['table'][0]['median']:.4g}" in shown


def test_some_arms_and_other_keys(tmp_path: Path):
    asked = ["along.steps=[5]", "seeds=1", "set.training.steps=2", "--only", "relu", "--json", "--out"]
    done = CliRunner().invoke(command, [written(tmp_path), *asked, str(tmp_path / "out")], catch_exceptions=False)
    (row,) = json.loads(done.stdout)["table"]
    assert (row["arm"], row["at"], len(row["values"])) == ("relu", 5, 1)
    assert Recipe.load(tmp_path / "out" / "relu-5-seed0").training.steps == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"arms": {}}, "arms"),
        ({"arms": {"a/b": {"recipe": "lm/gpt"}}}, "cannot name a folder"),
        ({"arms": {"a": {"recipe": "lm/gtp"}}}, "did you mean 'lm/gpt'"),
        (
            {"arms": {"a": {"recipe": "forecasting/adding", "set": {"model.cel": "gru"}}}},
            "arm 'a'.*did you mean 'cell'",
        ),
        ({"test": "nofile.txt"}, "nofile.txt"),
        ({"test": "adding-test:{step}"}, "'{step}' in .* is not in 'along'"),
        ({"along": {"steps": [5, 5]}}, "the same value twice"),
        ({"baseline": {7: 0.1}}, "not in 'along'"),
        ({"set": {"training": {"steps": 2}, "training.steps": 3}}, "appears twice"),
        ({"set": {"training.seed": 2}}, "set by the study"),
        ({"kind": "training"}, "did you mean 'trainings'"),
        ({"sedes": 3}, "did you mean 'seeds'"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, object], says: str, tmp_path: Path):
    with pytest.raises(SeqlabError, match=says):
        load(written(tmp_path, **changes)).run(tmp_path / "out")
    assert not (tmp_path / "out").exists()  # nothing was trained


@pytest.mark.parametrize(("key", "name"), [("metric", "f1"), ("metric", "signature"), ("also", ["f1"])])
def test_figures_that_are_not_there(key: str, name: object, tmp_path: Path):
    """They are known when the first training is done."""
    with pytest.raises(RecipeError, match=f"{key}: no figure .*mse"):
        load(written(tmp_path, **{key: name})).run(tmp_path / "out")
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["elman-5-seed0"]


def test_the_command_line_wins_over_arms(tmp_path: Path):
    arms = {"a": {"recipe": "forecasting/adding", "set": {"model.width": 6}}}
    study = load(written(tmp_path, arms=arms), ["set.model.width=4", "set.training.batch_size=5"])
    assert isinstance(study, Trainings)
    recipe, _ = study.recipes("a", 5)
    assert (recipe.model.width, recipe.training.batch_size, recipe.training.steps) == (4, 5, 3)


def test_values_are_put_in_as_they_are(tmp_path: Path):
    study = load(written(tmp_path, along={"steps": [5, 0.5]}, set={"model.dropout": "{steps}"}, test=None))
    assert isinstance(study, Trainings)
    assert study.recipes("elman", 0.5)[0].model.dropout == 0.5


def test_a_training_that_diverges_is_a_row(tmp_path: Path):
    arms = {
        "wild": {"recipe": "forecasting/adding", "set": {"training.learning_rate": 1e30, "training.clip_norm": None}},
        "tame": {"recipe": "forecasting/adding"},
    }
    path = written(tmp_path, arms=arms, along={}, test=None, set={"data.train": "adding:5:60", "training.steps": 4})
    asked = [path, "seeds=1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(command, [*asked, "--json"], catch_exceptions=False)
    tame, wild = json.loads(done.stdout)["table"]
    assert (wild["values"], wild["median"], wild["diverged"]) == ([], None, 1)
    assert len(tame["values"]) == 1
    assert "1 of 1" in CliRunner().invoke(command, asked, catch_exceptions=False).stdout


def test_the_steps_of_backpropagation(tmp_path: Path):
    report = load("bptt", ["steps=7", "first=3"]).run(tmp_path)
    assert all(float(row[-1]) < 1e-12 for row in report.rows)
    assert report.notes[-1] == "the gradient at outputs 0 to 2 is exactly 0"
    report.draw(tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    with pytest.raises(RecipeError, match="no output is left"):
        load("bptt", ["first=5"])
    load("bptt", ["steps=1", "first=0"]).run(tmp_path).draw(tmp_path / "one.svg")  # where no term is above zero
