"""Optimizers: each lowers a quadratic, follows its formula, and its state survives a checkpoint to the bit."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from tolerance import EPSILON, close
from torch import nn

from seqlab import registry
from seqlab.data.batching.batches import Batch
from seqlab.data.batching.order import Cursor, Sequential
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import Recipe, TrainingSettings
from seqlab.training.checkpoint import load_optimizer, optimizer_tensors
from seqlab.training.optimizers import Together
from seqlab.training.trainer import Trainer

NAMES = registry.names("optimizer")


class Body(nn.Module):
    """Weights of every kind: an embedding, matrices, a bias and a norm."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3, bias=False)
        self.norm = nn.LayerNorm(6)

    def loss(self):
        """A quadratic with its least value 0 at a point of its own for each weight."""
        return sum(((p - (0.5 + number)) ** 2).sum() for number, p in enumerate(self.parameters()))


def body(seed=0):
    torch.manual_seed(seed)
    return Body()


def made(name, module, rate, **settings):
    optimizer = registry.find("optimizer", name)
    return optimizer().build(module, rate, optimizer.Settings(kind=name, **settings))


def steps(module, optimizer, count):
    for _ in range(count):
        optimizer.zero_grad()
        module.loss().backward()
        optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_lowers_a_quadratic(name):
    module = body()
    rate = 0.02 if name in ("sgd", "momentum", "nesterov") else 0.5
    optimizer = made(name, module, rate, weight_decay=0.0)
    before = module.loss().item()
    for step in range(300):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - step / 300)
        steps(module, optimizer, 1)
    assert module.loss().item() < 0.001 * before


def formula(name, w, g, memory, step, rate, decay):
    """One step in numpy, as the docstrings and papers have it."""
    if name != "adamw":
        g = g + decay * w
    if name == "sgd":
        return w - rate * g
    if name in ("momentum", "nesterov"):
        memory["m"] = 0.9 * memory.get("m", 0) + g
        return w - rate * (g + 0.9 * memory["m"] if name == "nesterov" else memory["m"])
    if name == "rmsprop":
        memory["v"] = 0.99 * memory.get("v", 0) + 0.01 * g**2
        return w - rate * g / (np.sqrt(memory["v"]) + 1e-8)
    one, two = (0.9, 0.99) if name == "adamw" else (0.9, 0.999)
    memory["m"] = one * memory.get("m", 0) + (1 - one) * g
    memory["v"] = two * memory.get("v", 0) + (1 - two) * g**2
    if name == "adamw":
        w = w * (1 - rate * decay)
    return w - rate * (memory["m"] / (1 - one**step)) / (np.sqrt(memory["v"] / (1 - two**step)) + 1e-8)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", [name for name in NAMES if name != "muon"])
def test_follows_its_formula(name):
    """Weight decay included, which touches matrices and embeddings and leaves biases and norms alone."""
    module, rate, decay = body(), 0.03, 0.2
    optimizer = made(name, module, rate, weight_decay=decay)
    weights = [p.detach().double().numpy().copy() for p in module.parameters()]
    memories = [{} for _ in weights]
    for step in range(1, 8):
        gradients = [2 * (w - (0.5 + number)) for number, w in enumerate(weights)]
        weights = [
            formula(name, w, g, memory, step, rate, decay if w.ndim > 1 else 0.0)
            for w, g, memory in zip(weights, gradients, memories, strict=True)
        ]
        steps(module, optimizer, 1)
        for (label, p), w in zip(module.named_parameters(), weights, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), w, atol=1e-9, err_msg=f"{label}, step {step}")


def test_muon_is_torchs_for_hidden_matrices_and_adamw_for_the_rest():
    ours, theirs = body(), body()
    optimizer = made("muon", ours, 0.03, weight_decay=0.1)
    hidden = [theirs.first.weight, theirs.second.weight]
    rest = [p for p in theirs.parameters() if all(p is not one for one in hidden)]
    references = [
        torch.optim.Muon(hidden, 0.03, 0.1, 0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, 0.03, (0.9, 0.99), weight_decay=0.0),
    ]
    for _ in range(5):
        steps(ours, optimizer, 1)
        theirs.zero_grad()
        theirs.loss().backward()
        for reference in references:
            reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(a, b, steps=5 * 8)  # fused, which rounds elsewhere


