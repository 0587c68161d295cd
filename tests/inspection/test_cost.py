"""The cost of a training: what is counted equals the formula, whichever kernel computes it.

A product of (m, k) and (k, n) has m k n multiply-adds of 2 operations each, and its two gradients as many again each.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from seqlab import registry
from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.batching.order import Indices
from seqlab.data.batching.sequences import Windows
from seqlab.data.randomness import Key
from seqlab.inspection.cost import operations, training_operations
from seqlab.nn import output
from seqlab.objectives.next_token import NextToken
from seqlab.recipe import TrainingSettings, part_settings
from seqlab.recipe_tree import RecipeTree
from seqlab.training.routing import route

B, T, N, V = 3, 7, 5, 50
ROUND = 2 * 3
"""Operations of a multiply-add, forward and twice back."""


def objective(kind: str, **settings) -> NextToken:
    torch.manual_seed(0)
    model = registry.find("model", kind)(part_settings("model", RecipeTree({"kind": kind, **settings})), V)
    return NextToken(NextToken.Settings(kind="next-token"), model)


def texts(**more: torch.Tensor) -> Batch:
    tokens = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return Batch(tokens=tokens[:, :-1], targets=tokens[:, 1:], **more)


def pairs() -> Batch:
    source = torch.randint(V, (B, N), generator=torch.Generator().manual_seed(2))
    return Batch(texts(), **{"source.tokens": source, "source.mask": torch.ones(B, N, dtype=torch.bool)})


def test_lstm():
    """Of x and h four gates each in every layer; nothing is learnt about the state before the first."""
    width, layers = 16, 2
    cells = layers * B * (T * ROUND * 2 * 4 * width**2 - 2 * 4 * width**2)
    assert operations(objective("recurrent", width=width, depth=layers), texts()) == cells + ROUND * B * T * width * V


GPT = {"width": 24, "depth": 2, "heads": 3, "context": 16}


def test_gpt():
    """12 D² in a block of four maps and a feed-forward part 4 D wide; T positions for q kᵀ and T for the values."""
    width, blocks = GPT["width"], GPT["depth"]
    expected = ROUND * B * T * (blocks * (12 * width**2 + 2 * T * width) + width * V)
    assert operations(objective("gpt", **GPT, dropout=0.0), texts()) == expected
    assert operations(objective("gpt", **GPT, dropout=0.5), texts()) == expected, "another kernel for attention"


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_transformer(dropout: float):
    width, hidden, blocks = 24, 40, 2
    feed = 2 * width * hidden
    reads = B * N * (4 * width**2 + 2 * N * width + feed)
    looks = B * (N * 2 * width**2 + T * (2 * width**2 + 2 * N * width))
    writes = B * T * (4 * width**2 + 2 * T * width + feed)
    model = objective("transformer", width=width, hidden_width=hidden, depth=blocks, heads=3, dropout=dropout)
    assert operations(model, pairs()) == ROUND * (blocks * (reads + looks + writes) + B * T * width * V)


@pytest.mark.parametrize("kind", ["recurrent", "gpt"])
def test_a_loss_a_few_rows_at_a_time_costs_the_same(kind: str, monkeypatch: pytest.MonkeyPatch):
    model = objective(kind, **(GPT if kind == "gpt" else {"width": 16}))
    plain = operations(model, texts())
    monkeypatch.setattr(output, "LARGE", 0)
    assert operations(model, texts()) == plain


def test_padding_is_computed_but_its_loss_is_not():
    mask = torch.arange(T) < torch.tensor([T, T, 2])[:, None]
    model = objective("gpt", **GPT)
    assert operations(model, texts()) - operations(model, texts(mask=mask)) == ROUND * (T - 2) * GPT["width"] * V


def test_frozen_weights_cost_no_gradient():
    model = objective("gpt", **GPT)
    whole = operations(model, texts())
    for weight in model.body.blocks[0].parameters():
        weight.requires_grad_(requires_grad=False)
    assert operations(model, texts()) == whole - 2 * B * T * 12 * GPT["width"] ** 2


@pytest.mark.parametrize("kind", ["recurrent", "gpt", "convolutional"])
def test_maps_by_kernels_cost_the_same(kind: str):
    plain, routed = objective(kind, width=16, depth=2), objective(kind, width=16, depth=2)
    route(routed, 0)
    assert operations(routed, texts()) == operations(plain, texts()) > 0


def test_nothing_is_changed():
    model = objective("recurrent", width=16, dropout=0.5).eval()
    before = torch.get_rng_state()
    operations(model, texts())
    assert not model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(weight.grad is None for weight in model.parameters())


def test_a_training_costs_as_much_as_its_batches():
    model, split = objective("gpt", **GPT), Windows(np.arange(144 * T) % V, T)
    once = operations(model, texts())
    for settings in ({"batch_size": B}, {"batch_size": 3 * B, "accumulate": 3}):
        pieces = settings.get("accumulate", 1)
        found = training_operations(model, split, TrainingSettings(**settings), steps=1000)
        assert found == pytest.approx(1000 * pieces * once)


class Sentences(Examples):
    """From one to sixteen tokens."""

    def batch(self, indices: Indices, key: Key) -> Batch:
        tokens, mask = padded([[1] * int(self.lengths[index]) for index in indices])
        return Batch(tokens=tokens, targets=tokens, mask=mask)


def test_batches_of_all_lengths_are_taken_into_account():
    model, split = objective("gpt", **GPT), Sentences(np.random.default_rng(0).integers(1, 17, 800).tolist(), True)
    settings, steps = TrainingSettings(batch_size=8), 100
    walk = islice(split.order(settings.batch_size, settings.seed).walk(), steps)
    exact = sum(operations(model, split.batch(indices, Key(0, cursor.epoch))) for cursor, indices in walk)
    assert training_operations(model, split, settings, steps) == pytest.approx(exact, rel=0.02)
