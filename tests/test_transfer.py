"""A training that begins with the weights of another run."""

import random

import pytest
import torch

import seqlab
from seqlab.errors import RecipeError
from seqlab.recipe import Recipe
from seqlab.training.trainer import Silence

ENCODER = {"kind": "transformer-encoder", "width": 16, "depth": 1, "heads": 2}
LONG = {"training.steps": 6, "training.batch_size": 4, "training.checkpoint_every": 3}


class Notes(Silence):
    def __init__(self):
        self.notes = []

    def said(self, note):
        self.notes.append(note)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    words = ["one", "two", "three", "four", "five", "six"]
    texts = [" ".join(rng.choices(words, k=rng.randint(2, 6))) for _ in range(60)]
    rows = [f"{text}\t{'even' if len(text) % 2 else 'odd'}" for text in texts]
    (folder / "classes.tsv").write_text("text\tlabel\n" + "\n".join(rows))
    others = [f"{text}\t{text.split()[0]}" for text in texts]
    (folder / "others.tsv").write_text("text\tlabel\n" + "\n".join(others))
    pairs = [f"{text}\t{' '.join(reversed(text.split()))}" for text in texts]
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "\n".join(pairs))
    return folder


def classifier(data, file="classes.tsv", **more):
    recipe = {
        "task": "classification",
        "data": {"train": str(data / file), "hold_out": 0.2},
        "tokenizer": "character",
        "model": ENCODER,
        "objective": "classes",
    }
    return Recipe.from_dict({**recipe, **more}).changed(LONG)


@pytest.fixture(scope="module")
def first(data, tmp_path_factory):
    return seqlab.train(classifier(data), out=tmp_path_factory.mktemp("runs") / "first")


def weights(objective):
    return {name: weight.detach().clone() for name, weight in objective.state_dict().items()}


def test_the_body_of_a_classifier_for_other_classes(data, first, tmp_path):
    notes = Notes()
    recipe = classifier(data, "others.tsv").changed(
        {"init": {"from": str(first.folder)}, "training.learning_rate": 1e-9}
    )
    run = seqlab.train(recipe, out=tmp_path / "run", watcher=notes)
    before, after = weights(first.objective), weights(run.objective)
    for name, weight in after.items():
        if name.startswith("body."):
            torch.testing.assert_close(weight, before[name], atol=1e-6, rtol=0)
    (said,) = [note for note in notes.notes if "loaded" in note]
    body = sum(name.startswith("body.") for name in after)
    assert said.startswith(f"{first.folder}: {body} tensors are loaded; new: head.")
    assert "left over: head." in said
    assert run.tokenizer.fingerprint == first.tokenizer.fingerprint
    assert [init.run for init in seqlab.load(run.folder).recipe.init] == [str(first.folder)]


def test_all_of_it_and_the_same_tokenizer_although_the_recipe_names_another(data, first, tmp_path):
    recipe = classifier(data, tokenizer="byte", init={"from": str(first.folder), "load": "all"})
    run = seqlab.train(recipe.changed({"training.learning_rate": 1e-9}), out=tmp_path / "run")
    assert run.recipe.tokenizer.kind == "character"
    assert run.evaluate()["loss"] == pytest.approx(first.evaluate()["loss"], rel=1e-5)


@pytest.mark.parametrize("freeze", [["body"], ["body.embedding", "body.blocks.*"]])
def test_frozen_weights_stay_also_after_a_kill(data, first, tmp_path, freeze):
    recipe = classifier(data, "others.tsv", init={"from": str(first.folder), "freeze": freeze})
    run = seqlab.train(recipe, out=tmp_path / "run")
    before, after = weights(first.objective), weights(run.objective)
    frozen = [name for name in after if name.startswith(tuple(one.removesuffix("*") for one in freeze))]
    assert frozen
    assert all(torch.equal(after[name], before[name]) for name in frozen)
    short = recipe.changed({"training.steps": 3, "training.schedule": "constant"})
    whole = recipe.changed({"training.schedule": "constant"})
    seqlab.train(short, out=tmp_path / "short")
    resumed = seqlab.train(whole, out=tmp_path / "short", resume=True)
    straight = seqlab.train(whole, out=tmp_path / "straight")
    assert all(
        torch.equal(a, b) for a, b in zip(resumed.objective.parameters(), straight.objective.parameters(), strict=True)
    )


def test_a_classifier_becomes_the_encoder_of_a_translator(data, first, tmp_path):
    decoder = {"kind": "transformer", "width": 16, "depth": 1, "heads": 2}
    recipe = {
        "task": "translation",
        "data": {"train": str(data / "pairs.tsv"), "hold_out": 0.2},
        "tokenizer": "character",
        "model": {"kind": "translator", "encoder": ENCODER, "decoder": decoder},
        "objective": "next-token",
        "init": {"from": str(first.folder), "load": {"body": "body.encoder"}, "freeze": ["body.encoder"]},
    }
    run = seqlab.train(Recipe.from_dict(recipe).changed(LONG), out=tmp_path / "run")
    before, after = weights(first.objective), weights(run.objective)
    for name, weight in before.items():
        if name.startswith("body."):
            assert torch.equal(after[f"body.encoder.{name.removeprefix('body.')}"], weight)


WRONG = {
    "no run": ({"from": "nowhere"}, "no run folder 'nowhere'"),
    "nothing": ({"load": "tail"}, "has no weights that 'tail' names"),
    "another depth": ({"model": {"depth": 0}}, r"the model has no 'body.blocks.0"),
    "another width": ({"model": {"width": 8}}, r"in the model, and \("),
    "another head": ({"load": "all"}, r"'head\..*is \(|has no 'head"),
    "frozen names": ({"freeze": ["body.blocs"]}, "'body.blocs' is no weight"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_said_before_anything_is_written(data, first, tmp_path, changes, message):
    changes = dict(changes)
    model = {**ENCODER, **changes.pop("model", {})}
    recipe = classifier(data, "others.tsv", model=model, init={"from": str(first.folder), **changes})
    with pytest.raises(seqlab.SeqlabError, match=message):
        seqlab.train(recipe, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_key_that_init_does_not_have():
    with pytest.raises(RecipeError, match=r"init"):
        Recipe.load("lm/gpt", ["init.from=x", "init.lod=body"])
