"""The fixed-window model and the convolutional one against other ways to compute the same."""

import pytest
import torch
from tolerance import close
from torch import nn
from torch.nn import functional as F

from seqlab.models.conv import ConvolutionalLanguageModel
from seqlab.models.mlp import MLP, OneHotLinear
from seqlab.nn.convolution import CausalConvolution

pytestmark = pytest.mark.usefixtures("double")

VOCAB = 11


def test_one_hot_inputs_are_one_hot_vectors():
    torch.manual_seed(0)
    layer = OneHotLinear(3, VOCAB, 5)
    windows = torch.tensor([[[4, 0, 10], [-1, -1, 2]]])
    vectors = (F.one_hot(windows.clamp(min=0), VOCAB) * (windows >= 0)[..., None]).double()
    expected = vectors.flatten(-2) @ layer.columns.weight + layer.bias
    close(layer(windows), expected)


def test_embedded_windows_by_hand():
    torch.manual_seed(0)
    model = MLP(MLP.Settings(kind="mlp", window=3, width=4, hidden_width=6), VOCAB).eval()
    tokens = torch.tensor([[5, 2, 7, 1]])
    states = model(tokens).states
    e = model.embedding.weight
    expected = torch.tanh(model.hidden.weight @ torch.cat([e[2], e[7], e[1]]) + model.hidden.bias)
    close(states[0, -1], expected)
    first = torch.tanh(model.hidden.weight @ torch.cat([torch.zeros(8), e[5]]) + model.hidden.bias)
    close(states[0, 0], first)


@pytest.mark.parametrize("far", [3, 8])
def test_the_window_is_all_that_it_sees(far):
    model = MLP(MLP.Settings(kind="mlp", window=far, width=4, hidden_width=6), VOCAB).eval()
    tokens = torch.randint(VOCAB, (1, 12), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[0, 11 - far] = (changed[0, 11 - far] + 1) % VOCAB
    assert torch.equal(model(tokens).states[0, -1], model(changed).states[0, -1])
    changed[0, 12 - far] = (changed[0, 12 - far] + 1) % VOCAB
    assert not torch.equal(model(tokens).states[0, -1], model(changed).states[0, -1])


@pytest.mark.parametrize(("kernel_size", "dilation"), [(2, 1), (3, 1), (3, 4), (4, 2)])
def test_convolution_equals_the_library(kernel_size, dilation):
    torch.manual_seed(0)
    ours, theirs = CausalConvolution(5, 7, kernel_size, dilation), nn.Conv1d(5, 7, kernel_size, dilation=dilation)
    with torch.no_grad():
        theirs.weight.copy_(ours.linear.weight.unflatten(1, (kernel_size, 5)).permute(0, 2, 1))
        theirs.bias.copy_(ours.linear.bias)
    x = torch.randn(3, 20, 5)
    expected = theirs(F.pad(x.mT, [(kernel_size - 1) * dilation, 0])).mT
    close(ours(x)[0], expected)


@pytest.mark.parametrize(("growth", "field"), [(1, 9), (2, 31)])
def test_receptive_field(growth, field):
    """Contiguous kernels: 1 + depth (K − 1); dilated ones: 1 + (2^depth − 1)(K − 1)."""
    settings = {"width": 6, "depth": 4, "kernel_size": 3, "growth": growth}
    model = ConvolutionalLanguageModel(
        ConvolutionalLanguageModel.Settings(kind="convolutional", **settings), VOCAB
    ).double()
    assert model.receptive_field == field
    model.embedding.weight.requires_grad_()
    tokens = torch.zeros(1, 40, dtype=torch.long)
    x = model.embedding(tokens).detach().requires_grad_()
    model.embedding.forward = lambda tokens: x
    model(tokens).states[0, -1].square().sum().backward()
    seen = (x.grad[0].abs().sum(-1) > 0).nonzero().flatten()
    assert 40 - seen.min() == field
