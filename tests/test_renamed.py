"""Names of earlier versions: recipes and weights are read under today's, and a name that is not known is an error."""

import re

import pytest
import torch

import seqlab
from seqlab import renamed
from seqlab.errors import RecipeError, RunError
from seqlab.models.gpt import GPT
from seqlab.recipe import Recipe


@pytest.mark.parametrize(("norm", "first"), [("before", True), ("after", False)])
def test_where_norms_stand(norm, first):
    for recipe in (
        Recipe.load("lm/gpt").changed({"model.norm": norm}),
        Recipe.load("lm/gpt", [f"model.norm={norm}"]),
        Recipe.from_dict({**Recipe.load("lm/gpt").to_dict(), "model": {"kind": "gpt", "norm": norm}}),
    ):
        assert recipe.model.norm == "layer"
        assert recipe.model.norm_first is first


def test_parts_of_a_mixture_too():
    old = {"model": {"kind": "mixture", "parts": [{"kind": "gpt", "norm": "after"}, {"kind": "ngram"}]}}
    assert renamed.recipe(old)["model"]["parts"][0] == {"kind": "gpt", "norm_first": False}
    assert old["model"]["parts"][0] == {"kind": "gpt", "norm": "after"}, "what was given is left alone"


def test_other_words_are_still_wrong():
    with pytest.raises(RecipeError, match="norm"):
        Recipe.load("lm/gpt", ["model.norm=between"])


def test_maps_that_were_saved_as_one():
    model = GPT(GPT.Settings(kind="gpt", width=12, depth=2, heads=3, context=8), 20)
    own = model.state_dict()
    assert own["blocks.0.attend.key.weight"].shape == (12, 12)
    old = {name: weight for name, weight in own.items() if not re.search("query|key|value", name)}
    for layer in range(2):
        for kind in ("weight", "bias"):
            three = [own[f"blocks.{layer}.attend.{part}.{kind}"] for part in ("query", "key", "value")]
            old[f"blocks.{layer}.attend.query_key_value.{kind}"] = torch.cat(three)
    found = renamed.weights(old)
    assert found.keys() == own.keys()
    assert all(torch.equal(found[name], own[name]) for name in own)
    other = GPT(GPT.Settings(kind="gpt", width=12, depth=2, heads=3, context=8), 20)
    other.load_state_dict(found)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("fault", ["more", "missing", "shape"])
def test_names_that_are_not_known_are_an_error(fault):
    from seqlab.build import load_weights

    model = torch.nn.ModuleDict({"body": GPT(GPT.Settings(kind="gpt", width=12, depth=1, heads=3, context=8), 20)})
    weights = dict(model.state_dict())
    name = "body.blocks.0.attend.key.weight"
    if fault == "more":
        weights["body.blocks.0.attend.keys.weight"] = weights[name]
    elif fault == "missing":
        del weights[name]
    else:
        weights[name] = weights[name][:, :3]
    with pytest.raises(RunError, match="attend"):
        load_weights(model, weights, "some run")


def test_the_state_of_an_optimizer_has_the_names_of_the_weights(tmp_path):
    from safetensors import safe_open

    (tmp_path / "text.txt").write_text("a cat and a dog sat on a mat " * 40)
    small = {"model.width": 8, "model.depth": 1, "model.heads": 2, "training.steps": 2, "tokenizer.kind": "byte"}
    recipe = Recipe.load("lm/gpt").changed({"data.train": str(tmp_path / "text.txt"), "data.hold_out": 0.2, **small})
    run = seqlab.train(recipe, out=tmp_path / "run")
    with safe_open(run.folder / "checkpoints/step-00000002/optimizer.safetensors", "pt") as file:
        names = {name.rpartition(".")[0] for name in file.keys()}  # noqa: SIM118
    assert names == {name for name, _ in run.objective.named_parameters()}
