"""Run folders that were edited, mixed up or made by other versions are refused, in one line that says what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import Killed, differences, outcome, recipe, saved_steps, step_folder, train_until

import seqlab
from seqlab.errors import RunError
from seqlab.recipe import Recipe
from seqlab.runs.launch import train
from seqlab.runs.run import load
from seqlab.training import manifest as manifests
from seqlab.training.manifest import FORMAT, Manifest, accept


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    """A recipe with a GPT, and its run."""
    folder = tmp_path_factory.mktemp("made")
    plan = recipe(folder, "windows", steps=6, keep=3)
    train(plan, out=folder / "run")
    return plan, folder / "run"


@pytest.fixture
def run(made, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(made[1], tmp_path / "run"))


def replaced(run: Path, file: str, old: str, new: str) -> None:
    path = run / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


# ------------------------------------------------------------------------ what it says


def test_a_manifest_lists_what_a_run_computes_with(made) -> None:
    _, run = made
    data = json.loads((run / "MANIFEST.json").read_text())
    assert data["format"] == FORMAT
    assert sorted(data["files"]) == ["model.yaml", "recipe.yaml", "tokenizer/tokenizer.json"]
    for name, digest in data["files"].items():
        assert manifests.sha256(run / name) == digest
    for step in saved_steps(run):
        checkpoint = json.loads((step_folder(run, step) / "MANIFEST.json").read_text())
        assert checkpoint["run"] == data["run"]
    assert not (run / ".lock").exists()


def test_two_trainings_have_the_same_manifest(made, tmp_path: Path) -> None:
    plan, run = made
    train(plan, out=tmp_path / "again")
    assert differences(outcome(run), outcome(tmp_path / "again")) == []


# --------------------------------------------------------------------- what was edited

EDITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "heads in the recipe": (lambda run: replaced(run, "recipe.yaml", "heads: 2", "heads: 1"), "recipe.yaml (changed)"),
    "heads of the model": (lambda run: replaced(run, "model.yaml", "heads: 2", "heads: 1"), "model.yaml (changed)"),
    "a blank": (lambda run: replaced(run, "recipe.yaml", "steps: 6", "steps:  6"), "recipe.yaml (changed)"),
    "no model.yaml": (lambda run: (run / "model.yaml").unlink(), "model.yaml (missing)"),
    "the tokenizer": (
        lambda run: replaced(run, "tokenizer/tokenizer.json", '"a"', '"A"'),
        "tokenizer/tokenizer.json (changed)",
    ),
    "no tokenizer": (lambda run: shutil.rmtree(run / "tokenizer"), "tokenizer/tokenizer.json (missing)"),
    "one file more": (lambda run: (run / "tokenizer/more.txt").touch(), "tokenizer/more.txt (added)"),
}


@pytest.mark.parametrize(("edit", "named"), EDITS.values(), ids=EDITS)
def test_what_was_edited_is_refused_at_every_door(edit, named: str, made, run: Path, tmp_path: Path) -> None:
    plan, whole = made
    edit(run)
    before = outcome(run)
    doors = {
        "load": lambda: load(run),
        "resume": lambda: train(plan, out=run, resume=True),
        "mix": lambda: seqlab.mix([whole, run], out=tmp_path / "out"),
        "average": lambda: seqlab.average(run, out=tmp_path / "out", last=2),
    }
    for name, door in doors.items():
        with pytest.raises(RunError) as refused:
            door()
        assert named in str(refused.value), name
        assert f"seqlab accept {run}" in str(refused.value), name
    assert not (tmp_path / "out").exists()
    assert differences(before, outcome(run)) == []


def test_swapped_tags_are_refused(tmp_path: Path) -> None:
    """They would give wrong answers without a word."""
    rows = [("Anna NAME", "sees OTHER", "Bert NAME"), ("we OTHER", "go OTHER", "home OTHER")] * 20
    data = tmp_path / "tags.conll"
    data.write_text("\n\n".join("\n".join(row) for row in rows) + "\n", encoding="utf-8")
    overrides = {"data.train": str(data), "model.width": 8, "training.steps": 5}
    tagger = seqlab.train("tagging/lstm", overrides, out=tmp_path / "run")
    replaced(tmp_path / "run", "model.yaml", "- NAME\n  - OTHER", "- OTHER\n  - NAME")
    with pytest.raises(RunError, match=r"differs from the trained run: model.yaml \(changed\); restore .* accept"):
        load(tagger.folder)


def test_the_tokenizer_command_uses_the_same_door(run: Path, server) -> None:
    code, output = server.run("tokenizer", "encode", run, "a cat", "--json")
    assert code == 0, output
    (run / "tokenizer/more.txt").touch()
    for command in (["encode", run, "a cat"], ["decode", run, "1"]):
        code, output = server.run("tokenizer", *command)
        assert (code, output.count("\n")) == (2, 1)
        assert "tokenizer/more.txt (added)" in output


def test_pictures_logs_and_hidden_files_are_nobodys_business(run: Path) -> None:
    for name in ("gradients.png", "notes.txt", "tokenizer/.DS_Store", ".lock"):
        (run / name).write_text("whatever")
    with (run / "log.jsonl").open("a") as log:
        log.write("{}\n")
    load(run)


# -------------------------------------------------------------------------- accepting


def test_accepting(run: Path, server) -> None:
    before = load(run).evaluate()
    replaced(run, "recipe.yaml", "tokens: 12", "tokens: 34")
    (run / "tokenizer/more.txt").touch()
    code, output = server.run("accept", run)
    assert code == 0
    assert output.splitlines() == ["recipe.yaml: changed", "tokenizer/more.txt: added", f"accepted: {run}"]
    loaded = load(run)
    assert loaded.recipe.decoding.tokens == 34
    assert loaded.evaluate() == before
    code, output = server.run("accept", run)
    assert (code, output) == (0, f"nothing has changed: {run}\n")
    code, output = server.run("accept", run, "--json")
    assert json.loads(output) == {"run": str(run), "accepted": {}}


def test_accepting_what_cannot_be_used(run: Path) -> None:
    (run / "model.yaml").unlink()
    with pytest.raises(RunError, match=r"has no model\.yaml; restore the folder from a copy"):
        accept(run)


@pytest.mark.parametrize("damage", ["missing", "damaged", "empty", "a list"])
def test_a_lost_manifest(damage: str, run: Path) -> None:
    """Nothing says any more what was trained: a person has to."""
    whole, path = outcome(run), run / "MANIFEST.json"
    path.unlink() if damage == "missing" else path.write_text({"damaged": '{"for', "empty": "", "a list": "[]"}[damage])
    with pytest.raises(RunError, match=rf"MANIFEST.json.* `?seqlab accept {run}"):
        load(run)
    accept(run)
    assert differences(whole, outcome(run)) == []


def test_a_newer_format(made, run: Path) -> None:
    plan, _ = made
    replaced(run, "MANIFEST.json", f'"format": {FORMAT}', f'"format": {FORMAT + 1}')
    for door in (lambda: load(run), lambda: train(plan, out=run, resume=True), lambda: accept(run)):
        with pytest.raises(
            RunError, match=rf"made by a newer version of seqlab \(its format is {FORMAT + 1}.*; update seqlab"
        ):
            door()


# --------------------------------------------------------------------- other people's checkpoints


def test_a_checkpoint_of_another_run(made, run: Path, tmp_path: Path) -> None:
    """Of the same shape, so that its weights would fit: even if only the seed is another."""
    plan, _ = made
    for name, changes in {"seed": {"training.seed": 1}, "rate": {"training.learning_rate": 0.02}}.items():
        other = tmp_path / name
        train(plan.changed(changes), out=other)
        shutil.rmtree(step_folder(run, 6), ignore_errors=True)
        shutil.copytree(step_folder(other, 6), step_folder(run, 6))
        for door in (lambda: load(run, checkpoint=6), lambda: train(plan, out=run, resume=True)):
            with pytest.raises(RunError, match="step-00000006: is a checkpoint of another run; remove it"):
                door()
        assert load(run, checkpoint=4).step == 4


def test_a_checkpoint_of_the_same_run_elsewhere(made, run: Path, tmp_path: Path) -> None:
    """A run has no place: what the same recipe has made in another folder is the same run."""
    plan, whole = made
    train_until(plan, tmp_path / "killed", 5)
    shutil.copytree(step_folder(run, 6), step_folder(tmp_path / "killed", 6))
    assert load(tmp_path / "killed", checkpoint=6).evaluate() == load(whole, checkpoint=6).evaluate()


# ------------------------------------------------------------------------- earlier versions


def as_before(run: Path) -> Path:
    """A run as versions without manifests made it."""
    (run / "MANIFEST.json").unlink()
    for path in run.glob("checkpoints/*/MANIFEST.json"):
        path.write_bytes(manifests.as_json(json.loads(path.read_text())["files"]))
    return run


def test_a_run_of_an_earlier_version(made, tmp_path: Path) -> None:
    """It loads and resumes as ever, to the bit, and stays what it is."""
    plan, whole = made
    train_until(plan, tmp_path / "old", 5)
    old = as_before(tmp_path / "old")
    assert load(old).step
    train(plan, out=old, resume=True)
    assert differences(outcome(as_before(shutil.copytree(whole, tmp_path / "whole"))), outcome(old)) == []
    assert load(old).evaluate() == load(whole).evaluate()
    replaced(old, "recipe.yaml", "tokens: 12", "tokens: 34")
    assert load(old).recipe.decoding.tokens == 34


def test_accepting_a_run_of_an_earlier_version(made, run: Path) -> None:
    plan, _ = made
    accept(as_before(run))
    assert Manifest.read(run).run is None
    load(run)
    train(plan, out=run, resume=True)
    replaced(run, "recipe.yaml", "tokens: 12", "tokens: 34")
    with pytest.raises(RunError, match="differs"):
        load(run)


def test_checkpoints_of_an_earlier_version_in_a_run_of_this_one(run: Path) -> None:
    path = step_folder(run, 6) / "MANIFEST.json"
    path.write_bytes(manifests.as_json(json.loads(path.read_text())["files"]))
    with pytest.raises(RunError, match="another run"):
        load(run, checkpoint="last")


# ---------------------------------------------------------------------------- crashes


@pytest.mark.parametrize("killed_at", range(4))
def test_killed_while_the_recipe_is_replaced(killed_at: int, made, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two writes the run can be loaded; going on ends what was begun."""
    plan, _ = made
    text = (run / "recipe.yaml").read_text().replace("tokens: 12", "tokens: 34")
    write_whole, writes = manifests.write_whole, []

    def killed(path: Path, data: bytes) -> None:
        if len(writes) == killed_at:
            raise Killed
        writes.append(path.name)
        write_whole(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(manifests, "write_whole", killed)
        if killed_at < 3:
            with pytest.raises(Killed):
                manifests.replace_recipe(run, text)
        else:
            manifests.replace_recipe(run, text)
    assert writes == ["MANIFEST.json", "recipe.yaml", "MANIFEST.json"][:killed_at]
    assert load(run).recipe.decoding.tokens == (34 if killed_at > 1 else 12)
    train(plan, out=run, resume=True)
    assert all(len(sums) == 1 for sums in Manifest.read(run).files.values())
    load(run)
