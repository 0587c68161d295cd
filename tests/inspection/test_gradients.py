"""Gradients through time, matrices, gates and the loss around weights, where the answer is known."""

import math

import pytest
import torch
from torch import nn

from seqlab.inspection.gradients import gates, gradients_through_time, health, matrices
from seqlab.inspection.surface import surface
from seqlab.models.rnn import RecurrentLanguageModel
from seqlab.objectives.next_token import NextToken


def model(cell, width=8, **settings):
    torch.manual_seed(0)
    return RecurrentLanguageModel(
        RecurrentLanguageModel.Settings(kind="recurrent", cell=cell, width=width, **settings), 11
    )


def test_powers():
    assert pytest.approx(20959.16, abs=0.01) == 1.01**1000
    assert pytest.approx(4.317e-5, rel=1e-3) == 0.99**1000


@pytest.mark.parametrize("scale", [0.9, 1.0, 1.1])
def test_gradients_shrink_and_grow_with_the_matrix(scale):
    """A linear recurrence h' = s Q h with Q orthogonal: exactly s^distance."""
    net = model({"kind": "elman", "activation": "relu"})
    cell = net.recurrent.layers[0]
    with torch.no_grad():
        nn.init.zeros_(cell.input.weight)
        cell.input.bias.fill_(5.0)  # relu is never shut
        cell.recurrent.weight.copy_(scale * torch.eye(8))
    norms = gradients_through_time(net, torch.randint(11, (3, 20)), torch.randint(11, (3,)))["h.0"]
    for distance, size in enumerate(norms):
        assert size == pytest.approx(norms[0] * scale**distance, rel=1e-4)
    (found,) = matrices(net)
    assert found.radius == pytest.approx(scale)
    assert found.singular == pytest.approx([scale] * 8)


def test_nothing_vanishes_in_an_additive_memory():
    """The part h is made of c, so that gradients travel in c alone, at their full size."""
    norms = gradients_through_time(model("memory"), torch.randint(11, (3, 30)), torch.randint(11, (3,)))
    assert norms["h.0"][1:] == [0.0] * 29
    assert norms["c.0"][29] == pytest.approx(norms["c.0"][1], rel=1e-4)


def test_gates_of_every_layer_are_seen():
    net = model("lstm", depth=2)
    with torch.no_grad():
        for cell in net.recurrent.layers:
            cell.input.bias[8:16] = 20.0
    found = {gate.name: gate for gate in gates(net, torch.randint(11, (3, 30)))}
    assert set(found) == {"input", "forget", "output"}
    assert found["forget"].open == 1.0
    assert found["forget"].shut == 0.0
    assert 0.3 < found["input"].mean < 0.7


def test_everything_at_once():
    found = health(model("gru", depth=2), torch.randint(11, (3, 12)), torch.randint(11, (3,)))
    assert set(found.norms) == {"h.0", "h.1"}
    assert all(len(norms) == 12 for norms in found.norms.values())
    assert [one.name for one in found.matrices][:2] == ["layer 1, product 1, block 1", "layer 1, product 1, block 2"]
    assert len(found.matrices) == 6


def test_the_surface_of_a_model():
    """The middle is the loss itself; a little down the gradient it is lower; the weights come back as they were."""
    net = model("lstm")
    objective = NextToken(NextToken.Settings(kind="next-token"), net)
    before = {name: weight.clone() for name, weight in objective.state_dict().items()}
    batch = {"tokens": torch.randint(11, (4, 9)), "targets": torch.randint(11, (4, 9))}
    from seqlab.data.batches import Batch

    found = surface(objective, Batch(batch), rate=0.5, clip_norm=0.01, points=5, span=0.2)
    loss = objective(Batch(batch))
    assert found.losses[2][2] == pytest.approx(float(loss.sum / loss.count), rel=1e-5)
    assert found.losses[2][3] < found.losses[2][2] < found.losses[2][1]
    slope = (found.losses[2][1] - found.losses[2][3]) / 0.2
    assert found.direction == "recurrent matrices"
    assert slope == pytest.approx(found.gradient_norm, rel=0.1)
    assert found.step == pytest.approx(0.5 * found.gradient_norm)
    assert found.clipped == pytest.approx(0.5 * min(found.gradient_norm, 0.01))
    assert all(torch.equal(before[name], weight) for name, weight in objective.state_dict().items())
    assert all(math.isfinite(value) for row in found.losses for value in row)
