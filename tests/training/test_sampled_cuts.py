"""Training on sampled cuts (subword regularisation): drawn for each epoch, and resumed to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import seqlab
from seqlab.data.batching.order import BEGINNING
from seqlab.data.randomness import Key
from seqlab.errors import RecipeError
from seqlab.recipe import Recipe
from seqlab.registry import find

TEXT = "the unhappiest of cats was happier than the happiest dog, and sat on the mat.\n" * 30


@pytest.fixture
def overrides(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return {
        "data.train": str(tmp_path / "text.txt"),
        "tokenizer": {"kind": "unigram", "vocab_size": 310, "sample": 0.2},
        "model.width": 16,
        "model.depth": 1,
        "task.window": 12,
        "training.steps": 6,
        "training.batch_size": 4,
        "training.checkpoint_every": 3,
        "decoding.tokens": 2,
    }


def split_of(overrides):
    recipe = Recipe.load("lm/lstm").changed({**overrides, "task.reading": "windows"})
    task = find("task", recipe.task.kind).prepare(recipe)
    return task, task.split(recipe.data, "train", training=True)


def test_windows_are_cut_anew_in_each_epoch(overrides):
    task, split = split_of(overrides)
    best = split_of({**overrides, "tokenizer": {"kind": "unigram", "vocab_size": 310}})[1]
    _, indices = next(split.order(4, 0).walk(BEGINNING))
    text = [task.tokenizer.decode(row.tolist()) for row in best.batch(indices, Key(0, 0))["targets"]]
    batch, again, alone = (split.batch(numbers, Key(0, 0)) for numbers in (indices, indices, indices[2:3]))
    assert all(np.array_equal(batch[name], again[name]) for name in batch)
    width = alone["targets"].shape[1]
    assert np.array_equal(batch["targets"][2, :width], alone["targets"][0])  # whatever its neighbours
    assert not np.array_equal(batch["targets"], best.batch(indices, Key(0, 0))["targets"])
    for row, whole, mask in zip(batch["targets"], text, batch.get("mask", batch["targets"] >= 0), strict=True):
        assert whole.startswith(task.tokenizer.decode(row[mask].tolist()))
    other = split.batch(indices, Key(0, 1))
    assert other["targets"].shape != batch["targets"].shape or not np.array_equal(other["targets"], batch["targets"])


def test_evaluation_reads_the_best_cut(overrides, tmp_path):
    """And a run that was stopped ends with the weights of one that was not."""
    settings = {**overrides, "task.reading": "windows"}
    whole = seqlab.train("lm/lstm", settings, out=tmp_path / "whole")
    seqlab.train("lm/lstm", settings, out=tmp_path / "cut")
    (tmp_path / "cut" / "checkpoints" / "step-00000006" / "MANIFEST.json").unlink()
    resumed = seqlab.train("lm/lstm", settings, out=tmp_path / "cut", resume=True)
    assert all(
        (a == b).all() for a, b in zip(whole.objective.parameters(), resumed.objective.parameters(), strict=True)
    )
    plain = seqlab.train(
        "lm/lstm", {**settings, "tokenizer": {"kind": "unigram", "vocab_size": 310}}, out=tmp_path / "plain"
    )
    assert plain.evaluate()["tokens"] == whole.evaluate()["tokens"]
    assert plain.tokenizer.fingerprint == whole.tokenizer.fingerprint
    assert plain.evaluate()["loss"] != whole.evaluate()["loss"]


@pytest.mark.parametrize(("recipe", "task"), [("lm/lstm", "streams"), ("lm/ngram", "windows")])
def test_what_cannot_be_sampled_is_refused(recipe, task, overrides, tmp_path):
    for key in ("model.width", "model.depth"):
        overrides.pop(key)
    with pytest.raises(RecipeError, match=r"tokenizer\.sample: .* cannot read sampled text"):
        seqlab.train(recipe, {**overrides, "task.reading": task}, out=tmp_path / "run")
