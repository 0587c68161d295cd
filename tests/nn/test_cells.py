"""Cells: the oracles of their gates, and cells derived from them."""

import torch

from seqlab.nn.cells import LSTM
from seqlab.nn.recurrent import Recurrent


class Forgetful(LSTM):
    """An LSTM whose output is always zero."""

    def step(self, inputs, state):
        h, c = super().step(inputs, state)
        return 0 * h, c


def test_a_cell_derived_from_one_with_a_kernel_runs_its_own_step():
    net = Recurrent([Forgetful(3, 4, LSTM.Settings())])
    outputs, _ = net(torch.randn(2, 5, 3), net.start(2, torch.zeros(())))
    assert outputs.abs().max() == 0


def test_an_open_forget_gate_and_a_shut_input_gate_keep_the_cell_for_ever():
    cell = LSTM(3, 4, LSTM.Settings())
    with torch.no_grad():
        cell.input.weight.zero_()
        cell.recurrent.weight.zero_()
        cell.input.bias.copy_(torch.tensor([-100.0, 100.0, 0.0, 0.0]).repeat_interleave(4))  # i f g o
    c = torch.randn(2, 4)
    _, ((_, after),) = Recurrent([cell])(torch.randn(2, 50, 3), [(torch.zeros(2, 4), c)])
    torch.testing.assert_close(after, c)
