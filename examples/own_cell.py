"""A recurrent cell of your own, trained beside the LSTM.

    python own_cell.py
    seqlab train lm/char model.cell=minimal --code own_cell.py      # the same cell on the command line

A cell is its equations: one step, in plain PyTorch. seqlab compiles that into a loop over time, forward and backward,
and adds what every cell can have: depth, both directions, masks, dropout, zoneout, carried state.
"""

import torch

import seqlab
from seqlab.nn.cells import Cell
from seqlab.nn.recording import note


class Minimal(Cell):
    """f = σ(W_f x + U_f h + b_f), h' = (1 − f) ∘ h + f ∘ tanh(W x + f ∘ U h + b): one gate instead of three.

    After Zhou et al. 2016, https://arxiv.org/abs/1603.09420, with the gate after the product U h.
    """

    blocks = 2  # of rows in the matrices W and U: one for the gate, one for the new value

    def step(self, inputs, state):
        (h,) = state
        gate_x, new_x = inputs.chunk(2, dim=-1)  # W x + b, computed for all steps at once
        gate_h, new_h = self.recurrent(h).chunk(2, dim=-1)
        f = note(self, "forget", self.sigmoid(gate_x + gate_h))  # now `seqlab.record` sees this gate
        return ((1 - f) * h + f * torch.tanh(new_x + f * new_h),)


seqlab.register("cell", "minimal", Minimal)


def main():
    runs = {}
    for cell in ("minimal", "lstm"):
        print(f"training {cell} …", flush=True)
        settings = {"model.cell": cell, "model.width": 128, "training.steps": 320}
        runs[cell] = seqlab.train("lm/char", settings)

    print("\nbits per character of held-out text\n\nstep   ", end="")
    evaluated = {cell: [entry for entry in run.log if "valid" in entry] for cell, run in runs.items()}
    print(*(f"{entry['step']:6}" for entry in evaluated["lstm"]), "   weights  seconds")
    for cell, run in runs.items():
        bits = [f"{entry['valid']['bits_per_character']:6.2f}" for entry in evaluated[cell]]
        seconds = sum(entry.get("seconds", 0) for entry in run.timing)
        print(f"{cell:7}", *bits, f"{run.parameters:10,} {seconds:8.1f}")

    print("\nthe minimal cell writes:\n")
    print("The list" + runs["minimal"].generate("The list", tokens=200, temperature=0.6, seed=1)[0])


if __name__ == "__main__":
    main()
