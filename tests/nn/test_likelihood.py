"""Losses a few rows at a time, and label smoothing, against the library."""

import pytest
import torch
from tolerance import close
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch
from seqlab.models.gpt import GPT
from seqlab.nn import likelihood
from seqlab.nn.likelihood import slopes, slopes_by_library, softmax_losses
from seqlab.objectives.next_token import NextToken


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("count", [1, 7, 600])
def test_losses_and_gradients_are_the_librarys(count, with_bias, smoothing, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(likelihood, "library", lambda: None)
    torch.manual_seed(0)
    states, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((count, 16), (50, 16), (50,)))
    bias, targets = bias if with_bias else None, torch.randint(50, (count,))
    found = softmax_losses(states, weight, bias, targets, smoothing)
    exact = [leaf if leaf is None else leaf.detach().double().requires_grad_() for leaf in (states, weight, bias)]
    expected = F.cross_entropy(F.linear(*exact), targets, reduction="none", label_smoothing=smoothing)
    close(found, expected, steps=16 + 50, size=20)  # logits, sums of 16, are below 20; then there is a sum over 50
    leaves, exact = ([leaf for leaf in own if leaf is not None] for own in ((states, weight, bias), exact))
    for scales in (torch.ones(count), torch.full((count,), 0.3), torch.rand(count), torch.zeros(count)):
        ours, theirs = (
            torch.autograd.grad((one * scales.to(one)).sum(), own, retain_graph=True)
            for one, own in ((found, leaves), (expected, exact))
        )
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, steps=16 + 50 + count, size=20)  # a weight's slope is a sum over all positions


@pytest.mark.skipif(likelihood.library() is None, reason="there is no C++ compiler with OpenMP here")
@pytest.mark.parametrize("vocabulary", [1, 15, 16, 33, 5000])
@pytest.mark.parametrize("large", [1.0, 60.0])
def test_slopes_of_rows_in_double_precision(vocabulary, large):
    torch.manual_seed(0)
    logits, bias, scales = (torch.randn(shape) for shape in ((9, vocabulary), (vocabulary,), (9,)))
    targets = torch.randint(vocabulary, (9,))
    logits *= large
    exact = logits.double()
    expected = slopes_by_library(exact, bias.double(), targets, scales.double(), 0.1)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        own = logits.clone()
        found.append((slopes(own, bias, targets, scales, 0.1), own))
        # logits are rounded when the bias is added, which changes log p and p as much; then they are summed
        near = {"steps": 1, "size": 2 * 5 * large + vocabulary}
        close(found[-1][0], expected, **near)
        close(own, exact, **near)
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(one, found[0], strict=True))


@pytest.mark.skipif(likelihood.library() is None, reason="there is no C++ compiler with OpenMP here")
def test_no_slope_is_too_small_to_be_held_in_full():
    logits = torch.linspace(0, -200, 4000)[None]
    slopes(logits, None, torch.tensor([0]), None, 0.0)
    assert logits[logits != 0].abs().min() > 1e-35
    assert logits[0, -1] == 0


def test_what_is_no_token_is_left_to_the_library():
    states, weight = torch.randn(3, 4, requires_grad=True), torch.randn(40, 4)
    for targets in (torch.tensor([1, -100, 2]), torch.tensor([0, 39, 5])):
        found = softmax_losses(states, weight, None, targets, 0.0)
        close(found, F.cross_entropy(states @ weight.t(), targets, reduction="none"), steps=4 + 40, size=20)
    for targets in (torch.tensor([1, 40, 2]), torch.tensor([1, 2]), torch.tensor([1, 2, 3], dtype=torch.int32)):
        with pytest.raises((IndexError, ValueError, RuntimeError)):
            softmax_losses(states, weight, None, targets, 0.0)
    empty = softmax_losses(states[:0], weight.requires_grad_(), None, torch.zeros(0, dtype=torch.long), 0.0)
    empty.sum().backward()
    assert not weight.grad.any()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_token_that_cannot_be_harms_no_other(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(likelihood, "library", lambda: None)
    states, weight, bias = torch.randn(3, 4, requires_grad=True), torch.randn(40, 4), torch.zeros(40)
    bias[7] = -torch.inf
    targets = torch.tensor([1, 2, 3])
    found = softmax_losses(states, weight, bias, targets, 0.0)
    close(found, F.cross_entropy(states @ weight.t() + bias, targets, reduction="none"), steps=4 + 40, size=20)
    found.sum().backward()
    assert states.grad.isfinite().all()


def test_what_is_no_number_stays_none():
    states, weight = torch.randn(3, 4, requires_grad=True), torch.randn(40, 4)
    with torch.no_grad():
        states[1, 2] = torch.nan
    losses = softmax_losses(states, weight, None, torch.zeros(3, dtype=torch.long), 0.0)
    losses.sum().backward()
    assert losses.isnan().tolist() == [False, True, False]
    assert states.grad.isnan().any(1).tolist() == [False, True, False]


def test_without_gradients_it_is_the_same_number():
    states, weight, targets = torch.randn(300, 8), torch.randn(40, 8, requires_grad=True), torch.randint(40, (300,))
    with torch.no_grad():
        plain = softmax_losses(states, weight, None, targets, 0.1)
    close(softmax_losses(states, weight, None, targets, 0.1), plain, steps=8 + 40, size=20)


def test_logits_of_all_positions_are_never_held_at_once(monkeypatch):
    """None of the tensors it makes has more rows than a part."""
    monkeypatch.setattr(likelihood, "ROWS", 16)
    seen = []
    states, weight = torch.randn(200, 4, requires_grad=True), torch.randn(30, 4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda one: seen.append(one.shape) or one, lambda one: one):
        softmax_losses(states, weight, None, torch.zeros(200, dtype=torch.long), 0.0).sum().backward()
    assert torch.Size([200, 30]) not in seen


def test_no_second_derivative_is_claimed():
    states, weight = torch.randn(5, 4, requires_grad=True), torch.randn(30, 4)
    loss = softmax_losses(states, weight, None, torch.zeros(5, dtype=torch.long), 0.0).sum()
    (slope,) = torch.autograd.grad(loss, states, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        slope.sum().backward()


@pytest.mark.usefixtures("double")
def test_smoothing_is_for_training_only():
    torch.manual_seed(0)
    model = GPT(GPT.Settings(kind="gpt", width=8, depth=1, heads=2, context=8), 11)
    batch = {"tokens": torch.arange(8)[None], "targets": torch.arange(1, 9)[None]}
    losses = {}
    for smoothing in (0.0, 0.2):
        objective = NextToken(NextToken.Settings(kind="next-token", smoothing=smoothing), model)
        losses[smoothing] = [objective.train(mode)(Batch(batch)).sum.item() for mode in (True, False)]
    with torch.no_grad():
        chances = model.logits(model(batch["tokens"]).states)[0].log_softmax(-1)
    right = -chances.gather(1, batch["targets"][0, :, None]).sum().item()
    assert losses[0.0] == pytest.approx([right, right], rel=1e-9)
    assert losses[0.2] == pytest.approx([0.8 * right - 0.2 * chances.mean(1).sum().item(), right], rel=1e-9)