def test_muon_moves_a_matrix_by_a_nearly_orthogonal_one():
    module = body()
    optimizer = made("muon", module, 1.0, weight_decay=0.0)
    before = module.first.weight.detach().clone()
    (module.first.weight * torch.randn(6, 4)).sum().backward()
    optimizer.step()
    moved = (module.first.weight.detach() - before) / (0.2 * 6**0.5)  # as far as AdamW would, by its rule
    values = torch.linalg.svdvals(moved)
    assert values.min() > 0.5
    assert values.max() < 1.4


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_a_checkpoint_to_the_bit(name):
    module = body()
    optimizer = made(name, module, 0.03)
    steps(module, optimizer, 4)
    saved = load(save(optimizer_tensors(optimizer, module)))
    other = body(seed=1)
    other.load_state_dict(module.state_dict())
    again = made(name, other, 0.03)
    load_optimizer(again, other, saved)
    for _ in range(3):
        steps(module, optimizer, 1)
        steps(other, again, 1)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))
    if name != "sgd":
        fresh = body(seed=1)
        fresh.load_state_dict(module.state_dict())
        steps(fresh, made(name, fresh, 0.03), 1)
        steps(module, optimizer, 1)
        assert not torch.equal(fresh.first.weight, module.first.weight)  # the state mattered


@pytest.mark.parametrize("name", NAMES)
def test_the_rate_of_a_group_reaches_every_weight(name):
    module = body()
    optimizer = made(name, module, 0.03)
    steps(module, optimizer, 2)
    load_optimizer(optimizer, module, optimizer_tensors(optimizer, module))  # must not part the members from the groups
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    before = [p.detach().clone() for p in module.parameters()]
    steps(module, optimizer, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_muon_is_a_composite_that_owns_every_weight_once():
    module = body()
    optimizer = made("muon", module, 0.03)
    assert isinstance(optimizer, Together)
    owned = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(owned) == sorted(id(p) for p in module.parameters())
    steps(module, optimizer, 1)
    assert len(optimizer.state) == len(owned)
    assert len({name.rpartition(".")[0] for name in optimizer_tensors(optimizer, module)}) == len(owned)


@pytest.mark.parametrize("name", NAMES)
def test_frozen_weights_stay(name):
    module = body()
    module.first.weight.requires_grad_(False)
    before = module.first.weight.clone()
    steps(module, made(name, module, 0.1), 3)
    assert torch.equal(module.first.weight, before)


# -------------------------------------------------------------------- clipping, as the trainer does it


class Slope(Objective):
    """The gradient is (3, −4), of norm 5, whatever the weight."""

    def __init__(self):
        super().__init__()
        self.body = nn.Module()
        self.body.weight = nn.Parameter(torch.zeros(2))

    def forward(self, batch, state=None):
        rows = len(batch["x"])
        return Loss(rows * (self.body.weight * torch.tensor([3.0, -4.0])).sum(), torch.tensor(rows))


@dataclass
class Nothing:
    """A split of rows without content."""

    def __len__(self):
        return 4

    def order(self, batch_size, seed):
        return Sequential(4, batch_size)

    def batch(self, indices, key):
        return Batch(x=torch.zeros(len(indices)))


CLIPPED = {
    "not at all": ({"clip_norm": None}, [-3.0, 4.0]),
    "by a norm that is larger": ({"clip_norm": 6.0}, [-3.0, 4.0]),
    "by norm": ({"clip_norm": 1.0}, [-0.6, 0.8]),
    "by value": ({"clip_norm": None, "clip_value": 3.5}, [-3.0, 3.5]),
    "by value, then by norm": ({"clip_norm": 2.5, "clip_value": 3.0}, [-(2.5 / 2**0.5), 2.5 / 2**0.5]),
}


@pytest.mark.parametrize("how", CLIPPED)
def test_clipping(how, tmp_path):
    given, expected = CLIPPED[how]
    plain = {"steps": 1, "optimizer": {"kind": "sgd"}, "schedule": {"kind": "constant"}, "learning_rate": 1.0}
    objective = Slope()
    trainer = Trainer(objective, None, (Nothing(), Nothing()), settings(**plain, **given), tmp_path)
    figures = trainer.learn(Cursor(), np.arange(4))
    # the norm that gradients are divided by is made a millionth larger, so that none is divided by zero
    close(objective.body.weight.detach(), torch.tensor(expected), steps=8 + 1e-6 / EPSILON)
    if "clip_value" not in given:
        assert figures["norm"] == pytest.approx(5.0)  # what is reported is the norm before clipping


def settings(**training) -> TrainingSettings:
    tree = {"task": "language-modelling", "data": {"train": "x"}, "tokenizer": "byte", "model": "gpt"}
    return Recipe.from_dict({**tree, "objective": "next-token", "training": training}).training
