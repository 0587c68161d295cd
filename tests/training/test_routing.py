"""Runs record what computes their linear maps, and keep to it."""

import pytest
from small_runs import recipe
from torch import nn

import seqlab
from seqlab.errors import Caution
from seqlab.native import multiply
from seqlab.nn.linear_map import LinearMap
from seqlab.runs import preparation
from seqlab.training.trainer import Silence

need_kernels = pytest.mark.skipif(multiply.library() is None, reason="there is no C++ compiler with OpenMP here")


class Listener(Silence):
    def __init__(self):
        self.sentences = []

    def said(self, message):
        self.sentences.append(message)


def trained(folder, watcher=None, **training):
    return seqlab.train(recipe(folder, "windows", steps=4, **training), out=folder / "run", watcher=watcher)


def routes(run):
    return {part.compiled_from for part in run.objective.modules() if isinstance(part, LinearMap)}


@need_kernels
def test_a_run_by_kernels_says_so_and_keeps_to_it(tmp_path):
    listener = Listener()
    run = trained(tmp_path, listener, products="compiled")
    assert run.recipe.environment["compiled_from"] == 0
    assert "all linear maps are computed by compiled kernels" in listener.sentences
    assert routes(run) == routes(seqlab.load(tmp_path / "run")) == {0}
    assert not [part for part in run.objective.modules() if type(part) is nn.Linear]


@need_kernels
def test_a_measured_choice_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "compiled_from", lambda products, device: 5000)
    listener = Listener()
    run = trained(tmp_path, listener, products="auto")
    assert run.recipe.environment["compiled_from"] == 5000
    assert any(one.startswith("linear maps of at least 5,000 multiplications") for one in listener.sentences)
    assert routes(run) == {5000}
    resumed = seqlab.train(recipe(tmp_path, "windows", steps=4, products="auto"), out=tmp_path / "run", resume=True)
    assert routes(resumed) == {5000}


def test_a_run_by_torch_records_nothing(tmp_path):
    run = trained(tmp_path, products="torch")
    assert "compiled_from" not in run.recipe.environment
    assert routes(run) <= {None}


def test_kernels_that_cannot_be_used_are_not_ignored_silently(tmp_path):
    with pytest.warns(Caution, match="training.products=compiled has no effect"):
        run = trained(tmp_path, products="compiled", precision="bfloat16")
    assert "compiled_from" not in run.recipe.environment


@need_kernels
def test_kernels_and_torch_train_alike(tmp_path):
    by = {}
    for products in ("torch", "compiled"):
        folder = tmp_path / products
        folder.mkdir()
        by[products] = trained(folder, products=products)
    # losses and not weights: Adam makes full steps of gradients that are only rounding, such as those of key biases
    losses = [[entry["loss"] for entry in run.log if "loss" in entry] for run in by.values()]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert len(losses[0]) > 0


def test_a_record_that_was_edited_is_no_reason_to_fail(tmp_path):
    odd = recipe(tmp_path, "windows", steps=2).changed({"environment": {"compiled_from": "often"}})
    assert routes(seqlab.train(odd, out=tmp_path / "run")) <= {0, None}
