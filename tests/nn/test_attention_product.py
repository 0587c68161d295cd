"""Attention by the kernels of `attention.cpp`, against double precision."""

import pytest
import torch
from tolerance import close
from torch import nn
from torch.nn import functional as F

from seqlab.decoding.packing import packed
from seqlab.nn import attention_product
from seqlab.nn.attention import CrossAttention, DotProduct, SelfAttention, Source
from seqlab.nn.attention_product import attention, computable
from seqlab.training.routing import route

pytestmark = pytest.mark.skipif(attention_product.library() is None, reason="there is no C++ compiler with OpenMP here")

SHAPES = [  # rows, heads, heads of keys, queries, keys, width
    (1, 1, 1, 1, 1, 1),
    (2, 3, 3, 5, 9, 7),
    (2, 4, 2, 60, 60, 24),
    (3, 4, 1, 130, 77, 16),
    (1, 2, 2, 300, 300, 33),
    (1, 1, 1, 20, 600, 200),
]


def heads(rows, count, length, width):
    """As a linear map gives them: heads beside each other, (B, T, H, K) in memory."""
    return torch.randn(rows, length, count, width).transpose(1, 2).requires_grad_()


def allowed(rows, keys):
    """At least one key in each row."""
    mask = torch.rand(rows, 1, 1, keys) < 0.6
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_and_its_gradients(shape, causal, masked):
    rows, count, groups, queries, keys, width = shape
    keys = queries if causal else keys
    q, k, v = heads(rows, count, queries, width), heads(rows, groups, keys, width), heads(rows, groups, keys, width)
    mask, upstream = allowed(rows, keys) if masked else None, torch.randn(rows, count, queries, width)
    assert computable(q, k, v, mask, causal, 0)
    found = attention(q, k, v, mask, causal, None)
    exact = [one.detach().double().requires_grad_() for one in (q, k, v)]
    seen = mask
    if causal:
        earlier = torch.ones(queries, keys, dtype=torch.bool).tril()
        seen = earlier if mask is None else earlier & mask
    expected = F.scaled_dot_product_attention(*exact, seen, enable_gqa=groups != count)
    slopes = zip(
        torch.autograd.grad(found, (q, k, v), upstream),
        torch.autograd.grad(expected, exact, upstream.double()),
        strict=True,
    )
    # scores are sums over the width, of size 10; outputs are sums over the keys, and slopes over either
    close(found, expected, steps=width + 32, size=10)
    for ours, theirs in slopes:
        close(ours, theirs, steps=width + 64, size=10 * max(1.0, float(theirs.abs().max())))


def test_a_query_without_keys_gets_nothing():
    q, k, v = (heads(2, 2, 5, 8) for _ in range(3))
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1] = False
    found = attention(q, k, v, mask, False, None)
    assert torch.equal(found[1], torch.zeros_like(found[1]))
    found.sum().backward()
    assert all(one.grad.isfinite().all() and not one.grad[1].any() for one in (q, k, v))


def test_nan_is_not_hidden():
    q, k, v = (heads(1, 1, 4, 8).detach() for _ in range(3))
    q[0, 0, 2, 3] = torch.nan
    found = attention(q, k, v, None, True, None)[0, 0]
    assert found[2].isnan().all()
    assert found[[0, 1, 3]].isfinite().all()


def test_bits_depend_on_nothing_but_the_query_and_its_keys():
    q, k, v = (heads(3, 4, 150, 32).detach() for _ in range(3))
    torch.set_num_threads(1)
    whole = attention(q, k, v, None, True, None)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(attention(q, k, v, None, True, None), whole)
        assert torch.equal(attention(q[1:2], k[1:2], v[1:2], None, True, None), whole[1:2])
        start = [one[:, :, :77] for one in (q, k, v)]
        assert torch.equal(attention(*start, None, True, None), whole[:, :, :77])
    short = torch.arange(150)[None, None, None] < torch.tensor([150, 60, 99])[:, None, None, None]
    padded = attention(q, k, v, short, False, None)
    assert torch.equal(padded[1:2], attention(q[1:2], k[1:2, :, :60], v[1:2, :, :60], None, False, None))


@pytest.mark.parametrize(("causal", "padded"), [(True, False), (False, True), (False, False)])
def test_layers_use_it(causal, padded, monkeypatch):
    asked = []
    monkeypatch.setattr("seqlab.nn.attention.attention", lambda *parts: asked.append(1) or attention(*parts))
    layer, x = SelfAttention(24, 3, causal=causal), torch.randn(2, 10, 24)
    mask = torch.arange(10) < torch.tensor([[10], [6]]) if padded else None
    expected = layer.double()(x.double(), mask=mask)
    route(layer.float(), 0)
    found = layer(x, mask=mask)
    assert len(asked) == 1
    real = torch.ones(2, 10, dtype=torch.bool) if mask is None else mask
    close(found[real], expected[real], steps=64)


def test_cross_attention_uses_it():
    layer, x, y = CrossAttention(24, 3), torch.randn(2, 4, 24), torch.randn(2, 10, 24)
    real = torch.arange(10) < torch.tensor([[10], [6]])
    layer.double()
    expected = layer(x.double(), Source(*layer.read(y.double()[real], real), real))
    route(layer.float(), 0)
    close(layer(x, Source(*layer.read(y[real], real), real)), expected, steps=64)


def test_everything_else_is_left_to_torch(monkeypatch):
    monkeypatch.setattr("seqlab.nn.attention.attention", lambda *parts: pytest.fail("the kernels were asked"))
    q, k, v = (heads(2, 2, 5, 8).detach() for _ in range(3))
    product = DotProduct()
    route(nn.Sequential(product), 401)  # fewer than 2 · 2 · 5 · 8 · 5 multiplications
    product(q[:1, :, :, :], k[:1], v[:1])
    route(nn.Sequential(product), 0)
    product(q, k, v, torch.zeros(5, 5))
    product(q, k, v, torch.ones(2, 1, 5, 5, dtype=torch.bool))
    product(q[:, :, :1], k, v, None, True)
    product(*(one.double() for one in (q, k, v)))
    monkeypatch.setattr(attention_product, "WIDEST", 4)
    product(q, k, v)
    dropped = DotProduct(0.5).train()
    route(nn.Sequential(dropped), 0)
    dropped(q, k, v)


def test_packed_models_use_it_for_all_sizes():
    """Sizes depend on the neighbours, and bits must not."""
    layer = SelfAttention(24, 3, causal=False)
    route(layer, 10**9)
    assert packed(nn.Sequential(layer))[0].product.compiled_from == 0
    route(layer, None)
    assert packed(nn.Sequential(layer))[0].product.compiled_from is None
