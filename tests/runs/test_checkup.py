"""`train --check` looks before it leaps: it cries out where something is wrong, and not where all is well."""

from functools import wraps

import pytest
import torch
from torch import nn

from seqlab.models.gpt import GPT
from seqlab.recipe import Recipe
from seqlab.runs import checkup

SMALL = ["tokenizer.vocab_size=300", "data.train=english-dates:1000", "training.batch_size=16"]


def first_loss(recipe):
    (found,) = [one for one in checkup.check(recipe) if one.name == "first loss"]
    return found


@pytest.fixture(autouse=True)
def _only_the_first_loss(monkeypatch):
    monkeypatch.setattr(checkup, "BY_HEART", 2)


@pytest.mark.parametrize("name", ["transformer", "gnmt-v2", "convolutional"])
def test_translators_that_train_well_need_no_look(name):
    assert first_loss(Recipe.load(f"translation/{name}", SMALL)).ok


@pytest.fixture
def lm(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {n * n} says {n}\n\n" for n in range(200)), encoding="utf-8")
    return Recipe.load("lm/gpt", [f"data.train={text}", "model.width=32", "tokenizer.kind=character"])


def test_weights_that_are_far_too_large_are_seen(lm, monkeypatch):
    plain = GPT.__init__

    @wraps(plain)
    def loud(self, *arguments, **sizes):
        plain(self, *arguments, **sizes)
        with torch.no_grad():
            self.embedding.weight.mul_(50)

    monkeypatch.setattr(GPT, "__init__", loud)
    found = first_loss(lm)
    assert not found.ok
    assert "too high" in found.note


def test_a_model_that_sees_its_targets_is_seen(lm, monkeypatch):
    """A loss far below ln V before any step: what is to be predicted is in what is read."""
    plain = checkup.evaluate

    def leaking(objective: nn.Module, *arguments):
        totals = plain(objective, *arguments)
        return {**totals, "sum": totals["sum"] / 10}

    monkeypatch.setattr(checkup, "evaluate", leaking)
    found = first_loss(lm)
    assert not found.ok
    assert "too low" in found.note


def test_held_out_data_that_were_trained_on_are_seen(tmp_path):
    for name in ("a.txt", "b.txt"):
        text = "".join(f"paragraph {n} says {n * n}\n\n" for n in range(60))
        (tmp_path / name).write_text(text, encoding="utf-8")
    data = [f"data.train={tmp_path / 'a.txt'}", f"data.valid={tmp_path / 'b.txt'}"]
    found = checkup.check(Recipe.load("lm/ngram", [*data, "tokenizer.kind=character"]))
    (told,) = [one for one in found if one.name == "held out"]
    assert not told.ok
    assert told.value == "100% of it in training"
