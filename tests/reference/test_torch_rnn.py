"""Recurrent nets against torch.nn.LSTM, GRU and RNN with the same weights: outputs, states and gradients."""

import pytest
import torch
from tolerance import close
from torch import nn

from seqlab.fusion.loop import maps
from seqlab.nn.cells import GRU, LSTM, Elman
from seqlab.nn.recording import remarks
from seqlab.nn.recurrent import Recurrent

WIDTH, HIDDEN, ROWS, TIME = 7, 11, 5, 13

CELLS = {"lstm": 2, "gru": 1, "tanh": 1, "relu": 1}
"""Cells that torch has, and the number of parts of their state."""

pytestmark = [
    pytest.mark.parametrize("depth", [1, 2]),
    pytest.mark.parametrize("cell", CELLS),
    pytest.mark.usefixtures("double"),
]


def pair(cell, depth):
    """Ours, and torch's with the same weights; its second bias is zero where ours has none."""
    torch.manual_seed(3)
    widths = [WIDTH] + [HIDDEN] * (depth - 1)
    if cell == "lstm":
        ours = Recurrent([LSTM(width, HIDDEN, LSTM.Settings(kind="lstm")) for width in widths])
        theirs = nn.LSTM(WIDTH, HIDDEN, depth, batch_first=True)
    elif cell == "gru":
        ours = Recurrent([GRU(width, HIDDEN, GRU.Settings(kind="gru")) for width in widths])
        theirs = nn.GRU(WIDTH, HIDDEN, depth, batch_first=True)
    else:
        settings = Elman.Settings(kind="elman", activation=cell)
        ours = Recurrent([Elman(width, HIDDEN, settings) for width in widths])
        theirs = nn.RNN(WIDTH, HIDDEN, depth, nonlinearity=cell, batch_first=True)
    with torch.no_grad():
        for weight in ours.parameters():
            weight.normal_(std=0.3)
        for layer, own in enumerate(ours.layers):
            getattr(theirs, f"weight_ih_l{layer}").copy_(own.input.weight)
            getattr(theirs, f"weight_hh_l{layer}").copy_(own.recurrent.weight)
            getattr(theirs, f"bias_ih_l{layer}").copy_(own.input.bias)
            second = getattr(theirs, f"bias_hh_l{layer}")
            second.zero_() if own.recurrent.bias is None else second.copy_(own.recurrent.bias)
    return ours, theirs


def inputs(parts, depth):
    """The same x and state for both, each with gradients of its own."""
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(ROWS, TIME, WIDTH, generator=generator)
    state = [torch.randn(depth, ROWS, HIDDEN, generator=generator) for _ in range(parts)]
    return [(x.clone().requires_grad_(), [part.clone().requires_grad_() for part in state]) for _ in range(2)]


def run_ours(model, x, state, mask=None):
    layers = [tuple(part[layer] for part in state) for layer in range(len(model.layers))]
    outputs, after = model(x, layers, mask)
    return outputs, [torch.stack([layer[part] for layer in after]) for part in range(len(state))]


def run_theirs(model, x, state):
    outputs, after = model(x, tuple(state) if isinstance(model, nn.LSTM) else state[0])
    return outputs, list(after) if isinstance(model, nn.LSTM) else [after]


def backward(outputs, after):
    """A loss that weighs every output and every part of the last state differently."""
    total = sum((t * torch.linspace(-1, 2, t.numel()).view_as(t)).sum() for t in [outputs, *after])
    total.backward()


def compare(ours, theirs, own, other):
    """Gradients of inputs, first states and weights."""
    close(own[0].grad, other[0].grad)
    for a, b in zip(own[1], other[1], strict=True):
        close(a.grad, b.grad)
    for layer, cell in enumerate(ours.layers):
        close(cell.input.weight.grad, getattr(theirs, f"weight_ih_l{layer}").grad)
        close(cell.recurrent.weight.grad, getattr(theirs, f"weight_hh_l{layer}").grad)
        close(cell.input.bias.grad, getattr(theirs, f"bias_ih_l{layer}").grad)
        if cell.recurrent.bias is not None:
            close(cell.recurrent.bias.grad, getattr(theirs, f"bias_hh_l{layer}").grad)


@pytest.mark.parametrize("path", ["fused", "library", "step by step"])
def test_outputs_states_and_gradients(cell, depth, path, monkeypatch):
    ours, theirs = pair(cell, depth)
    own, other = inputs(CELLS[cell], depth)
    ours.fuse = path == "fused"
    if path == "step by step":
        for layer in ours.layers:
            monkeypatch.setattr(layer, "library", lambda x, state: None)
    said = []
    with remarks(said.append):
        found, after = run_ours(ours, *own)
    if path == "fused" and maps(torch.float64) is None:
        pytest.skip("there is no C++ compiler with OpenMP here")
    if path != "library" or cell in ("lstm", "gru"):
        assert {"fused": "compiled loop", "library": "PyTorch's kernel"}.get(path, path) in said[0]
    expected, after_expected = run_theirs(theirs, *other)
    close(found, expected)
    for a, b in zip(after, after_expected, strict=True):
        close(a, b)
    backward(found, after)
    backward(expected, after_expected)
    compare(ours, theirs, own, other)


def test_masks_equal_packed_sequences(cell, depth):
    ours, theirs = pair(cell, depth)
    own, other = inputs(CELLS[cell], depth)
    lengths = torch.tensor([13, 4, 1, 9, 12])
    mask = torch.arange(TIME) < lengths[:, None]
    found, after = run_ours(ours, *own, mask)
    sequence = nn.utils.rnn.pack_padded_sequence(other[0], lengths, batch_first=True, enforce_sorted=False)
    packed, after_expected = run_theirs(theirs, sequence, other[1])
    expected, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    close(found[mask], expected[mask])
    for a, b in zip(after, after_expected, strict=True):
        close(a, b)
    backward(found * mask[..., None], after)
    backward(expected, after_expected)
    compare(ours, theirs, own, other)


def test_state_carried_over_two_windows(cell, depth):
    ours, theirs = pair(cell, depth)
    own, other = inputs(CELLS[cell], depth)
    first, state = run_ours(ours, own[0][:, :5], own[1])
    second, after = run_ours(ours, own[0][:, 5:], state)
    expected, after_expected = run_theirs(theirs, *other)
    close(torch.cat([first, second], 1), expected)
    backward(torch.cat([first, second], 1), after)
    backward(expected, after_expected)
    compare(ours, theirs, own, other)


def test_one_step_at_a_time(cell, depth):
    ours, theirs = pair(cell, depth)
    own, other = inputs(CELLS[cell], depth)
    state, outputs = own[1], []
    for time in range(TIME):
        output, state = run_ours(ours, own[0][:, time : time + 1], state)
        outputs.append(output)
    expected, _ = run_theirs(theirs, *other)
    close(torch.cat(outputs, 1), expected)
