"""Every key of a recipe is explained, where people look for it."""

import os
import subprocess
import sys
from pathlib import Path

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
    environment = {
        **os.environ,
        "_SEQLAB_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(["seqlab", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "seqlab"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in ended.stdout.splitlines() if line]


def test_shells_complete_commands_recipes_keys_and_values():
    assert "train" in completed("tr")
    assert completed("train", "lm/gp") == ["lm/gpt"]
    assert completed("train", "lm/gpt", "training.opt") == ["training.optimizer="]
    assert completed("train", "lm/gpt", "training.precision=b") == ["training.precision=bfloat16"]
    assert completed("train", "lm/gpt", "model.norm=") == ["model.norm=layer", "model.norm=rms"]
    assert completed("train", "no/such", "model.w") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells(shell):
    told = CliRunner().invoke(group, ["completion", shell], standalone_mode=False)
    assert told.exception is None
    assert "_SEQLAB_COMPLETE" in told.output
