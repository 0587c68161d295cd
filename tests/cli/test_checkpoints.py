"""`--checkpoint STEP|last|best`, and checkpoints that are damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import pytest

from seqlab.cli import COMMANDS, group
from seqlab.runs.run import load
from seqlab.training.checkpoint import Checkpoints

TAKE = ["evaluate", "predict", "generate", "score", "inspect attention", "inspect beam"]
TAKE += ["inspect gradients", "inspect surface"]


def all_commands() -> dict[str, click.Command]:
    """Those of groups by both names."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        inside = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {below}": one for below, one in inside.items()} or {name: command}
    return found


def test_all_that_answer_with_a_run_take_a_checkpoint():
    found = all_commands()
    assert set(TAKE) <= set(found)
    for name in found:
        if name.startswith("inspect") or name in TAKE:
            (option,) = [one for one in found[name].params if one.name == "checkpoint"]
            assert option.metavar == "STEP|last|best"


@pytest.fixture
def run(runs, tmp_path) -> Path:
    """Its best checkpoint is not its last."""
    folder = Path(shutil.copytree(runs["lstm"], tmp_path / "run"))
    assert Checkpoints(folder).steps() == [35, 40]
    (folder / "best").write_text("step-00000035\n")
    return folder


def test_evaluate_at_a_step(seqlab, run):
    def found(*options):
        said = seqlab("evaluate", run, "--json", *options)
        assert (said.code, said.err) == (0, "")
        return json.loads(said.out)

    best, last = found("--checkpoint", "best"), found("--checkpoint", "last")
    assert (best["step"], last["step"]) == (35, 40)
    assert found() == best == found("--checkpoint", "35")
    assert found("--checkpoint", "40") == last
    assert best["loss"] != last["loss"]
    assert best["loss"] == load(run, checkpoint=35).evaluate()["loss"]


@pytest.mark.parametrize(
    "command",
    [
        ["generate", "--beam", "2", "--tokens", "9", "--json"],
        ["score", "--json"],
        ["inspect", "gradients", "--json", "--rows", "2"],
        ["inspect", "surface", "--json", "--rows", "2", "--points", "3"],
    ],
    ids=" ".join,
)
def test_other_weights_other_answers(command, seqlab, run):
    words = command[:2] if command[0] == "inspect" else command[:1]
    answers = []
    for which in ("35", "40", "last", "best"):
        said = seqlab(*words, run, *command[len(words) :], "--checkpoint", which, stdin="a cat\n")
        assert said.code == 0, said.err
        answers.append(said.out)
    assert answers[0] == answers[3] != answers[1] == answers[2]


def test_a_damaged_best_is_told_once(seqlab, run):
    (run / "checkpoints/step-00000035/model.safetensors").write_bytes(b"")
    for command in (["evaluate", run], ["generate", run, "--tokens", "3"], ["score", run]):
        said = seqlab(*command, stdin="a cat\n")
        assert said.code == 0, said.err
        (told,) = [line for line in said.err.splitlines() if "damaged" in line]
        reason = "model.safetensors differs from the manifest"
        assert told.endswith(f"step-00000035 is damaged ({reason}); step 40 is used instead")
        assert "Caution" not in said.err


def test_commands_that_make_runs_say_it_too(seqlab, run, here):
    (run / "checkpoints/step-00000035/model.safetensors").write_bytes(b"")
    said = seqlab("mix", run, "--out", "mixed")
    assert said.code == 0, said.err
    assert said.err.count("is damaged") == 1
    said = seqlab("average", run, "--last", "2", "--out", "mean")
    assert said.code == 2
    assert said.err.count("is damaged (model.safetensors differs from the manifest) and skipped") == 1
    assert "has 1 of the 2 intact checkpoints needed" in said.errors[0]


def test_python_warns_once(run):
    (run / "checkpoints/step-00000035/model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="step 40 is used instead") as told:
        assert load(run).step == 40
    assert len(told) == 1


def test_an_evaluation_with_another_checkpoint_has_a_note(seqlab, run):
    (run / "checkpoints/step-00000035/model.safetensors").write_bytes(b"")
    (note,) = json.loads(seqlab("evaluate", run, "--json").out)["notes"]
    assert note.endswith("step 40 is used instead")
