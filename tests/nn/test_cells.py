"""Cells derived from others."""

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
