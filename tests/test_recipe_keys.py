"""Every key of a recipe is explained, where people look for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from seqlab import registry
from seqlab.cli import group
from seqlab.recipe import Recipe, flatten
from seqlab.recipe_keys import ABOUT, SECTIONS, keys_in, keys_of, page, section_keys
from seqlab.recipe_tree import shipped

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_is_what_the_classes_say():
    here = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    assert here == page(), "write it anew: python -m seqlab.recipe_keys > docs/keys.md"


def test_every_key_has_a_meaning():
    silent = [f"{section}.{key.name}" for section in SECTIONS for key in section_keys(section) if not key.about]
    for family in ABOUT:
        for kind in registry.FAMILIES[family]:
            found = keys_of(registry.find(family, kind).Settings)
            silent += [f"{family} {kind}: {key.name}" for key in found if not key.about]
    assert not silent


@pytest.mark.parametrize("name", shipped())
def test_the_keys_of_a_recipe_are_all_that_it_has(name):
    recipe = Recipe.load(name)
    listed = [key.name for key, _ in keys_in(recipe)]
    assert len(listed) == len(set(listed))
    has = {key for key in flatten(recipe.to_dict()) if not key.startswith(("name", "about", "environment"))}
    below = {key for key in has if key not in listed}  # inside of lists and tables of names
    assert all(any(key.startswith(f"{one}.") for one in listed) for key in below)
    assert set(listed) <= has | {one for one in listed if any(key.startswith(f"{one}.") for key in has)}


def test_ranges_types_and_defaults():
    found = {key.name: key for key in section_keys("training")}
    assert (found["training.batch_size"].type, found["training.batch_size"].range) == ("integer", "> 0")
    assert found["training.batch_size"].default == "32"
    assert found["training.precision"].type == "float32 | bfloat16"
    assert found["training.average"].range == "≥ 0, < 1"
    assert {key.name: key.default for key in section_keys("data")}["data.train"] == "required"
    assert {key.name for key in section_keys("init")} >= {"init.from", "init.adapters.rank"}


def test_the_command_lists_them():
    told = CliRunner().invoke(group, ["recipes", "lm/gpt", "--keys"], standalone_mode=False)
    assert told.exception is None
    assert f"model.width={Recipe.load('lm/gpt').model.width}" in told.output
    assert "training.optimizer.betas=" in told.output


def completed(*words, shell="bash"):
    return [value for _, value in suggested(*words, shell=shell)]


def suggested(*words, shell="bash"):
    """The type of each suggestion (`file` and `dir` are left to the shell) and its text."""
    environment = {
        **os.environ,
        "_SEQLAB_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(["seqlab", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "seqlab"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [tuple(line.split(",", 1)) for line in ended.stdout.splitlines() if line]


def test_shells_complete_commands_recipes_keys_and_values():
    assert "train" in completed("tr")
    assert completed("train", "lm/gp") == ["lm/gpt"]
    assert completed("train", "lm/gpt", "training.opt") == ["training.optimizer="]
    assert completed("train", "lm/gpt", "training.precision=b") == ["training.precision=bfloat16"]
    assert completed("train", "lm/gpt", "model.norm=") == ["model.norm=layer", "model.norm=rms"]
    assert completed("train", "no/such", "model.w") == []
    assert completed("train", "lm/gpt", "training.steps=") == ["training.steps=null"]


@pytest.mark.parametrize("key", ["model.cell.kind", "model.cell", "training.optimizer.kind", "training.optimizer"])
def test_shells_complete_every_kind(key):
    kinds = registry.names(key.split(".")[1])
    assert completed("train", "lm/lstm", f"{key}=") == [f"{key}={kind}" for kind in kinds]


def test_shells_complete_recipes_with_keys_and_studies():
    assert completed("compare", "lm/ngram", "lm/l") == ["lm/lstm"]
    assert completed("compare", "lm/lstm", "model.cell.k") == ["model.cell.kind="]
    assert completed("study", "bp") == ["bptt"]
    assert suggested("study", "mine.y") == [("file", "mine.y")]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["evaluate", "runs_o"], "dir"),
        (["evaluate", "run", "--data", "te"], "file"),
        (["evaluate", "run", "--out", "te"], "file"),
        (["data", "check", "te"], "file"),
        (["train", "lm/gpt", "--code", "ow"], "file"),
        (["train", "lm/gpt", "--out", "runs_o"], "dir"),
        (["train", "mine.y"], "file"),
        (["compare", "lm/gpt", "mine.y"], "file"),
        (["predict", "run", "te"], "file"),
        (["inspect", "gradients", "runs_o"], "dir"),
        (["tokenizer", "train", "bpe", "te"], "file"),
    ],
)
def test_paths_are_left_to_the_shell(words, kind):
    assert suggested(*words) == [(kind, words[-1])]


def commands(group, context, *path):
    """All commands, with their parents."""
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, click.Context(found), *path, name)
        else:
            yield " ".join([*path, name]), found


def test_no_path_is_forgotten():
    """Whatever is called RUN, FILE or FOLDER completes."""
    for name, command in commands(group, click.Context(group)):
        for one in command.params:
            shown = one.make_metavar(click.Context(command)).strip("[].")
            if shown in ("RUN", "FILE", "FOLDER", "OUT") or one.name in ("out", "code"):
                (item,) = one.shell_complete(click.Context(command), "nowhere")
                assert item.type in ("file", "dir"), f"{name}: {one.name}"


BASH = """
compopt() { echo "$@"; }  # works only while someone types
source /dev/stdin <<< "$(seqlab completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_seqlab_completion seqlab
printf '%s\\n' "${COMPREPLY[@]}"
"""


def in_bash(folder, *words):
    """What the script makes bash do: options for the last word, and suggestions."""
    program = folder / "seqlab"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m seqlab "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", BASH, "bash", "seqlab", *words]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return ended.stdout.split("\n")[:-1]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_the_script_in_bash(tmp_path):
    (tmp_path / "folder").mkdir()
    assert in_bash(tmp_path, "evaluate", "runs_o") == ["-o dirnames", ""]
    assert in_bash(tmp_path, "data", "check", "te") == ["-o default", ""]
    assert in_bash(tmp_path, "compare", "lm/l") == ["lm/lstm"]
    assert in_bash(tmp_path, "train", "lm/gpt", "training.opt") == ["-o nospace", "training.optimizer="]
    assert in_bash(tmp_path, "train", "lm/gpt", "data.train=fo") == ["-o nospace", "data.train=folder/"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells(shell):
    told = CliRunner().invoke(group, ["completion", shell], standalone_mode=False)
    assert told.exception is None
    assert "_SEQLAB_COMPLETE" in told.output
