"""A training that begins with the weights of another run."""

import random
import shutil
import warnings

import numpy as np
import pytest
import torch
from tolerance import SMALL_NET, rounding
from torch import nn

import seqlab
from seqlab.build import build
from seqlab.data.randomness import Key
from seqlab.errors import Caution, RecipeError
from seqlab.recipe import Recipe
from seqlab.runs.checkup import check
from seqlab.runs.transfer import differences
from seqlab.training.trainer import Silence

ENCODER = {"kind": "transformer-encoder", "width": 16, "depth": 1, "heads": 2}
TRANSLATION = {
    "task": "translation",
    "data": {"train": "pairs.tsv"},
    "tokenizer": "character",
    "objective": "next-token",
}
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
    assert said.startswith(f"{first.folder}: {body} tensors loaded; new: head.")
    assert "left over: head." in said
    assert run.tokenizer.fingerprint == first.tokenizer.fingerprint
    assert seqlab.load(run.folder).recipe.init.run == str(first.folder)


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
    "nothing": ({"load": "tail"}, "has no weights that match 'tail'"),
    "another depth": ({"model": {"depth": 0}}, r"the model has no 'body.blocks.0"),
    "another width": ({"model": {"width": 8}}, r"in the model, but \("),
    "another head": ({"load": "all"}, r"'head\..*has the shape \(|has no 'head"),
    "frozen names": ({"freeze": ["body.blocs"]}, "no weight matches 'body.blocs'"),
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


# ---------------------------------------------------------------------- the model of another run


