"""Forecasters: the four of the time-series example, with as many weights as Keras gives them, and their equations."""

import numpy as np
import pytest
import torch
from tolerance import close

from seqlab import registry
from seqlab.models.forecasters import SeriesDense, SeriesLinear, SeriesRecurrent, latest
from seqlab.recipe import Recipe
from seqlab.recipe_tree import shipped

pytestmark = pytest.mark.usefixtures("double")

SIZES = {"window": 50, "inputs": 1, "outputs": 1, "horizon": 1}


def built(kind, sizes=SIZES, **settings):
    cls = registry.find("model", kind)
    asked = cls.__init__.__annotations__
    return cls(cls.Settings(kind=kind, **settings), **{name: size for name, size in sizes.items() if name in asked})


@pytest.mark.parametrize(
    ("recipe", "weights"), [("dense", 51), ("rnn", 3), ("deep-rnn", 1282), ("deep-rnn-dense", 1281)]
)
def test_the_four_have_as_many_weights_as_in_keras(recipe, weights):
    loaded = Recipe.load(f"forecasting/{recipe}")
    own = loaded.model.model_dump()
    model = built(own.pop("kind"), **own)
    assert sum(p.numel() for p in model.parameters()) == weights
    assert model(torch.randn(3, 50, 1)).shape == (3, 1, 1, 1)
    assert (loaded.task.window, loaded.task.horizon, loaded.task.normalise) == (50, 1, False)
    training = loaded.training
    assert (training.optimizer.kind, training.learning_rate, training.clip_norm) == ("adam", 0.001, None)
    assert training.steps == 20 * -(-7000 // training.batch_size)


def test_weights_start_as_they_do_in_keras():
    """Glorot's range for the inputs of each layer, orthogonal recurrent matrices, biases at zero."""
    model = built("series-recurrent", cell="elman", width=20, depth=2, start="glorot")
    for cell in model.recurrent.layers:
        limit = (6 / (cell.input_width + 20)) ** 0.5
        assert 0.7 * limit < cell.input.weight.abs().max() <= limit
        close(cell.recurrent.weight @ cell.recurrent.weight.T, torch.eye(20))
        assert cell.input.bias.abs().max() == 0
    assert model.head.bias == 0
    assert built("series-recurrent", cell="irnn").recurrent.layers[0].input.weight.abs().max() < 0.01  # its own start


def test_recipes_are_there():
    names = [name for name in shipped() if name.startswith("forecasting/")]
    assert {"forecasting/lstm", "forecasting/adding"} <= set(names)


def elman(x, cell):
    """h_t = tanh(V x_t + U h_{t−1} + c), one step at a time."""
    V, c, U = (p.detach().double().numpy() for p in (cell.input.weight, cell.input.bias, cell.recurrent.weight))
    h, states = np.zeros(len(U)), []
    for x_t in x:
        h = np.tanh(V @ x_t + U @ h + c)
        states.append(h)
    return np.array(states)


@pytest.mark.parametrize("head", ["cell", "dense"])
def test_deep_nets_are_their_equations(head):
    model = built("series-recurrent", cell="elman", width=20, depth=2, head=head)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    x = torch.randn(1, 50, 1)
    h = x[0].double().numpy()
    for cell in model.recurrent.layers:
        h = elman(h, cell)
    if head == "cell":  # which ends in tanh
        expected = elman(h, model.head.layers[0])
    else:
        expected = h @ model.head.weight.detach().double().numpy().T + model.head.bias.item()
    found = model(x, every=True)
    assert found.shape == (1, 50, 1, 1)
    close(found.flatten(), torch.from_numpy(expected).flatten())
    close(model(x)[:, 0], found[:, -1])


MANY = {"window": 6, "inputs": 3, "outputs": 2, "horizon": 4}
MODELS = {
    "dense": ("series-dense", {"hidden_widths": [5]}),
    "linear": ("series-linear", {}),
    "lstm": ("series-recurrent", {"cell": "lstm", "width": 7, "depth": 2}),
    "transformer": ("series-transformer", {"width": 8, "heads": 2}),
    "changes": ("series-recurrent", {"cell": "gru", "width": 7, "from_last": True}),
    "gru with cells on top": ("series-recurrent", {"cell": "gru", "width": 7, "head": "cell"}),
    "residual": ("series-recurrent", {"cell": "elman", "width": 7, "depth": 3, "connections": "residual"}),
    "skip": ("series-recurrent", {"cell": "elman", "width": 7, "depth": 2, "connections": "skip", "head": "cell"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_and_neighbours_change_nothing(name):
    kind, settings = MODELS[name]
    model = built(kind, MANY, **settings).eval()
    x, lengths = torch.randn(3, 6, 3), torch.tensor([6, 2, 4])
    mask = torch.arange(6) < lengths[:, None]
    together = model(x, mask)
    assert together.shape == (3, 1, 4, 2)
    for row, length in enumerate(lengths):
        alone = model(x[row : row + 1, :length])
        close(alone[0], together[row])
    assert model.every_step == (kind in ("series-recurrent", "series-transformer"))


def test_a_linear_forecaster_begins_as_the_naive_one_and_follows_the_level():
    model = built("series-linear", MANY)
    x = torch.randn(2, 6, 3)
    assert torch.equal(model(x)[:, 0], x[:, -1:, :2].expand(-1, 4, -1))
    torch.nn.init.normal_(model.output.weight)
    close(model(x + 10), model(x) + 10)


def test_the_latest_steps():
    x = torch.arange(1.0, 5).view(1, 4, 1)
    assert latest(x, None, 2).ravel().tolist() == [3, 4]
    assert latest(x, None, 6).ravel().tolist() == [0, 0, 1, 2, 3, 4]
    assert latest(x, torch.tensor([[True, True, False, False]]), 3).ravel().tolist() == [0, 1, 2]


def test_a_dense_head_needs_a_layer_below():
    with pytest.raises(ValueError, match="depth of 0"):
        SeriesRecurrent.Settings(kind="series-recurrent", depth=0)


def test_classes_are_registered():
    for name, cls in {"dense": SeriesDense, "linear": SeriesLinear, "recurrent": SeriesRecurrent}.items():
        assert registry.find("model", f"series-{name}") is cls
