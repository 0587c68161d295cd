"""LinearMap maps by the kernels of `multiply.cpp`, against the library and double precision."""

import copy
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import close
from torch import nn
from torch.nn import functional as F

from seqlab.data.storage.cache import entries
from seqlab.native import multiply
from seqlab.native.multiply import product
from seqlab.nn import linear_map
from seqlab.nn.cells import GRU, LSTM
from seqlab.nn.fused import Fused
from seqlab.nn.linear_map import LinearMap, linear
from seqlab.nn.recurrent import Recurrent
from seqlab.training import routing
from seqlab.training.routing import compiled_from, route

need_kernels = pytest.mark.skipif(multiply.library() is None, reason="there is no C++ compiler with OpenMP here")
SHAPES = [(1, 1, 1), (5, 7, 3), (13, 16, 33), (40, 300, 65), (193, 257, 129), (64, 31, 2100), (300, 600, 17)]


def matrix(rows, columns, layout):
    """The same numbers, stored by rows, by columns, or with gaps in both directions."""
    x = torch.randn(rows, columns)
    if layout == "columns":
        return x.t().contiguous().t()
    if layout == "gaps":
        wide = torch.zeros(2 * rows, 3 * columns)
        wide[::2, ::3] = x
        return wide[::2, ::3]
    return x


@need_kernels
@pytest.mark.parametrize("layouts", [("rows", "rows"), ("rows", "columns"), ("columns", "columns"), ("gaps", "gaps")])
@pytest.mark.parametrize("shape", SHAPES)
def test_products(shape, layouts):
    m, k, n = shape
    a, b, bias = matrix(m, k, layouts[0]), matrix(n, k, layouts[1]), torch.randn(n)
    exact = a.double() @ b.double().t()
    near = {"steps": k + 1, "size": float((a.abs() @ b.abs().t()).max()) + 5}
    close(product(a, b), exact, **near)
    close(product(a, b, bias), exact + bias.double(), **near)
    out = torch.ones(m, n)
    assert product(a, b, out=out, add=True) is out
    close(out, exact + 1, **near)


@need_kernels
@given(st.integers(1, 70), st.integers(0, 70), st.integers(1, 70))
def test_products_of_any_shape(m, k, n):
    a, b, bias = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
    close(product(a, b, bias), a.double() @ b.double().t() + bias.double(), steps=k + 1, size=10 * (k + 1))


@need_kernels
def test_bits_depend_neither_on_other_rows_nor_on_threads():
    a, b, bias = torch.randn(500, 300), torch.randn(130, 300), torch.randn(130)
    torch.set_num_threads(1)
    whole = product(a, b, bias)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(product(a, b, bias), whole)
        assert torch.equal(product(a[77:78], b, bias), whole[77:78])
        assert torch.equal(product(a[90:333], b, bias), whole[90:333])
    apart = product(a[:, 256:], b[:, 256:], out=product(a[:, :256], b[:, :256], bias), add=True)
    assert torch.equal(apart, whole)


@need_kernels
def test_equals_the_maps_of_decoding_to_the_bit():
    from seqlab.decoding.compiled import CompiledLinear

    x, weight, bias = torch.randn(37, 290), torch.randn(70, 290), torch.randn(70)
    assert torch.equal(linear(x, weight, bias, 0), CompiledLinear(weight, bias)(x))


@need_kernels
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(9,), (4, 9), (2, 5, 9), (0, 9)])
def test_a_map_and_its_gradients(shape, bias):
    x, plain = torch.randn(shape), nn.Linear(9, 20, bias=bias).double()
    own = copy.deepcopy(plain).float()
    route(own, 0)
    assert type(own) is LinearMap
    inputs, exact = x.clone().requires_grad_(), x.double().requires_grad_()
    found, expected = own(inputs), plain(exact)
    close(found, expected, steps=12, size=20)
    upstream = torch.randn(found.shape)
    found.backward(upstream)
    expected.backward(upstream.double())
    for one, other in zip((inputs, *own.parameters()), (exact, *plain.parameters()), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if other.grad is not None:
            close(one.grad, other.grad, steps=30, size=60)


@need_kernels
def test_gradients_of_gradients():
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)

    def penalty(compiled):
        (slope,) = torch.autograd.grad(linear(x, weight, None, compiled).square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), weight)[0]

    close(penalty(0), penalty(None).double(), steps=50, size=float(penalty(None).abs().max()) * 4)


