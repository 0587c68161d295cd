"""Gradients through time, matrices, gates and the loss around weights, where the answer is known."""

import math

import pytest
import torch
from tolerance import close
from torch import nn

from seqlab.data.batching.batches import Batch
from seqlab.inspection.gradients import gradients_through_time, health, losses_at_the_ends, matrices
from seqlab.inspection.surface import surface
from seqlab.models.forecasters import SeriesRecurrent
from seqlab.models.recurrent_encoder import RecurrentEncoder
from seqlab.models.rnn import RecurrentLanguageModel
from seqlab.nn.summary import ClassHead, summary
from seqlab.objectives.classes import Classes
from seqlab.objectives.feedback import FedBackTags
from seqlab.objectives.forecast import Forecast
from seqlab.objectives.next_token import NextToken
from seqlab.objectives.tags import Tags, TagScores

pytestmark = pytest.mark.usefixtures("double")


def model(cell, width=8, **settings):
    torch.manual_seed(0)
    return RecurrentLanguageModel(
        RecurrentLanguageModel.Settings(kind="recurrent", cell=cell, width=width, **settings), 11
    )


def through_time(net, length):
    batch = Batch(tokens=torch.randint(11, (3, length)), targets=torch.randint(11, (3, length)))
    return gradients_through_time(NextToken(NextToken.Settings(kind="next-token"), net), batch)


@pytest.mark.parametrize("scale", [0.9, 0.99, 1.0, 1.01, 1.1])
def test_gradients_shrink_and_grow_with_the_matrix(scale):
    """A linear recurrence h' = s Q h with Q orthogonal: exactly s^distance."""
    net = model({"kind": "elman", "activation": "relu"})
    cell = net.recurrent.layers[0]
    with torch.no_grad():
        nn.init.zeros_(cell.input.weight)
        cell.input.bias.fill_(5.0)  # relu is never shut
        cell.recurrent.weight.copy_(scale * torch.eye(8))
    norms = through_time(net, 20)[0]["h.0"]
    for distance, size in enumerate(norms):
        assert size == pytest.approx(norms[0] * scale**distance, rel=1e-9)
    (found,) = matrices(net)
    assert found.radius == pytest.approx(scale)
    assert found.singular == pytest.approx([scale] * 8)


def test_nothing_vanishes_in_an_additive_memory():
    """The part h is made of c, so that gradients travel in c alone, at their full size."""
    norms, _ = through_time(model("memory"), 30)
    assert norms["h.0"][1:] == [0.0] * 29
    assert norms["c.0"][29] == pytest.approx(norms["c.0"][1], rel=1e-9)


def test_gates_of_every_layer_are_seen():
    net = model("lstm", depth=2)
    with torch.no_grad():
        for cell in net.recurrent.layers:
            cell.input.bias[8:16] = 20.0
    found = {gate.name: gate for gate in through_time(net, 30)[1]}
    assert set(found) == {"input", "forget", "output"}
    assert found["forget"].open == 1.0
    assert found["forget"].shut == 0.0
    assert 0.3 < found["input"].mean < 0.7


def test_everything_at_once():
    objective = NextToken(NextToken.Settings(kind="next-token"), model("gru", depth=2))
    found = health(objective, Batch(tokens=torch.randint(11, (3, 12)), targets=torch.randint(11, (3, 12))))
    assert set(found.norms) == {"h.0", "h.1"}
    assert all(len(norms) == 12 for norms in found.norms.values())
    assert [one.name for one in found.matrices][:2] == ["layer 1, product 1, block 1", "layer 1, product 1, block 2"]
    assert len(found.matrices) == 6


MASK = torch.arange(6) < torch.tensor([6, 2, 4])[:, None]


def encoder():
    characters = {"kind": "recurrent", "width": 3, "embedding": 3}
    own = {"cell": ["lstm", "gru"], "width": 4, "characters": characters}
    return RecurrentEncoder(RecurrentEncoder.Settings(kind="recurrent-encoder", **own), 11, 9)


def words():
    spellings, spelt = torch.randint(1, 9, (5, 7)), torch.randint(5, (3, 6))
    return {"tokens": torch.randint(11, (3, 6)), "mask": MASK, "spellings": spellings, "spelt": spelt}


def tagger():
    head = TagScores(8, ["A", "B", "C"])
    return Tags(Tags.Settings(kind="tags"), encoder(), head), Batch(**words(), tags=torch.randint(3, (3, 6)))


