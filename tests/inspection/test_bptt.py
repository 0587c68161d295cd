"""The formulas of backpropagation through time, written out, against autograd and against the shipped cell."""

from itertools import pairwise

import pytest
import torch
from tolerance import close
from torch.nn import functional as F

from seqlab.inspection.bptt import explicit_gradients
from seqlab.nn.cells import Elman
from seqlab.nn.recurrent import Recurrent

LENGTH, WIDTH, HIDDEN, CLASSES = 5, 3, 6, 4


def problem():
    generator = torch.Generator().manual_seed(0)
    shapes = [(HIDDEN, WIDTH), (HIDDEN, HIDDEN), (CLASSES, HIDDEN), (LENGTH, WIDTH)]
    *weights, x = (torch.randn(shape, generator=generator, dtype=torch.double) for shape in shapes)
    return tuple(weights), x, torch.tensor([1, 0, 3, 2, 1])


@pytest.mark.parametrize("counted", [None, [2, 3, 4], [4]])
@pytest.mark.parametrize("fuse", [True, False])
def test_the_formulas_equal_autograd(counted, fuse):
    (u, w, v), x, y = problem()
    found = explicit_gradients((u, w, v), x, y, counted)
    cell = Elman(WIDTH, HIDDEN).double()
    with torch.no_grad():
        cell.input.weight.copy_(u)
        cell.recurrent.weight.copy_(w)
    net = Recurrent([cell], fuse=fuse)
    v = v.clone().requires_grad_()
    states, _ = net(x[None], net.start(1, x))
    logits = (states[0] @ v.T).requires_grad_()
    logits.retain_grad()
    chosen = list(range(LENGTH)) if counted is None else counted
    F.cross_entropy(logits[chosen], y[chosen], reduction="sum").backward()
    for ours, theirs in [(found.u, cell.input.weight), (found.w, cell.recurrent.weight), (found.v, v)]:
        close(ours, theirs.grad)
    close(found.outputs, logits.grad)


def test_outputs_that_do_not_count_have_no_gradient_at_all():
    weights, x, y = problem()
    found = explicit_gradients(weights, x, y, [2, 3, 4])
    assert torch.equal(found.outputs[:2], torch.zeros(2, CLASSES, dtype=torch.double))
    assert all(found.outputs[t].abs().sum() > 0 for t in (2, 3, 4))
    assert set(found.terms) == {(t, k) for t in (2, 3, 4) for k in range(t + 1)}


def test_the_past_fades_where_the_matrix_is_small():
    (u, w, v), x, y = problem()
    small = explicit_gradients((u, 0.01 * w, v), x, y, [4])
    sizes = [small.terms[4, k] for k in (4, 3, 2, 1)]
    assert all(later > 10 * earlier for later, earlier in pairwise(sizes))
