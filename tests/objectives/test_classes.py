"""The objectives of classes against closed forms."""

import math

import pytest
import torch
from tolerance import rounding
from torch import nn

from seqlab.data.batching.batches import Batch
from seqlab.models.encoder import Encoded, Encoder
from seqlab.nn.summary import ClassHead, summary
from seqlab.objectives.classes import Classes, NodeClasses
from seqlab.recipe import PartSettings


class AsGiven(Encoder):
    """States are what the batch says."""

    width = 3

    def forward(self, batch):
        return Encoded(batch["states"], batch["mask"])


def given(logits, labels, mask=None):
    """A batch whose logits are these: (B, T, C)."""
    states = torch.tensor(logits)
    return Batch(states=states, mask=torch.ones(states.shape[:2]).bool() if mask is None else mask, labels=labels)


def same(linear):
    with torch.no_grad():
        linear.weight.copy_(torch.eye(3))
        linear.bias.zero_()
    return linear


@pytest.fixture
def classes():
    head = ClassHead(summary("mean", 3), 0.0, 3, 3)
    same(head.linear)
    return Classes(PartSettings(kind="classes"), AsGiven(), head).eval()


@pytest.fixture
def nodes():
    head = nn.Sequential(nn.Identity(), same(nn.Linear(3, 3)))
    return NodeClasses(PartSettings(kind="node-classes"), AsGiven(), head).eval()


def test_one_label(classes):
    logits = [[[0.0, 0.0, 0.0]], [[5.0, 0.0, 0.0]], [[0.0, 2.0, 1.0]]]
    loss = classes(given(logits, torch.tensor([0, 0, 2])))
    expected = math.log(3) + math.log(1 + 2 * math.exp(-5)) + math.log(1 + math.exp(1) + math.exp(-1))
    assert loss.sum.item() == pytest.approx(expected, rel=rounding(9))
    parts = {name: int(value) for name, value in loss.parts.items()}
    assert int(loss.count) == 3
    assert parts["right"] == 2
    assert [parts[f"given.{n}"] for n in range(3)] == [2, 0, 1]
    assert [parts[f"found.{n}"] for n in range(3)] == [2, 1, 0]
    assert [parts[f"hit.{n}"] for n in range(3)] == [2, 0, 0]


def test_several_labels(classes):
    labels = torch.tensor([[1, 0, 1], [0, 0, 0]]).bool()
    loss = classes(given([[[2.0, -1.0, -3.0]], [[-1.0, -1.0, -1.0]]], labels))
    wrong = [-2.0, -1.0, 3.0, -1.0, -1.0, -1.0]  # the logit against what is right
    assert loss.sum.item() == pytest.approx(sum(math.log1p(math.exp(z)) for z in wrong), rel=rounding(9))
    parts = {name: int(value) for name, value in loss.parts.items()}
    assert parts["right"] == 1
    assert [parts[f"given.{n}"] for n in range(3)] == [1, 0, 1]
    assert [parts[f"found.{n}"] for n in range(3)] == [1, 0, 0]


def test_nodes_are_summed_and_roots_are_the_last_ones(nodes):
    logits = [[[3.0, 0, 0], [0, 0, 3.0], [9.0, 9.0, 9.0]], [[0, 3.0, 0], [3.0, 0, 0], [0.9, 1.0, 0.8]]]
    mask = torch.tensor([[True, True, False], [True, True, True]])
    loss = nodes(given(logits, torch.tensor([[0, 2, 0], [1, 1, 0]]), mask))
    sure = math.log(1 + 2 * math.exp(-3))
    last = math.log(sum(map(math.exp, [0.9, 1.0, 0.8]))) - 0.9
    assert loss.sum.item() == pytest.approx(3 * sure + (sure + 3) + last, rel=rounding(15))
    assert int(loss.count) == 5
    assert {name: int(value) for name, value in loss.parts.items()} == {
        "roots": 2,
        "right": 1,
        "nodes_right": 3,
        "polar": 2,
        "polar_right": 2,  # 0 is likelier than 2, though neither is the likeliest
    }


def test_neutral_roots_are_left_out_of_two_sides(nodes):
    loss = nodes(given([[[3.0, 0, 0]], [[0.0, 0, 3.0]]], torch.tensor([[1], [0]])))
    assert (int(loss.parts["polar"]), int(loss.parts["polar_right"])) == (1, 0)


def test_nothing_is_counted_in_training(classes, nodes):
    classes.train()
    nodes.train()
    assert not classes(given([[[0.0, 0.0, 0.0]]], torch.tensor([0]))).parts
    assert not nodes(given([[[0.0, 0.0, 0.0]]], torch.tensor([[0]]))).parts