def fed_back_tagger():
    own, head = FedBackTags.Settings(kind="fed-back-tags"), TagScores(8, ["A", "B", "C"])
    return FedBackTags(own, encoder(), head), Batch(**words(), tags=torch.randint(3, (3, 6)))


def classifier():
    head = ClassHead(summary("last", 8, 2), 0.0, 8, 3)
    return Classes(Classes.Settings(kind="classes"), encoder(), head), Batch(**words(), labels=torch.randint(3, (3,)))


def forecaster():
    settings = SeriesRecurrent.Settings(kind="series-recurrent", cell="lstm", width=4, head="cell")
    body = SeriesRecurrent(settings, inputs=2, outputs=1, horizon=2)
    batch = Batch(inputs=torch.randn(3, 6, 2), targets=torch.randn(3, 6, 2, 1), mask=MASK)
    return Forecast(Forecast.Settings(kind="forecast"), body), batch


def row_of(batch, row):
    """One row without its padding."""
    length = int(MASK[row].sum())
    rows = {name: one[row : row + 1] for name, one in batch.items() if name != "spellings"}
    cut = {name: one[:, :length] if one.dim() > 1 else one for name, one in rows.items()}
    return Batch({**batch, **cut})


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (tagger, {"h.0", "c.0", "h.0 back", "c.0 back", "h.1", "h.1 back"}),
        (fed_back_tagger, {"h.0", "c.0", "h.0 back", "c.0 back", "h.1", "h.1 back"}),
        (classifier, {"h.0", "c.0", "h.0 back", "c.0 back", "h.1", "h.1 back"}),
        (forecaster, {"h.0", "c.0", "head.h.0", "head.c.0"}),
    ],
)
def test_what_reads_sequences_of_different_lengths(build, parts):
    """Nearest first for every row, whatever its length; what reads characters is left out, padding too."""
    torch.manual_seed(0)
    objective, batch = build()
    found = health(objective.eval(), batch)
    assert set(found.norms) == parts
    assert all(len(norms) == 6 and min(norms[:2]) > 0 for name, norms in found.norms.items() if name.endswith("0"))
    each = [health(objective, row_of(batch, row)).norms for row in range(3)]
    for name, norms in found.norms.items():
        for distance, size in enumerate(norms):
            own = [one[name][distance] for one in each if distance < len(one[name])]
            assert size == pytest.approx(sum(own) / len(own), rel=1e-9, abs=1e-12)
    assert len(health(objective, batch, length=2).distances) == 2


def test_the_end_of_a_tagged_sentence_is_its_last_word_or_its_first():
    objective, batch = tagger()
    states = objective.body(batch).states
    scores = objective.head.scores(states).log_softmax(-1)
    for found, ends in zip(losses_at_the_ends(objective, batch), [(5, 1, 3), (0, 0, 0)], strict=True):
        each = [scores[row, end, batch["tags"][row, end]] for row, end in enumerate(ends)]
        close(found, -sum(each))


def test_the_surface_of_a_model():
    """The middle is the loss itself; a little down the gradient it is lower; the weights come back as they were."""
    net = model("lstm")
    objective = NextToken(NextToken.Settings(kind="next-token"), net)
    before = {name: weight.clone() for name, weight in objective.state_dict().items()}
    batch = {"tokens": torch.randint(11, (4, 9)), "targets": torch.randint(11, (4, 9))}
    found = surface(objective, Batch(batch), rate=0.5, clip_norm=0.01, points=5, span=0.2)
    with torch.no_grad():
        loss = objective(Batch(batch))
    assert found.losses[2][2] == pytest.approx(float(loss.sum / loss.count), rel=1e-9)
    assert found.losses[2][3] < found.losses[2][2] < found.losses[2][1]
    slope = (found.losses[2][1] - found.losses[2][3]) / 0.2
    assert found.direction == "recurrent matrices"
    assert slope == pytest.approx(found.gradient_norm, rel=0.1)
    assert found.step == pytest.approx(0.5 * found.gradient_norm)
    assert found.clipped == pytest.approx(0.5 * min(found.gradient_norm, 0.01))
    assert all(torch.equal(before[name], weight) for name, weight in objective.state_dict().items())
    assert all(math.isfinite(value) for row in found.losses for value in row)
