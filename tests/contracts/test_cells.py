"""Every cell in every arrangement: one contract, in double precision."""

import pytest
import torch
from tolerance import close

from seqlab import registry
from seqlab.fusion.loop import maps
from seqlab.nn.recording import record, remarks
from seqlab.nn.recurrent import Arrangement, Recurrent, Stack

ROWS, TIME, WIDTH, HIDDEN = 3, 6, 5, 4
REGULAR = {"recurrent_dropout": 0.3, "weight_drop": 0.3, "zoneout": 0.2, "layer_norm": True}
MASK = torch.arange(TIME) < torch.tensor([6, 2, 4])[:, None]

needs_compiler = pytest.mark.skipif(maps(torch.float64) is None, reason="there is no C++ compiler with OpenMP here")
every_cell = pytest.mark.parametrize("name", registry.CELLS)


def net(name, depth=1, back=False, fuse=False, **arrangement):
    torch.manual_seed(1)
    cls = registry.find("cell", name)
    own = Arrangement(**arrangement)
    widths = own.widths_below(WIDTH, HIDDEN * (1 + back), depth)
    cells, others = ([cls(width, HIDDEN, cls.Settings(kind=name)) for width in widths] for _ in range(2))
    made = Recurrent(cells, back=others if back else (), arrangement=own, fuse=fuse).double()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(0.1 * torch.randn_like(weight))  # nothing is zero, nothing is special
    for cell in [*made.layers, *made.back]:
        cell.library = lambda x, state: None
    return made


def some(rows=ROWS, time=TIME):
    return torch.randn(rows, time, WIDTH, dtype=torch.double, generator=torch.Generator().manual_seed(3))


def results(model, x, mask=None):
    """Outputs, states and all gradients; the same noise each time."""
    x = x.clone().requires_grad_()
    start = [tuple(torch.full_like(part, 0.1).requires_grad_() for part in layer) for layer in model.start(len(x), x)]
    model.zero_grad()
    torch.manual_seed(5)
    outputs, after = model(x, start, mask)
    values = [outputs, *(part for layer in after for part in layer)]
    sum((value * torch.linspace(-1, 2, value.numel()).view_as(value)).sum() for value in values).backward()
    leaves = [x, *(part for layer in start for part in layer), *model.parameters()]
    return [*values, *(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves)]


@needs_compiler
@every_cell
@pytest.mark.parametrize("arrangement", [{}, REGULAR], ids=["plain", "regularised"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_the_compiled_loop_equals_step_by_step(name, arrangement, mask):
    """Forward and backward, in both directions."""
    plain, fused = (net(name, back=True, fuse=fuse, **arrangement) for fuse in (False, True))
    said = []
    with remarks(said.append):
        found = results(fused, some(), mask)
    assert all("compiled loop" in one for one in said), said
    for a, b in zip(found, results(plain, some(), mask), strict=True):
        close(a, b)


@needs_compiler
@every_cell
def test_gradients_equal_differences(name):
    model = net(name, fuse=True)
    x, state = some(2, 3).requires_grad_(), [part.requires_grad_() for part in model.start(2, some())[0]]

    def run(x, *state):
        outputs, (after,) = model(x, [state])
        return outputs, *after

    assert torch.autograd.gradcheck(run, (x, *state))


@every_cell
@pytest.mark.parametrize("connections", ["plain", "residual", "highway", "skip"])
@pytest.mark.parametrize("back", [False, True], ids=["there", "both ways"])
def test_padding_and_neighbours_change_nothing(name, connections, back):
    model = net(name, depth=2, back=back, connections=connections).eval()
    x = some()
    outputs, after = model(x, model.start(ROWS, x), MASK)
    for row, length in enumerate(MASK.sum(1).tolist()):
        alone, last = model(x[row : row + 1, :length], model.start(1, x))
        close(outputs[row, :length], alone[0])
        for a, b in zip([p for layer in after for p in layer], [p for layer in last for p in layer], strict=True):
            close(a[row], b[0])


@every_cell
def test_both_directions_are_two_runs(name):
    model = net(name, back=True).eval()
    x = some()
    outputs, _ = model(x, model.start(ROWS, x), MASK)
    there, back = Recurrent(list(model.layers)), Recurrent(list(model.back))
    for row, length in enumerate(MASK.sum(1).tolist()):
        own = x[row : row + 1, :length]
        forward, _ = there(own, there.start(1, own))
        backward, _ = back(own.flip(1), back.start(1, own))
        close(outputs[row, :length], torch.cat([forward, backward.flip(1)], -1)[0])


@every_cell
@pytest.mark.parametrize("back", [False, True], ids=["there", "both ways"])
def test_layers_of_different_cells_are_run_one_after_the_other(name, back):
    other = "elman" if name == "lstm" else "lstm"
    stack = Stack(cell=[name, other]).built(WIDTH, HIDDEN, torch.nn.Identity(), both_ways=back).double()
    assert [type(cell) for cell in stack.layers] == [registry.find("cell", kind) for kind in (name, other)]
    x = some()
    outputs, after = stack(x, stack.start(ROWS, x), MASK)
    for number, cell in enumerate(stack.layers):
        alone = Recurrent([cell], back=[stack.back[number]] if back else ())
        x, (last,) = alone(x, alone.start(ROWS, x), MASK)
        assert all(torch.equal(a, b) for a, b in zip(after[number], last, strict=True))
    assert torch.equal(outputs, x)


@every_cell
@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=needs_compiler)])
def test_pieces_with_the_state_carried_equal_one_long_run(name, fuse):
    model = net(name, depth=2, fuse=fuse, layer_norm=True, zoneout=0.3).eval()
    x = some()
    whole, last = model(x, model.start(ROWS, x))
    state, pieces = model.start(ROWS, x), []
    for start, stop in [(0, 1), (1, 4), (4, 6)]:
        piece, state = model(x[:, start:stop], state)
        pieces.append(piece)
    close(torch.cat(pieces, 1), whole)
    for a, b in zip([p for layer in state for p in layer], [p for layer in last for p in layer], strict=True):
        close(a, b)


@every_cell
@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=needs_compiler)])
def test_recording_changes_no_bit(name, fuse):
    model = net(name, fuse=fuse).eval()
    x = some()
    plain, _ = model(x, model.start(ROWS, x))
    with record(model, "layers.0") as tape:
        recorded, _ = model(x, model.start(ROWS, x))
    assert torch.equal(plain, recorded)
    cell, notes = model.layers[0], tape["layers.0"]
    close(notes["h"][0], plain)
    assert all(len(values) == 1 and values[0].shape == (ROWS, TIME, HIDDEN) for values in notes.values())
    gates = [notes[name][0] for name in notes if name not in cell.parts]
    assert all(gate.min() > 0 and gate.max() < 1 for gate in gates)


@pytest.mark.parametrize("name", [name for name in registry.CELLS if registry.find("cell", name).shrinks is not None])
def test_a_cell_says_how_large_what_it_gives_is(name):
    torch.manual_seed(0)
    cls = registry.find("cell", name)
    cell = cls(64, 64, cls.Settings(kind=name))
    for block in cell.input.weight.data.split(64):
        torch.nn.init.orthogonal_(block)
    one, x = Recurrent([cell]), 0.1 * torch.randn(32, 10, 64)
    given = (one(x, one.start(32, x))[0][:, -1].std() / x.std()).item()
    assert 0.8 * cell.shrinks < given < 1.3 * cell.shrinks