def test_the_model_of_another_run_needs_no_settings_and_later_no_run(data, first, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(first.folder, source)
    recipe = classifier(data, "others.tsv", model={"kind": "run"}, init={"from": str(source)})
    run = seqlab.train(recipe, out=tmp_path / "run")
    assert run.recipe.model == first.recipe.model
    short = recipe.changed({"training.steps": 3, "training.schedule": "constant"})
    seqlab.train(short, out=tmp_path / "short")
    shutil.rmtree(source)
    more = recipe.changed({"training.schedule": "constant"})
    seqlab.train(more, out=tmp_path / "short", resume=True)
    assert seqlab.load(tmp_path / "short", checkpoint="last").step == 6
    assert seqlab.load(tmp_path / "run").evaluate() == run.evaluate()


def test_a_model_of_no_run_is_an_error(data, tmp_path):
    with pytest.raises(RecipeError, match="does not name a run"):
        seqlab.train(classifier(data, model={"kind": "run"}), out=tmp_path / "run")


# ---------------------------------------------------------------------- adapters


def adapted(data, first, on, **more):
    return classifier(data, "others.tsv", init={"from": str(first.folder), "adapters": {"rank": 2, "maps": on}, **more})


@pytest.mark.parametrize("on", [["*.query", "*.value"], ["body.blocks.0.attend.key", "*.expand", "*.attend.output"]])
def test_adapters_are_trained_and_the_body_is_not(data, first, tmp_path, on):
    notes = Notes()
    run = seqlab.train(adapted(data, first, on), out=tmp_path / "run", watcher=notes)
    before, after = weights(first.objective), weights(run.objective)
    for name, weight in before.items():
        if name.startswith("body."):
            assert torch.equal(after[name], weight), name
    new = [name for name in after if ".adapter." in name]
    assert {name.split(".adapter.")[0].split(".")[-1] for name in new} == {one.split(".")[-1] for one in on}
    assert all(after[name].abs().sum() > 0 for name in new if name.endswith("up"))
    assert any("new: body.blocks.0.attend" in note or "new: body.blocks.0.feed" in note for note in notes.notes)
    assert seqlab.load(run.folder).evaluate() == run.evaluate()


def test_adapters_change_nothing_at_first_and_are_w_plus_b_a(data, first):
    """W x + α / r B (A x), against the product of the matrices, in double precision."""
    task = first.task
    recipe = classifier(data, init={"from": str(first.folder), "adapters": {"rank": 2, "alpha": 3.0, "maps": ["*"]}})
    objective = build(recipe, task).double()
    plain = build(classifier(data), task).double()
    shared = objective.load_state_dict(plain.state_dict(), strict=False)
    assert all(".adapter" in name for name in shared.missing_keys)
    batch = first.held_out().batch(np.arange(5), Key(0, 0))
    torch.testing.assert_close(objective(batch).sum, plain(batch).sum, rtol=1e-12, atol=0)
    state = objective.state_dict()
    for name, weight in state.items():
        if name.endswith("adapter.up"):
            nn.init.normal_(weight)
    objective.load_state_dict(state)
    merged = plain.state_dict()
    for name in merged:
        owner = name.removesuffix(".weight")
        if f"{owner}.adapter.up" in state:
            merged[name] = merged[name] + 3 / 2 * state[f"{owner}.adapter.up"] @ state[f"{owner}.adapter.down"]
    plain.load_state_dict(merged)
    torch.testing.assert_close(objective(batch).sum, plain(batch).sum, rtol=1e-10, atol=0)


@pytest.fixture(scope="module")
def gpts(tmp_path_factory):
    """A language model, and one that begins with it and has adapters."""
    folder = tmp_path_factory.mktemp("gpts")
    (folder / "text.txt").write_text("to be or not to be, that is the question\n" * 40)
    recipe = {
        "task": {"kind": "language-modelling", "window": 16},
        "data": {"train": str(folder / "text.txt")},
        "tokenizer": "character",
        "model": {"kind": "gpt", "width": 16, "depth": 2, "heads": 2, "context": 32},
        "objective": "next-token",
        "training": {"steps": 30, "batch_size": 4, "learning_rate": 0.01},
    }
    base = seqlab.train(Recipe.from_dict(recipe), out=folder / "base")
    init = {"from": str(base.folder), "adapters": {"maps": ["*.query", "*.value", "*.expand"]}}
    return base, seqlab.train(Recipe.from_dict({**recipe, "init": init}), out=folder / "run")


def test_weights_that_compute_something_else_here_are_named(data, first, tmp_path):
    heads = 2 * first.recipe.model.heads
    changes = {"init": {"from": str(first.folder)}, "model.heads": heads, "model.dropout": 0.1}
    message = f"compute something else here: model.heads is {heads} instead of {first.recipe.model.heads}$"
    with pytest.warns(Caution, match=message):
        seqlab.train(classifier(data).changed(changes), out=tmp_path / "run")


def started(data, first, out, **changes):
    """Train from `first` and return the cautions about what its weights compute."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        init = {"from": str(first.folder), **changes.pop("init", {})}
        seqlab.train(classifier(data).changed({"init": init, **changes}), out=out)
    return [str(one.message) for one in heard if "compute something else" in str(one.message)]


def test_parts_by_another_name_are_compared_too(data, first, tmp_path):
    heads = {"model.heads": 2 * first.recipe.model.heads}
    assert started(data, first, tmp_path / "body", init={"load": {"body": "body"}}, **heads)
    encoder = {**ENCODER, "heads": heads["model.heads"]}
    decoder = {"kind": "transformer", "width": 16, "depth": 1, "heads": 2}
    model = {"kind": "translator", "encoder": encoder, "decoder": decoder}
    (found,) = differences(
        Recipe.from_dict({**TRANSLATION, "model": model}).model, first.recipe.model, "body.encoder", "body"
    )
    assert found == f"model.encoder.heads is {heads['model.heads']} instead of {first.recipe.model.heads}"
    flat = Recipe.from_dict({**TRANSLATION, "model": {**decoder, "heads": 4}}).model
    assert "model.encoder.heads is 4 instead of 2" in differences(flat, first.recipe.model, "body.encoder", "body")


def test_what_computes_the_same_is_not_named(data, first, tmp_path):
    whole = {"model.hidden_width": 64, "model.key_heads": first.recipe.model.heads, "model.attention_dropout": 0.1}
    assert started(data, first, tmp_path / "whole", **whole) == []
    part = {"init": {"load": "body.embedding"}, "model.heads": 4}
    assert started(data, first, tmp_path / "part", **part) == []


def test_a_language_model_with_adapters_writes_with_merged_maps(gpts):
    base, run = gpts
    assert run.evaluate()["loss"] < base.evaluate()["loss"]
    state = torch.get_rng_state()
    twin = run.decoder
    assert torch.equal(torch.get_rng_state(), state)  # nothing random is drawn to make it
    assert not any(".adapter" in name for name, _ in twin.named_modules())
    tokens = torch.tensor([run.tokenizer.encode("to be or not").ids])
    with torch.no_grad():
        plain, packed = (model.logits(model(tokens, model.start(rows=1)).states) for model in (run.model, twin))
    torch.testing.assert_close(packed, plain, atol=rounding(SMALL_NET, float(plain.abs().max())), rtol=0)
    assert run.generate("to be", tokens=8, temperature=0)


def test_adapters_on_nothing(data, first, tmp_path):
    with pytest.raises(RecipeError, match=r"the body has no linear map '\*.querry'"):
        seqlab.train(adapted(data, first, ["*.querry"]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_with_adapters_is_a_run_like_any_other(data, first, tmp_path):
    """Where it is the source of another run, or a part of a mixture, its adapters are merged into its maps."""
    run = seqlab.train(adapted(data, first, ["*.query", "*.expand"]), out=tmp_path / "run")
    recipe = classifier(data, "others.tsv", model={"kind": "run"}, init={"from": str(run.folder), "load": "all"})
    again = seqlab.train(recipe.changed({"training.learning_rate": 1e-9}), out=tmp_path / "again")
    assert again.recipe.init.adapters is None
    assert again.evaluate()["loss"] == pytest.approx(run.evaluate()["loss"], rel=1e-5)
    more = seqlab.train(
        adapted(data, run, ["*.key"], load="all").changed({"training.learning_rate": 1e-9}), out=tmp_path / "more"
    )
    assert more.evaluate()["loss"] == pytest.approx(run.evaluate()["loss"], rel=1e-5)


def test_a_mixture_of_a_run_with_adapters_and_one_without(gpts, tmp_path):
    base, run = gpts
    mixed = seqlab.mix([base.folder, run.folder], out=tmp_path / "mixed", weights=[1e-9, 1])
    assert mixed.evaluate()["loss"] == pytest.approx(run.evaluate()["loss"], rel=1e-4)


# ---------------------------------------------------------------------- resuming


def test_a_resumed_run_must_have_the_same_settings_although_its_model_is_of_a_run(data, first, tmp_path):
    init = {"from": str(first.folder), "adapters": {"rank": 2}}
    recipe = classifier(data, "others.tsv", model={"kind": "run"}, init=init)
    seqlab.train(recipe, out=tmp_path / "run")
    seqlab.train(recipe, out=tmp_path / "run", resume=True)  # nothing is left to train
    other = tmp_path / "other"
    shutil.copytree(first.folder, other)
    for changes in (
        {"init.adapters.rank": 4},
        {"init.from": str(other)},
        {"model": {"kind": "run", "from": str(other)}},
        {"init.freeze": ["head"]},
    ):
        with pytest.raises(seqlab.SeqlabError, match="the run has different settings"):
            seqlab.train(recipe.changed(changes), out=tmp_path / "run", resume=True)


def test_all_frozen_and_models_of_runs_in_wrong_places(data, first, tmp_path):
    with pytest.raises(RecipeError, match="all weights are frozen"):
        seqlab.train(
            classifier(data, init={"from": str(first.folder), "freeze": ["body", "head"]}), out=tmp_path / "run"
        )
    mixture = {"kind": "mixture", "parts": [{"kind": "run", "from": str(first.folder)}]}
    with pytest.raises(RecipeError, match="cannot be part of another model"):
        seqlab.train(classifier(data, model=mixture), out=tmp_path / "run")


def test_what_the_first_run_was_trained_on_is_compared_too(data, tmp_path):
    """The third run never reads these texts, but its weights come from one that did."""
    shutil.copy(data / "classes.tsv", tmp_path / "old.tsv")
    rows = [f"{' '.join(f'{letter}{n}' for letter in 'abcdefgh')}\t{'even' if n % 2 else 'odd'}" for n in range(60)]
    (tmp_path / "new.tsv").write_text("text\tlabel\n" + "\n".join(rows))
    seqlab.train(classifier(tmp_path, "old.tsv").changed({"training.steps": 1}), out=tmp_path / "1")
    new = classifier(tmp_path, "new.tsv").changed({"training.steps": 1})
    seqlab.train(new.changed({"init": {"from": str(tmp_path / "1")}}), out=tmp_path / "2")
    third = seqlab.train(new.changed({"init": {"from": str(tmp_path / "2")}}), out=tmp_path / "3")
    assert "notes" not in third.evaluate()
    said = f"are also in the training data of {tmp_path / '1'}"
    with pytest.warns(Caution, match=said):
        assert said in third.evaluate(str(tmp_path / "old.tsv"))["signature"]["overlap"]
    notes = Notes()
    held_out = {"init": {"from": str(tmp_path / "1")}, "data.valid": str(tmp_path / "old.tsv")}
    fourth = seqlab.train(new.changed(held_out), out=tmp_path / "4", watcher=notes)
    assert any(note.endswith(said) for note in notes.notes)
    with pytest.warns(Caution, match=said):
        fourth.evaluate()
    (line,) = [one for one in check(new.changed(held_out)) if one.name == "held out"]
    assert (line.value, line.ok) == ("some of it in earlier training", False)
    (tmp_path / "old.tsv").unlink()
    (tmp_path / "other.tsv").write_text("text\tlabel\nz y x\todd\n")
    with pytest.warns(Caution, match=f"not compared with the training data of {tmp_path / '1'}: no file or folder"):
        third.evaluate(str(tmp_path / "other.tsv"))