@need_kernels
def test_parts_that_need_no_gradient_get_none(monkeypatch):
    x, weight, bias = torch.randn(3, 4), torch.randn(5, 4, requires_grad=True), torch.randn(5)
    asked = []
    monkeypatch.setattr(linear_map, "product", lambda *parts: asked.append(parts) or product(*parts))
    linear(x, weight, bias, 0).sum().backward()
    assert len(asked) == 2  # the outputs and the gradient of the weights


@need_kernels
def test_everything_else_is_left_to_torch(monkeypatch):
    def refuse(*parts):
        raise AssertionError("the kernels were asked")

    monkeypatch.setattr(linear_map, "product", refuse)
    x, weight = torch.randn(6, 4), torch.randn(5, 4)
    assert torch.equal(linear(x, weight, None, 121), F.linear(x, weight))  # 6 · 4 · 5 are fewer
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    double = linear(x.double(), weight.double(), None, 0)
    assert torch.equal(double, F.linear(x.double(), weight.double()))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, None, 0).dtype == torch.bfloat16
    assert linear(x.to("meta"), weight.to("meta"), None, 0).shape == (6, 5)
    monkeypatch.setattr(multiply, "library", lambda: None)
    assert torch.equal(linear(x, weight, None, 0), F.linear(x, weight))


class OwnBody(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.fused = nn.Linear(3, 4), Fused(3, {"a": 2, "b": 2})
        self.layers = Recurrent([LSTM(4, 5), GRU(5, 5)])


def test_route_reaches_all_maps_but_those_of_a_step():
    body = OwnBody()
    before = list(body.state_dict())
    route(body, 7)
    first, second = body.layers.layers
    inside = [body.map, body.fused, body.layers, first.input, second.input]
    assert [part.compiled_from for part in inside] == [7] * 5
    assert [type(part) for part in (first.recurrent, second.recurrent)] == [nn.Linear] * 2
    assert list(body.state_dict()) == before
    assert copy.deepcopy(body).map.compiled_from == 7
    route(body, None)
    assert all(part.compiled_from is None for part in inside)


@need_kernels
def test_a_routed_recurrence_has_the_gradients_of_a_plain_one():
    torch.manual_seed(1)
    plain, x = Recurrent([LSTM(6, 8), GRU(8, 8)]), torch.randn(3, 11, 6)
    own, exact = copy.deepcopy(plain), copy.deepcopy(plain).double()
    route(own, 0)
    for net, given_x in ((own, x), (exact, x.double())):
        net(given_x, net.start(3, given_x))[0].square().sum().backward()
    for one, other in zip(own.parameters(), exact.parameters(), strict=True):
        close(one.grad, other.grad, steps=64 * 11)


# ---------------------------------------------------------------------- the choice


def times(faster):
    """Measured times in which the kernels are faster for the given numbers of multiplications."""
    return lambda rows, inputs, outputs: (1.0, 2.0) if faster(rows * inputs * outputs) else (1.0, 1.0)


@pytest.mark.parametrize(
    ("faster", "found"),
    [
        (lambda size: True, 4096),
        (lambda size: False, None),
        (lambda size: size > 10**6, 1 << 21),
        (lambda size: size < 10**6, None),  # what is large matters
    ],
)
def test_the_smallest_size_from_which_the_kernels_are_faster(faster, found, monkeypatch):
    monkeypatch.setattr(routing, "_times", times(faster))
    assert routing.measured() == found


@need_kernels
@pytest.mark.parametrize("found", [4096, None])
def test_a_measurement_is_made_once(found, monkeypatch, tmp_path):
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr(routing, "measured", lambda: made.append(1) or found)
    assert [compiled_from("auto", torch.device("cpu")) for _ in range(3)] == [found] * 3
    assert len(made) == 1
    (entry,) = entries()
    assert entry.kind == "measurements"
    assert entry.about.startswith("linear maps on ")
    (entry.folder / "meta.json").write_text("[1]")  # damaged: measured again
    compiled_from("auto", torch.device("cpu"))
    torch.set_num_threads(3)  # another number of threads is another machine
    compiled_from("auto", torch.device("cpu"))
    assert len(made) == 3


def test_settings_that_fix_the_choice(monkeypatch):
    monkeypatch.setattr(routing, "measured", lambda: pytest.fail("measured"))
    monkeypatch.setattr(routing, "library", lambda: SimpleNamespace(_name="kernels.so"))
    cpu = torch.device("cpu")
    assert compiled_from("torch", cpu) is None
    assert compiled_from("compiled", cpu) == 0
    assert compiled_from("auto", torch.device("meta")) is None
    monkeypatch.setattr(routing, "library", lambda: None)
    assert compiled_from("auto", cpu) is compiled_from("compiled", cpu) is None
