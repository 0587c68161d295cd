"""gelu by the kernels of `gelu.cpp`, against double precision."""

import pytest
import torch
from tolerance import close

from seqlab.nn import activations
from seqlab.nn.activations import activated, gelu

pytestmark = pytest.mark.skipif(activations.library() is None, reason="there is no C++ compiler with OpenMP here")


@pytest.mark.parametrize("shape", [(1,), (3, 17), (130, 257)])
@pytest.mark.parametrize("size", [1e-3, 1.0, 6.0, 100.0])
def test_gelu_and_its_slope(shape, size, monkeypatch):
    monkeypatch.setattr(activations, "MANY", 0)
    x, upstream = size * torch.randn(shape), torch.randn(shape)
    found = []
    for inputs, compiled in ((x, 0), (x.double(), None)):
        own = inputs.clone().requires_grad_()
        y = activated(own, "gelu", compiled)
        y.backward(upstream.to(y))
        found.append((y, own.grad))
    for ours, exact in zip(*found, strict=True):
        close(ours, exact, steps=16, size=max(1.0, size) * 5)


def test_limits():
    x = torch.tensor([-1e30, -0.0, 0.0, 1e30, torch.inf]).repeat(4000)
    y = activated(x, "gelu", 0)[:5]
    assert torch.equal(y[1:3], torch.zeros(2))
    assert torch.equal(y[3:], x[3:5])
    assert abs(y[0]) < 1e-8
    assert activated(torch.full((20_000,), torch.nan), "gelu", 0).isnan().all()


def test_gradients_of_gradients(monkeypatch):
    monkeypatch.setattr(activations, "MANY", 0)
    x = torch.randn(40, requires_grad=True)

    def curvature(function):
        (slope,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.sum(), x)[0]

    close(curvature(lambda x: activated(x, "gelu", 0)), curvature(gelu).double(), steps=16)
