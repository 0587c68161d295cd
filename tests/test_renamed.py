"""Names of earlier versions: recipes and weights are read under today's, and a name that is not known is an error."""

import re

import pytest
import torch

import seqlab
from seqlab import registry, renamed
from seqlab.errors import RecipeError, RunError
from seqlab.models.gpt import GPT
from seqlab.recipe import Recipe, part_settings
from seqlab.recipe_tree import RecipeTree
from seqlab.training.checkpoint import load_optimizer


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


def test_widths_of_hidden_layers_and_sizes_of_kernels():
    old = {
        "lm/gpt": ("model.hidden=48", "hidden_width", 48),
        "lm/mlp": ("model.hidden=7", "hidden_width", 7),
        "lm/conv": ("model.taps=4", "kernel_size", 4),
        "translation/convolutional": ("model.taps=5", "kernel_size", 5),
        "translation/transformer": ("model.hidden=32", "hidden_width", 32),
    }
    for name, (override, key, value) in old.items():
        assert getattr(Recipe.load(name, [override]).model, key) == value
    dense = renamed.recipe({"model": {"kind": "series-dense", "hidden": [3, 2]}})
    assert dense["model"] == {"kind": "series-dense", "hidden_widths": [3, 2]}
    own = {"model": {"kind": "mine", "hidden": 3, "taps": 2}}
    assert renamed.recipe(own) == own, "what classes of other people call their keys is left alone"


NAMES = {
    "body.decoder.blocks.3.look.query.weight": "body.decoder.blocks.3.cross_attend.query.weight",
    "body.decoder.layers.0.norm_look.bias": "body.decoder.layers.0.norm_cross_attend.bias",
    "body.decoder.attention.tired": "body.decoder.attention.coverage",
    "body.look.weight": "body.look.weight",
    "body.decoder.blocks.1.looks.weight": "body.decoder.blocks.1.looks.weight",
}


@pytest.mark.parametrize(("old", "new"), NAMES.items())
def test_attention_to_sources_had_another_name(old, new):
    assert renamed.weight(old) == new
    assert list(renamed.weights({old: torch.zeros(1)})) == [new]


def test_an_optimizer_knows_the_names_that_weights_had():
    module = torch.nn.Module()
    module.attention = torch.nn.Module()
    module.attention.coverage = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    load_optimizer(optimizer, module, {"attention.tired.momentum_buffer": torch.tensor(2.0)})
    assert optimizer.state[module.attention.coverage]["momentum_buffer"] == 2


def test_patterns_of_init_name_weights():
    maps = ["body.decoder.blocks.*.look.query", "body.encoder"]
    init = {"from": "run", "freeze": maps, "adapters": {"maps": maps}}
    found = renamed.recipe({"init": init})["init"]
    assert found["freeze"] == found["adapters"]["maps"] == ["body.decoder.blocks.*.cross_attend.query", "body.encoder"]


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


def test_weights_were_counted_with_the_embedding_of_the_target_first():
    """In translators with two embeddings of one shape, whose states would be taken for each other's."""
    names = ["body.encoder.embedding.weight", "body.encoder.norm.weight", "body.decoder.embedding.weight", "body.x"]
    assert renamed.counted(names) == [names[2], names[0], names[1], names[3]]
    one = ["body.encoder.embedding.weight", "body.encoder.norm.weight", "body.decoder.norm.weight"]
    assert renamed.counted(one) == one


def test_an_optimizer_of_an_earlier_version_finds_its_weights():
    module = torch.nn.Module()
    module.encoder, module.decoder = torch.nn.Module(), torch.nn.Module()
    for side in (module.encoder, module.decoder):
        side.embedding = torch.nn.Embedding(3, 2)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    old = {f"{number}.momentum_buffer": torch.full((3, 2), float(number)) for number in range(2)}
    load_optimizer(optimizer, module, old)
    assert (optimizer.state[module.decoder.embedding.weight]["momentum_buffer"] == 0).all()
    assert (optimizer.state[module.encoder.embedding.weight]["momentum_buffer"] == 1).all()
    for wrong in ("2.momentum_buffer", "encoder.other.weight.momentum_buffer"):
        with pytest.raises(RunError, match="belongs to no weight"):
            load_optimizer(optimizer, module, {wrong: torch.zeros(3, 2)})


JOINED = {"kind": "translator", "decoder": {"kind": "transformer", "width": 8, "heads": 2}}
WRONG = {
    "no encoder": ({**JOINED, "encoder": {"kind": "gpt"}}, "'gpt' cannot read sources"),
    "trees": ({**JOINED, "encoder": {"kind": "tree-encoder"}}, "'tree-encoder' cannot read sources"),
    "no room": ({"kind": "transformer", "width": 8, "position": {"kind": "learned", "concatenate": 8}}, "leave none"),
}


@pytest.mark.parametrize(("model", "message"), WRONG.values(), ids=WRONG)
def test_parts_that_do_not_fit_are_said(model, message):
    settings = part_settings("model", RecipeTree(model))
    with pytest.raises(RecipeError, match=message):
        registry.find("model", model["kind"])(settings, 20)


def test_buckets_that_end_too_soon():
    with pytest.raises(RecipeError, match="farthest"):
        Recipe.load("lm/gpt", ["model.position={kind: buckets, buckets: 32, farthest: 16}"])
