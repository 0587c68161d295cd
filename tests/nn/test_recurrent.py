"""What `Recurrent` adds to cells, and the gates that the sources print."""

import pytest
import torch
from tolerance import close
from torch import nn
from torch.utils.checkpoint import checkpoint

from seqlab.fusion.loop import maps
from seqlab.nn.cells import GRU, LSTM, Cell, ClassicGRU, Elman, GatedMemory, Memory, UnitaryRNN
from seqlab.nn.recording import record, remarks
from seqlab.nn.recurrent import Arrangement, Recurrent

needs_compiler = pytest.mark.skipif(maps(torch.float32) is None, reason="there is no C++ compiler with OpenMP here")


def run(model, x, state=None):
    said = []
    with remarks(said.append):
        outputs, after = model(x, state or model.start(len(x), x))
    return outputs, after, said


# ---------------------------------------------------------------------- regularizers


def test_zoneout_keeps_its_share_of_every_part():
    torch.manual_seed(0)
    model = Recurrent([LSTM(3, 400)], arrangement=Arrangement(zoneout=0.25))
    start = [tuple(torch.full((50, 400), 7.0) for _ in range(2))]
    _, [(h, c)], _ = run(model, torch.randn(50, 1, 3), start)
    for part in (h, c):
        assert (part == 7).float().mean().item() == pytest.approx(0.25, abs=0.01)
    _, [(calm, _)], _ = run(model.eval(), torch.randn(50, 1, 3), start)
    assert not (calm == 7).any()


def test_recurrent_dropout_has_one_mask_for_all_steps():
    """With U = I and no inputs, relu(U (m ∘ h)) keeps of a state only what the mask keeps at every step."""
    torch.manual_seed(0)
    cell = Elman(1, 500, Elman.Settings(kind="elman", activation="relu"))
    nn.init.eye_(cell.recurrent.weight)
    model = Recurrent([cell], arrangement=Arrangement(recurrent_dropout=0.4))
    outputs, _, _ = run(model, torch.zeros(20, 5, 1), [(torch.ones(20, 500),)])
    gone = outputs == 0
    assert all(torch.equal(gone[:, 0], gone[:, t]) for t in range(5))
    assert gone[:, 0].float().mean().item() == pytest.approx(0.4, abs=0.02)
    expected = torch.full((int((~gone[:, 4]).sum()),), 0.6**-5.0)
    close(outputs[:, 4][~gone[:, 4]], expected, steps=500 * 5)  # five sums over 500, of which one term counts


def test_weight_drop_has_one_mask_for_all_rows_and_steps():
    torch.manual_seed(0)
    cell = Elman(1, 200, Elman.Settings(kind="elman", activation="relu"))
    nn.init.ones_(cell.recurrent.weight)
    model = Recurrent([cell], arrangement=Arrangement(weight_drop=0.5))
    outputs, _, _ = run(model, torch.zeros(3, 1, 1), [(torch.ones(3, 200),)])
    assert torch.equal(outputs[0], outputs[1])
    assert outputs[0].mean().item() == pytest.approx(200, rel=0.02)
    assert outputs[0].std() > 1


@pytest.mark.usefixtures("double")
def test_residual_adds_and_highway_passes_at_first():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    one, two = (Recurrent([GRU(8, 8)], fuse=False) for _ in range(2))
    both = Recurrent([*one.layers, *two.layers], arrangement=Arrangement(connections="residual"), fuse=False)
    below = run(one, x)[0]
    close(run(both, x)[0], below + run(two, below)[0])
    highway = Recurrent([*one.layers, *two.layers], arrangement=Arrangement(connections="highway"), fuse=False)
    nn.init.constant_(highway.gates[0].bias, -50.0)
    close(run(highway, x)[0], below)


# ---------------------------------------------------------------------- the compiled loop


class Own(Cell):
    """A cell as someone else would write it."""

    def __init__(self, input_width, width, act):
        super().__init__(input_width, width)
        self.act = act

    def step(self, inputs, state):
        (h,) = state
        return (self.act(self, inputs + self.recurrent(h), h),)


KNOWN = {
    "softmax": lambda cell, z, h: torch.softmax(z, -1),
    "layer norm": lambda cell, z, h: nn.functional.layer_norm(z, z.shape[-1:]),
    "a width of one": lambda cell, z, h: torch.tanh(z) * torch.sigmoid(z[:, :1]) + h.mean(-1, keepdim=True),
    "slices that cross": lambda cell, z, h: (
        torch.cat([z[:, 3:], h[:, :3]], -1)[:, 1:-1].tanh().sum(-1, keepdim=True) + h
    ),
    "maxima": lambda cell, z, h: torch.maximum(z, h).clamp(-1, 1) + torch.minimum(z, h).abs().sqrt(),
    "many functions": lambda cell, z, h: (
        nn.functional.softplus(z) * torch.exp(-z.abs()) + torch.sin(z) * z.cos() / (1 + h * h)
    ),
    "more functions": lambda cell, z, h: (
        nn.functional.elu(z) - nn.functional.leaky_relu(h) + nn.functional.silu(z) ** 2
    ),
    "a product by hand": lambda cell, z, h: torch.tanh(z + (h * h) @ cell.recurrent.weight),
    "where": lambda cell, z, h: torch.where(z > h, z, 0.5 * h.detach()).lerp(h, 0.3),
}
UNKNOWN = {
    "a cumulative sum": lambda cell, z, h: torch.tanh(z.cumsum(-1)),
    "something random": lambda cell, z, h: torch.tanh(z) * torch.rand(z.shape[-1]).round().clamp(1, 1),
    "something in place": lambda cell, z, h: z.tanh_(),
    "a look at a number": lambda cell, z, h: torch.tanh(z) if h.sum() < 1e9 else z,
    "rows that are mixed": lambda cell, z, h: torch.tanh(z - z.mean(0, keepdim=True)),
}


