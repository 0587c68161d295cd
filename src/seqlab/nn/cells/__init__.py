"""Recurrent cells. A cell is its equations and nothing else; `Recurrent` owns time, masks, depth and state.

x_t inputs · h_t state and output of a cell · c_t memory · D input width · H state width · σ the logistic function
∘ elementwise product · [a; b] concatenation
"""

from seqlab.nn.cells.cell import Cell, CellState
from seqlab.nn.cells.gru import GRU, MUT1, MUT2, MUT3, ClassicGRU
from seqlab.nn.cells.lstm import LSTM, CoupledLSTM, GatedMemory, Memory, PeepholeLSTM, RecurrentMemory
from seqlab.nn.cells.simple import IRNN, Elman, UnitaryRNN

__all__ = [
    "GRU",
    "IRNN",
    "LSTM",
    "MUT1",
    "MUT2",
    "MUT3",
    "Cell",
    "CellState",
    "ClassicGRU",
    "CoupledLSTM",
    "Elman",
    "GatedMemory",
    "Memory",
    "PeepholeLSTM",
    "RecurrentMemory",
    "UnitaryRNN",
]
