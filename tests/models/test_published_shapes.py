"""Recipes of published shapes: as many weights as were published, counted without making any."""

import pytest
import torch

import seqlab
from seqlab import registry
from seqlab.recipe import Recipe
from seqlab.recipe_tree import shipped
from seqlab.training.schedules import InverseSquareRoot


def shape(name):
    """The model of a recipe with the vocabulary that it asks for, on a device that has no memory."""
    recipe = Recipe.load(name)
    with torch.device("meta"):
        return registry.find("model", recipe.model.kind)(recipe.model, recipe.tokenizer.vocab_size)


def weights(model):
    return sum(weight.numel() for weight in model.parameters())


def test_the_base_transformer():
    """65 million are printed in table 3, of a vocabulary of "about 37,000"."""
    width, hidden, vocab = 512, 2048, 37_000
    maps, feed, norm = 4 * (width + 1) * width, (width + 1) * hidden + (hidden + 1) * width, 2 * width
    expected = vocab * width + 6 * (maps + feed + 2 * norm) + 6 * (2 * maps + feed + 3 * norm)
    found = weights(shape("translation/transformer-base"))
    assert found == expected
    assert found == pytest.approx(65e6, rel=0.04)


def test_the_base_transformer_learns_at_the_published_rate():
    training = Recipe.load("translation/transformer-base").training
    schedule = InverseSquareRoot(training.schedule, training.steps)
    for step in (1, 100, 4000, 4001, 100_000):
        published = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert training.learning_rate * schedule(step) == pytest.approx(published, rel=1e-5)


def lstm(below, width):
    return 4 * width * (below + width + 1)


def test_gnmt():
    """278 million are printed in Shazeer et al. 2017, https://arxiv.org/abs/1701.06538: with a first layer of twice
    the width, and a context that all layers of the decoder read."""
    width, vocab = 1024, 32_000
    tables, scores, mix = 3 * vocab * width + vocab, 2 * width**2 + 2 * width, 2 * width**2 + width
    encoder = 2 * lstm(width, width // 2) + 7 * lstm(width, width)
    decoder = lstm(width, width) + lstm(2 * width, width) + 6 * lstm(width, width)
    assert weights(shape("translation/gnmt")) == tables + scores + mix + encoder + decoder
    wider = 2 * lstm(width, width) + lstm(2 * width, width) + 6 * lstm(width, width)
    assert tables + scores + wider + 8 * lstm(2 * width, width) == pytest.approx(278e6, rel=0.02)


def test_the_convolutional_one():
    width, vocab, taps = 512, 40_000, 3
    gated, norm, maps = (taps * width + 1) * 2 * width, 2 * width, 4 * (width + 1) * width
    tables = 3 * vocab * width + vocab
    expected = tables + 20 * (gated + norm) + 20 * (gated + norm + maps + norm) + 2 * norm
    assert weights(shape("translation/convolutional-base")) == expected


PUBLISHED = [name for name in shipped() if name.endswith("-base") or name == "translation/gnmt"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_how_many_weights_the_list_of_recipes_says(name):
    millions = round(weights(shape(name)) / 1e6)
    assert f"{millions} million weights" in Recipe.load(name).about


@pytest.mark.parametrize("name", PUBLISHED)
def test_they_train_where_they_are_made_small(name, tmp_path):
    """All their other settings as published."""
    recipe = Recipe.load(name)
    small = {"data.train": "reverse:4:1000", "model.width": 16, "model.depth": 2, "training.steps": 2}
    if recipe.model.kind == "transformer":
        small |= {"model.hidden_width": 32, "model.heads": 2}
    run = seqlab.train(recipe, {**small, "training.batch_size": 32}, out=tmp_path / "run")
    assert run.evaluate(metrics=["bleu"])["loss"] < 10