@needs_compiler
@pytest.mark.parametrize("what", KNOWN)
def test_what_a_cell_of_ones_own_may_do(what):
    torch.manual_seed(0)
    cell = Own(3, 21, KNOWN[what]).double()
    x, state = torch.randn(4, 5, 3).double().requires_grad_(), [(torch.rand(4, 21).double(),)]
    gradients = []
    for fuse in (True, False):
        outputs, _, said = run(Recurrent([cell], fuse=fuse), x, state)
        assert ("compiled loop" in said[0]) == fuse, said
        weights = torch.linspace(-1, 1, outputs.numel()).view_as(outputs)
        gradients.append([outputs, *torch.autograd.grad((outputs * weights).sum(), [x, *cell.parameters()])])
    for a, b in zip(*gradients, strict=True):
        close(a, b)


@needs_compiler
@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_in_a_compiled_loop_runs_step_by_step(what):
    cell = Own(3, 8, UNKNOWN[what])
    outputs, _, said = run(Recurrent([cell]), torch.randn(4, 5, 3))
    assert "step by step" in said[0]
    expected, _, _ = run(Recurrent([cell], fuse=False), torch.zeros(4, 5, 3))
    assert outputs.shape == expected.shape


class Twins(Cell):
    """Both parts of its state are one tensor, but they may begin differently."""

    parts = ("h", "c")

    def step(self, inputs, state):
        h, c = state
        h = torch.tanh(inputs + self.recurrent(h) * c)
        return h, h


@needs_compiler
def test_two_parts_of_a_state_that_are_one():
    torch.manual_seed(0)
    cell, x = Twins(3, 5).double(), torch.randn(2, 4, 3).double()
    state = tuple(torch.randn(2, 5).double().requires_grad_() for _ in range(2))
    found = []
    for fuse in (True, False):
        outputs, _, _ = run(Recurrent([cell], fuse=fuse), x, [state])
        found.append(torch.autograd.grad(outputs.square().sum(), [*state, *cell.parameters()]))
    for a, b in zip(*found, strict=True):
        close(a, b)


def test_recording_changes_no_bit_of_the_librarys_kernel():
    model, x = Recurrent([LSTM(4, 9)], fuse=False), torch.randn(2, 7, 4)
    plain, _, said = run(model, x)
    assert "PyTorch's kernel" in said[0]
    with record(model) as tape:
        recorded, _, _ = run(model, x)
    assert torch.equal(plain, recorded)
    assert tape["layers.0"]["forget"][0].shape == (2, 7, 9)


@needs_compiler
def test_backward_twice_partly_and_with_checkpoints():
    torch.manual_seed(0)
    model, x = Recurrent([LSTM(4, 9)]), torch.randn(2, 7, 4, requires_grad=True)
    outputs, _, _ = run(model, x)
    first = torch.autograd.grad(outputs.square().sum(), [x, *model.parameters()], retain_graph=True)
    again = torch.autograd.grad(outputs.square().sum(), [x, *model.parameters()], retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    (alone,) = torch.autograd.grad(outputs.square().sum(), [model.layers[0].recurrent.weight])
    assert torch.equal(alone, first[3])
    saved = checkpoint(lambda x: model(x, model.start(2, x))[0], x, use_reentrant=False)
    under = torch.autograd.grad(saved.square().sum(), [x, *model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(first, under, strict=True))


@needs_compiler
def test_gradients_of_gradients_are_refused_in_words():
    model, x = Recurrent([GRU(4, 9)]), torch.randn(2, 7, 4, requires_grad=True)
    outputs, _, _ = run(model, x)
    with pytest.raises(RuntimeError, match="fuse=False"):
        torch.autograd.grad(outputs.sum(), [x], create_graph=True)


@needs_compiler
def test_threads_and_rows_change_no_bit():
    torch.manual_seed(0)
    model, x = Recurrent([ClassicGRU(4, 33)]).eval(), torch.randn(9, 7, 4)
    whole, _, _ = run(model, x)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert torch.equal(run(model, x)[0], whole)
    state = model.start(9, x)
    inputs = model.layers[0].inputs(x.transpose(0, 1))
    model.layers[0].inputs = lambda x: inputs[:, : x.shape[1]].contiguous()  # F.linear's own bits depend on the rows
    assert torch.equal(model(x[:2], [(state[0][0][:2],)])[0], whole[:2])


# ---------------------------------------------------------------------- memory


def kept(model, x, state):
    """Bytes that are kept for the backward pass, and the states after the last step."""
    storages = {}

    def pack(tensor):
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs, after = model(x, state)
        outputs.sum().backward()
    return sum(storage.nbytes() for storage in storages.values()), after


@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=needs_compiler)])
@pytest.mark.parametrize("cell", [LSTM(8, 16), GRU(8, 16), Own(8, 16, lambda cell, z, h: 0.9 * h + 0.1 * z.tanh())])
def test_memory_grows_as_the_length_does_and_not_with_windows(cell, fuse):
    model = Recurrent([cell], fuse=fuse)
    cell.library = lambda x, state: None
    x = torch.randn(4, 320, 8)
    short, middle, long = (kept(model, x[:, :time], model.start(4, x))[0] for time in (80, 160, 320))
    assert long - middle == pytest.approx(2 * (middle - short), rel=0.02)
    state, windows = model.start(4, x), []
    for window in x.split(40, 1):
        size, after = kept(model, window, state)
        state = [tuple(part.detach() for part in layer) for layer in after]
        windows.append(size)
    assert max(windows) <= 1.02 * min(windows) < short


