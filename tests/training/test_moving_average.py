"""Averaged weights: the formula, what uses them, and exact resumption."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_runs import READINGS, differences, outcome, recipe, train_until
from tolerance import close
from torch import nn

from seqlab.runs.launch import train
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.moving_average import Average


def test_the_average_is_the_formula():
    module = nn.Linear(3, 2)
    average = Average(module, 0.5)
    expected = module.weight.detach().clone()
    for step in range(1, 30):
        with torch.no_grad():
            module.weight.normal_()
        keep = min(0.5, (1 + step) / (10 + step))
        expected = keep * expected + (1 - keep) * module.weight.detach()
        average.update(step)
    last = module.weight.detach().clone()
    with average.in_use():
        close(module.weight.detach(), expected, steps=2 * 30)
    assert torch.equal(module.weight, last)


@pytest.mark.parametrize("reading", READINGS)
def test_resumed_runs_are_exact(reading: str, tmp_path: Path):
    plan = recipe(tmp_path, reading, average=0.9)
    train(plan, out=tmp_path / "whole")
    train_until(plan, tmp_path / "killed", 23)
    train(plan, out=tmp_path / "killed", resume=True)
    assert differences(outcome(tmp_path / "whole"), outcome(tmp_path / "killed")) == []


def test_training_goes_on_from_the_last_weights_and_people_use_the_average(tmp_path: Path):
    """The same steps with and without an average; only what is evaluated and saved differs."""
    plain = recipe(tmp_path, "windows")
    run = train(plain.changed({"training.average": 0.9}), out=tmp_path / "averaged")
    train(plain, out=tmp_path / "plain")
    averaged, last = Checkpoints(tmp_path / "averaged").newest(), Checkpoints(tmp_path / "plain").newest()
    name = "body.blocks.0.feed.expand.weight"
    assert torch.equal(averaged.optimizer[f"weights.{name}"], last.model[name])
    assert not torch.equal(averaged.model[name], last.model[name])
    best = Checkpoints(tmp_path / "averaged").best()
    assert torch.equal(dict(run.objective.named_parameters())[name], best.model[name])
    assert run.evaluate()["loss"] == best.facts["best"]["value"]
