"""Data that change after the training: figures stay honest, and what happened is reported."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch

import seqlab
from seqlab.errors import RunError
from seqlab.recipe import Recipe
from seqlab.runs.run import run_recipe


@pytest.fixture
def cli(request):
    """The command; its fixture has the name of the package, which is used here too."""
    return request.getfixturevalue("seqlab")


WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=6)) for n in range(300)]


def rows(count: int, seed: int = 0) -> list[str]:
    """Texts whose label nobody can know who has not seen it."""
    own = random.Random(seed)
    return [f"{' '.join(own.choices(WORDS, k=6))},{own.choice('ab')}\n" for _ in range(count)]


CLASSIFIER = {
    "tokenizer": {"kind": "word"},
    "model.width": 32,
    "training.steps": 150,
    "training.learning_rate": 0.01,
    "training.batch_size": 32,
    "data.hold_out": 0.2,
}


@pytest.mark.parametrize("by", [None, "number"])
def test_an_inserted_row(tmp_path: Path, cli, by):
    """By their number, rows that the model knows by heart would be held out after it; by content none is."""
    torch.set_num_threads(1)
    data, lines = tmp_path / "a.csv", rows(250)
    data.write_text("text,label\n" + "".join(lines))
    keys = {**CLASSIFIER, "data.train": str(data), "data.hold_out_by": by}
    run = seqlab.train("classification/lstm", keys, out=tmp_path / "run")
    before = run.evaluate()
    assert before["accuracy"] < 0.75
    assert "changed" not in before["signature"]
    data.write_text("text,label\n" + "".join([*rows(1, seed=1), *lines]))
    after = json.loads((said := cli("evaluate", str(tmp_path / "run"), "--json")).out)
    if by is None:
        assert abs(after["accuracy"] - before["accuracy"]) < 0.05  # the new row may be held out
        assert "none of it was trained on" in said.err
        assert "of 251 records are held out now" in said.err
    else:
        assert after["accuracy"] > before["accuracy"] + 0.1
        assert "the data have changed since training, and this run holds out records by number" in said.err
        assert "some that it was trained on may now be held out" in said.err
    assert after["signature"]["changed"] in said.err


@pytest.fixture(scope="module")
def lines() -> list[str]:
    own = random.Random(0)
    return [" ".join(own.choices(WORDS, k=8)) for _ in range(600)]


@pytest.mark.parametrize("by", ["line", "number"])
def test_a_shuffled_text(tmp_path: Path, lines, cli, by):
    text = tmp_path / "a.txt"
    text.write_text("\n".join(lines) + "\n")
    keys = {"data.train": str(text), "tokenizer": "character", "data.hold_out_by": by}
    before = seqlab.train("lm/ngram", keys, out=tmp_path / "run").evaluate()
    random.Random(1).shuffle(shuffled := list(lines))
    text.write_text("\n".join(shuffled) + "\n")
    said = cli("evaluate", str(tmp_path / "run"), "--json")
    after = json.loads(said.out)["bits_per_character"] / before["bits_per_character"]
    if by == "line":
        assert 0.95 < after < 1.05
        assert "the data have changed" in said.err
        assert "may now be held out" not in said.err
    else:
        assert after < 0.85
        assert "may now be held out" in said.err


def test_a_mixture_of_runs_whose_data_changed(tmp_path: Path, lines, cli):
    text = tmp_path / "a.txt"
    text.write_text("\n".join(lines) + "\n")
    for order in (2, 3):
        keys = {"data.train": str(text), "tokenizer": "character", "model.order": order, "data.hold_out_by": "number"}
        seqlab.train("lm/ngram", keys, out=tmp_path / f"order{order}")
    text.write_text("\n".join(["something new", *lines]) + "\n")
    runs = [str(tmp_path / f"order{order}") for order in (2, 3)]
    said = cli("mix", *runs, "--out", str(tmp_path / "mixed"), "--json")
    (caution,) = json.loads(said.out)["notes"]
    assert said.err.count("the data have changed") == 1
    assert caution in said.err
    assert (
        "may now be held out" in cli("evaluate", str(tmp_path / "mixed")).err
    )  # it was trained on what its parts were trained on


def test_what_is_held_out_is_said_and_written_down(tmp_path: Path, lines, cli):
    text = tmp_path / "a.txt"
    text.write_text("\n\n".join(lines) + "\n")
    said = cli("train", "lm/ngram", f"data.train={text}", "tokenizer.kind=character", "--out", str(tmp_path / "run"))
    (told,) = [line.split("held out: ")[1] for line in said.err.splitlines() if "held out: " in line]
    assert "of 600 paragraphs" in told
    assert "spread over the text" in told
    data = run_recipe(tmp_path / "run").data
    assert data.hold_out_by == "paragraph"
    assert data.hold_out_below == 0.05
    assert data.hold_out is None
    shown = cli("evaluate", str(tmp_path / "run"))
    assert f"held out {told}" in " ".join(shown.out.split())
    assert shown.err == ""


def test_resuming_uses_what_was_chosen(tmp_path: Path, lines, cli):
    text = tmp_path / "a.txt"
    text.write_text("\n".join(lines) + "\n")
    keys = {"data.train": str(text), "tokenizer": "character"}
    seqlab.train("lm/ngram", keys, out=tmp_path / "run")
    seqlab.train("lm/ngram", keys, out=tmp_path / "run", resume=True)
    with pytest.raises(RunError, match=r"data.hold_out_by was line, now block"):
        seqlab.train("lm/ngram", {**keys, "data.hold_out_by": "block"}, out=tmp_path / "run", resume=True)
    text.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(RunError, match="have changed"):
        seqlab.train("lm/ngram", keys, out=tmp_path / "run", resume=True)


def test_runs_of_earlier_versions_hold_out_by_number(tmp_path: Path):
    tree = Recipe.load("lm/ngram", ["data.train=a.txt"]).to_dict()
    for key in ("hold_out_by", "hold_out_below"):
        del tree["data"][key]
    (tmp_path / "recipe.yaml").write_text(json.dumps(tree))
    assert run_recipe(tmp_path).data.hold_out_by == "number"
    assert Recipe.load(tmp_path / "recipe.yaml").data.hold_out_by is None  # a new training chooses anew


def test_held_out_data_that_are_in_the_training_data(tmp_path: Path, lines, cli):
    train, valid = tmp_path / "a.txt", tmp_path / "b.txt"
    train.write_text("\n".join(lines) + "\n")
    shutil.copy(train, valid)
    out = str(tmp_path / "run")
    keys = [f"data.train={train}", f"data.valid={valid}", "tokenizer.kind=character"]
    caution = "600 of 600 held-out lines (100 % of the text) are also in the training data"
    assert caution in " ".join(cli("train", "lm/ngram", *keys, "--out", out).err.split())
    assert json.loads(cli("train", "lm/ngram", *keys, "--out", f"{out}-2", "--json").out)["overlap"] == caution
    said = cli("evaluate", out, "--json")
    assert said.err.strip().removeprefix("note: ") == json.loads(said.out)["signature"]["overlap"] == caution
    assert caution in cli("evaluate", out, "--data", str(valid)).err
    valid.write_text("something else altogether\n" * 9)
    assert cli("evaluate", out).err.startswith("note: the held-out data have changed since training")


def test_evaluating_on_the_training_data(tmp_path: Path, lines, cli):
    text, other = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text("\n".join(lines) + "\n")
    other.write_text("\n".join(line[::-1] for line in lines) + "\n")
    seqlab.train("lm/ngram", {"data.train": str(text), "tokenizer": "character"}, out=tmp_path / "run")
    assert "are also in the training data" in cli("evaluate", str(tmp_path / "run"), "--data", str(text)).err
    assert cli("evaluate", str(tmp_path / "run"), "--data", str(other)).err == ""