# ---------------------------------------------------------------------- what the sources print


def test_nothing_is_lost_in_an_additive_memory():
    cell = Memory(3, 5)
    c = torch.randn(1, 5, requires_grad=True)
    _, after = cell.step(cell.inputs(torch.randn(1, 3)), (torch.zeros(1, 5), c))
    jacobian = torch.stack([torch.autograd.grad(after[0, i], c, retain_graph=True)[0][0] for i in range(5)])
    assert torch.equal(jacobian, torch.eye(5))


@pytest.mark.parametrize("cls", [LSTM, GatedMemory])
def test_an_open_forget_gate_keeps_the_memory_for_ever(cls):
    cell = cls(3, 5)
    with torch.no_grad():
        cell.input.weight.zero_()
        cell.recurrent.weight.zero_()
        cell.input.bias[:5], cell.input.bias[5:10] = -200.0, 200.0
    c = torch.randn(2, 5)
    _, [(_, after)], _ = run(Recurrent([cell]), torch.randn(2, 100, 3), [(torch.zeros(2, 5), c)])
    assert torch.equal(after, c)


@pytest.mark.parametrize(("cell", "shut"), [(GRU(3, 5), 200.0), (ClassicGRU(3, 5), 200.0)])
def test_a_shut_update_gate_keeps_the_state(cell, shut):
    with torch.no_grad():
        cell.input.bias[5:10] = shut
    h = torch.randn(2, 5).tanh()
    _, [(after,)], _ = run(Recurrent([cell]), torch.randn(2, 50, 3), [(h,)])
    close(after, h, steps=50)


@pytest.mark.usefixtures("double")
def test_the_two_senses_of_the_update_gate():
    keeps = ClassicGRU(3, 5, ClassicGRU.Settings(kind="classic-gru"))
    takes = ClassicGRU(3, 5, ClassicGRU.Settings(kind="classic-gru", update="takes"))
    takes.load_state_dict(keeps.state_dict())
    with torch.no_grad():  # 1 − σ(a) = σ(−a)
        takes.input.weight[5:10].neg_()
        takes.input.bias[5:10].neg_()
        takes.recurrent.weight[5:10].neg_()
    x = torch.randn(2, 6, 3)
    close(run(Recurrent([keeps]), x)[0], run(Recurrent([takes]), x)[0])


@pytest.mark.usefixtures("double")
def test_one_matrix_over_both_is_the_sum_of_two():
    cell, x, h = Elman(3, 5), torch.randn(2, 3), torch.randn(2, 5)
    joint = torch.cat([cell.input.weight, cell.recurrent.weight], 1)
    expected = torch.tanh(torch.cat([x, h], 1) @ joint.t() + cell.input.bias)
    close(cell.step(cell.inputs(x), (h,))[0], expected)


def test_a_gru_has_three_quarters_of_an_lstm():
    count = {cls: sum(p.numel() for p in cls(64, 64).parameters() if p.dim() > 1) for cls in (GRU, ClassicGRU, LSTM)}
    assert count[GRU] == count[ClassicGRU] == 3 * count[LSTM] // 4


def test_a_unitary_net_stays_unitary_while_it_learns():
    torch.manual_seed(0)
    model = Recurrent([UnitaryRNN(2, 64)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    x = torch.randn(8, 20, 2)
    for _ in range(60):
        optimizer.zero_grad()
        (run(model, x)[0][:, -1].mean(-1) - x.sum((1, 2))).square().mean().backward()
        optimizer.step()
    u = model.layers[0].recurrent.weight.detach()
    close(u @ u.t(), torch.eye(64), steps=64)


def test_a_unitary_net_of_odd_width():
    with pytest.raises(ValueError, match="even"):
        UnitaryRNN(3, 5)
