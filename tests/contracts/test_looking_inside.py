"""What a look inside promises, for every model that is shipped: recording changes no bit, in whatever way a model is
used, and an intervention is what a plain hook of PyTorch does."""

import copy
from functools import cache

import pytest
import shipped_models
import shipped_translators
import torch
from answering_tasks import classification, forecasting, tagging, trees
from shipped_translators import VOCAB, some_sources
from tolerance import SMALL_NET, close
from torch import nn

import seqlab
from seqlab import registry
from seqlab.data.randomness import Key
from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.generate import generate
from seqlab.decoding.packing import packed
from seqlab.models.conv import GatedConvolution
from seqlab.nn.attention import DotProduct
from seqlab.nn.cells import Cell
from seqlab.nn.dropout import VariationalDropout
from seqlab.nn.interventions import Replace, Scale, Set, intervene
from seqlab.nn.recording import record
from seqlab.recipe import Recipe, part_settings
from seqlab.recipe_tree import RecipeTree

WRITERS, READERS = shipped_models.BUILDERS, shipped_translators.BUILDERS
EVERY = [*(("writes", name) for name in WRITERS), *(("translates", name) for name in READERS)]
LOUD = [(kind, name) for kind, name in EVERY if not name.startswith("ngram")]
"""Those that have parts which note anything."""
SOURCE = some_sources([7, 5, 1, 3, 7, 20])
TOKENS = torch.randint(VOCAB, (6, 9), generator=torch.Generator().manual_seed(1))
MASK = torch.arange(9) < torch.tensor([9, 4, 7, 1, 9, 3])[:, None]

every = pytest.mark.parametrize(("kind", "name"), EVERY)
loud = pytest.mark.parametrize(("kind", "name"), LOUD)


def built(kind, name):
    return (shipped_models if kind == "writes" else shipped_translators).build(name)


@cache
@torch.inference_mode(False)  # whoever asks first
def exact(kind, name):
    return (shipped_models if kind == "writes" else shipped_translators).exact(name)


def forward(model, kind, mask=None):
    """Logits of all positions, read at once."""
    return model.logits(model(TOKENS, None, mask, SOURCE if kind == "translates" else None).states)


def by_steps(model, kind):
    """The same, a prompt of three tokens and then one after the other, with two rows for each source."""
    rows = TOKENS.repeat_interleave(2, 0)
    state, found = model.start(SOURCE if kind == "translates" else None, len(rows)), []
    for start, stop in [(0, 3), *((time, time + 1) for time in range(3, 9))]:
        output = model(rows[:, start:stop], state)
        found.append(model.logits(output.states))
        state = output.state
    return torch.cat(found, 1)


def train_step(model, kind):
    """The loss under dropout, and all gradients."""
    model.train().zero_grad()
    torch.manual_seed(3)
    output = model(TOKENS, None, MASK, SOURCE if kind == "translates" else None)
    loss = model.losses(output.states[MASK], TOKENS[MASK]).sum()
    if loss.requires_grad:
        loss.backward()
    gradients = [torch.zeros(()) if weight.grad is None else weight.grad for weight in model.parameters()]
    return [loss.detach(), *(one.clone() for one in gradients)]


def noisy(model):
    """With dropout wherever there can be any."""
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.2
        elif isinstance(part, VariationalDropout):
            part.rate = 0.2
        elif isinstance(part, DotProduct):
            part.dropout = 0.1
    return model


def all_equal(found, expected):
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


# ---------------------------------------------------------------------- recording changes no bit


@every
@torch.no_grad()
def test_no_bit_of_a_forward_pass(kind, name):
    model = built(kind, name)
    for mask in (None, MASK):
        plain = forward(model, kind, mask)
        with record(model) as tape:
            recorded = forward(model, kind, mask)
        assert torch.equal(plain, recorded)
        assert bool(tape) == (not name.startswith("ngram"))


@every
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@torch.no_grad()
def test_no_bit_of_single_steps(kind, name, pack):
    model = packed(built(kind, name)) if pack else built(kind, name)
    plain = by_steps(model, kind)
    with record(model) as tape:
        recorded = by_steps(model, kind)
    assert torch.equal(plain, recorded)
    of_steps = [notes for path, notes in tape.items() if not path.startswith("encoder")]
    lengths = {len(values) for notes in of_steps for values in notes.values()}
    assert lengths <= {7}, "one for each time that a part ran"


@every
@torch.no_grad()
def test_no_bit_of_decoding(kind, name):
    """Sampling and beam search with the packed twin, whose blocks are compiled."""
    model, source = packed(built(kind, name)), SOURCE if kind == "translates" else None
    prompts = [[0]] * 6 if kind == "translates" else [[1, 2], [3], [4, 5, 6]]

    def decoded():
        written = list(generate(model, prompts, tokens=8, source=source))
        return written, beam_search(model, prompts, Beam(3, 0.6), 8, frozenset({0}), source)

    plain = decoded()
    with record(model):
        assert decoded() == plain


@every
def test_no_bit_of_a_step_of_training(kind, name):
    model = noisy(built(kind, name))
    plain = train_step(model, kind)
    with record(model) as tape:
        recorded = train_step(model, kind)
    assert all_equal(recorded, plain)
    assert not any(one.requires_grad for notes in tape.values() for values in notes.values() for one in values)


TRANSFORMER = {"kind": "transformer-encoder", "width": 8, "heads": 2, "depth": 2}
DEEP = {"kind": "deep-encoder", "width": 6, "both_ways": "first", "depth": 2}
CHARACTERS = {"kind": "recurrent-encoder", "width": 6, "depth": 2, "characters": "recurrent", "connections": "highway"}
TASKS = {
    "classes": (classification, {}),
    "classes, summarised by attention": (lambda folder: classification(folder, summary="attention"), {}),
    "classes, transformer": (classification, {"model": TRANSFORMER}),
    "classes, deep": (classification, {"model": DEEP}),
    "classes, convolutional": (classification, {"model": {"kind": "convolutional-encoder", "width": 6, "depth": 2}}),
    "tags": (tagging, {}),
    "tags, characters": (tagging, {"model": CHARACTERS}),
    "trees": (trees, {}),
    "trees, LSTM": (trees, {"model": {"kind": "tree-encoder", "width": 6, "cell": "tree-lstm"}}),
    "forecasts, dense": (forecasting, {"model": {"kind": "series-dense", "hidden_widths": [5]}}),
    "forecasts, linear": (forecasting, {"model": "series-linear"}),
    "forecasts, recurrent": (forecasting, {"model": {"kind": "series-recurrent", "cell": "gru", "width": 5}}),
    "forecasts, transformer": (forecasting, {"model": {"kind": "series-transformer", "width": 8, "heads": 2}}),
}


@pytest.mark.parametrize("name", TASKS)
def test_no_bit_of_tasks_that_write_nothing(name, tmp_path):
    make, more = TASKS[name]
    settings = {"name": "test", **make(tmp_path), **more, "training": {"steps": 1, "batch_size": 4}}
    run = seqlab.train(Recipe.from_dict(settings), out=tmp_path / "run")
    objective, split = noisy(run.objective), run.held_out()
    batch = split.batch(next(iter(split.order(8, seed=0).once()))[1], Key(0, 0))

    def results():
        objective.train().zero_grad()
        torch.manual_seed(3)
        loss = objective(batch).sum
        loss.backward()
        gradients = [weight.grad.clone() for weight in objective.parameters() if weight.grad is not None]
        return [loss.detach(), *gradients], list(run.answers(split))

    (numbers, answers) = results()
    with record(objective) as tape:
        recorded, answered = results()
    assert all_equal(recorded, numbers)
    assert answered == answers
    assert bool(tape) == (name != "forecasts, linear")  # which is one map


def test_every_registered_model_is_among_them():
    covered = {"ngram", "mlp", "recurrent", "convolutional", "gpt", "mixture"}
    covered |= {"translator", "transformer", "recurrent-translator", "convolutional-translator"}
    covered |= {"recurrent-encoder", "transformer-encoder", "deep-encoder", "convolutional-encoder", "tree-encoder"}
    covered |= {f"series-{kind}" for kind in ("dense", "linear", "recurrent", "transformer")}
    assert covered >= set(registry.MODELS) - {"run"}  # that is the model of another run


# ---------------------------------------------------------------------- what is recorded


@loud
@torch.no_grad()
def test_a_packed_twin_has_the_same_paths_names_and_shapes(kind, name):
    model = built(kind, name)
    twin, tapes = packed(model), []
    for one in (model, twin):
        with record(one) as tape:
            by_steps(one, kind)
        tapes.append({path: {key: notes[key][-1] for key in notes} for path, notes in tape.items()})
    plain, found = tapes
    assert {path: set(notes) for path, notes in found.items()} == {path: set(notes) for path, notes in plain.items()}
    for path, notes in plain.items():
        for key, value in notes.items():
            assert found[path][key].shape == value.shape
            if path.startswith("encoder") and value.dim() == 2:
                continue
            close(found[path][key], value, steps=50 * SMALL_NET, size=max(1.0, float(value.abs().max())))


def test_what_is_noted_says_what_it_is():
    model = exact("translates", "transformer")
    with torch.no_grad(), record(model) as tape:
        forward(model, "translates")
    assert tape["decoder.blocks.1.attend"]["weights"][0].shape == (6, 3, 9, 9)
    assert tape["decoder.blocks.1.cross_attend"]["weights"][0].shape == (6, 3, 9, 20)
    assert tape["decoder.blocks.1.cross_attend"]["heads"][0].shape == (6, 3, 9, 8)
    assert tape["encoder.blocks.0"]["output"][0].shape == (6, 20, 24)
    assert tape["decoder.blocks.0.feed"]["hidden"][0].shape == (6, 9, 96)
    x = tape["decoder"]["embedded"][0]
    for number in range(2):
        block = tape[f"decoder.blocks.{number}"]
        x = x + sum(tape[f"decoder.blocks.{number}.{part}"]["output"][0] for part in ("attend", "cross_attend", "feed"))
        close(block["output"][0], x)
    model = exact("translates", "v3")
    with torch.no_grad(), record(model, "encoder.layers.0.back", ("decoder.attention", "weights")) as tape:
        forward(model, "translates")
    assert list(tape) == ["encoder.layers.0.back.0", "decoder.attention"]
    assert set(tape["encoder.layers.0.back.0"]) == {"input", "forget", "output", "h", "c"}
    assert tape["encoder.layers.0.back.0"]["forget"][0].shape == (6, 20, 10)
    assert list(tape["decoder.attention"]) == ["weights"]
    assert tape["decoder.attention"]["weights"][0].shape == (6, 1, 9, 20)


# ---------------------------------------------------------------------- interventions


def places(model, kind):
    with torch.no_grad(), record(model) as tape:
        forward(model, kind)
    return {(path, name): values for path, notes in tape.items() for name, values in notes.items()}


@loud
@torch.no_grad()
def test_setting_what_was_there_changes_nothing(kind, name):
    """At all places at once, so that nothing is computed by a kernel any more."""
    model = exact(kind, name)
    plain = forward(model, kind)
    once = {place: Set(values[0]) for place, values in places(model, kind).items() if len(values) == 1}
    assert once
    with intervene(model, once):
        found = forward(model, kind)
    close(found, plain, steps=50 * SMALL_NET)


@loud
@torch.no_grad()
def test_what_is_changed_anywhere_is_seen_in_the_end(kind, name):
    """At every place: what is noted is what the model goes on with."""
    model = exact(kind, name)
    plain = forward(model, kind)
    for place in places(model, kind):
        with intervene(model, {place: Replace(lambda value: value.roll(1, -1) * 0.7)}), record(model, place) as tape:
            found = forward(model, kind)
        assert tape[place[0]][place[1]]
        unread = name.startswith("v1") and place[0] == "encoder.layers.0" and place[1] == f"outputs.{'-' in name:d}"
        assert torch.equal(found, plain) == unread, place  # without attention, only the last states are read


@loud
@torch.no_grad()
def test_an_output_is_changed_as_by_a_hook(kind, name):
    """All parts that note their result as `output`."""
    model = exact(kind, name)
    for path, key in places(model, kind):
        part = model.get_submodule(path)
        if key != "output" or isinstance(part, Cell | GatedConvolution):
            continue

        def change(value):
            return torch.tanh(value) * 0.5

        def hook(part, inputs, output):
            return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

        handle = part.register_forward_hook(hook)
        expected = forward(model, kind)
        handle.remove()
        with intervene(model, {(path, key): Replace(change)}):
            found = forward(model, kind)
        close(found, expected, steps=50 * SMALL_NET)


ATTENDING = [(kind, name) for kind, name in EVERY if name.startswith(("gpt", "transformer"))]


@pytest.mark.parametrize(("kind", "name"), ATTENDING)
@torch.no_grad()
def test_a_head_without_output_is_columns_without_input(kind, name):
    model = exact(kind, name)
    for path, key in places(model, kind):
        if key != "heads":
            continue
        part = model.get_submodule(path)
        width, expected = part.head_width, None

        def without(linear, inputs, width=width):
            x = inputs[0].clone()
            x[..., width : 2 * width] = 0
            return (x,)

        handle = part.output.register_forward_pre_hook(without)
        expected = forward(model, kind)
        handle.remove()
        for place, change in ((("heads", Scale(0, heads=1))), ("weights", Set(0.0, heads=[1]))):
            with intervene(model, {(path, place): change}):
                close(forward(model, kind), expected)


@pytest.mark.parametrize(("kind", "name"), ATTENDING)
@torch.no_grad()
def test_packed_models_are_changed_as_plain_ones(kind, name):
    """A head, a unit of a feed-forward part and a whole block, of one block; the others are still compiled."""
    model = built(kind, name)
    twin, blocks = packed(model), "decoder.blocks.1" if kind == "translates" and "-" not in name else None
    path = blocks or next(path for path, _ in places(model, kind) if path.endswith("blocks.0"))
    changes = {
        (f"{path}.attend", "heads"): Scale(0.0, heads=0),
        (f"{path}.feed", "hidden"): Set(1.0, units=[2, 3]),
        (path, "output"): Scale(1.1, units=-1),
    }
    for place, change in changes.items():
        plain, found = [], []
        for one, kept in ((model, plain), (twin, found)):
            with intervene(one, {place: change}):
                kept.append(by_steps(one, kind))
        close(found[0], plain[0], steps=50 * SMALL_NET)
        assert not torch.equal(found[0], by_steps(twin, kind))


@torch.no_grad()
def test_uniform_weights_find_the_mean():
    model = exact("translates", "transformer")
    cross_attend = model.decoder.blocks[0].cross_attend
    real = SOURCE["mask"][:, None, None].double()
    mean = {("decoder.blocks.0.cross_attend", "weights"): Set(real / real.sum(-1, keepdim=True))}
    with record(model, "decoder.blocks.0.cross_attend", "encoder.blocks.1") as tape, intervene(model, mean):
        forward(model, "translates")
    states = model.encoder.norm(tape["encoder.blocks.1"]["output"][0])
    values = cross_attend.key_value(states).chunk(2, -1)[1]
    means = (values * SOURCE["mask"][..., None]).sum(1) / SOURCE["mask"].sum(1, keepdim=True)
    found = tape["decoder.blocks.0.cross_attend"]["output"][0]
    close(found, cross_attend.output(means)[:, None].expand_as(found))


@torch.no_grad()
def test_uniform_weights_of_a_recurrent_translator_are_uniform_attention():
    """A model whose attention is uniform by itself, and one with the same weights that is made so."""
    for name in ("v3", "asks-before", "feeding"):
        model = exact("translates", name)
        real = SOURCE["mask"][:, None, None].double()
        uniform = copy.deepcopy(model)
        uniform.decoder.attention.scores = lambda queries, keys: queries.new_zeros(*queries.shape[:2], keys.shape[1])
        with intervene(model, {("decoder.attention", "weights"): Set(real / real.sum(-1, keepdim=True))}):
            found = forward(model, "translates")
        close(found, forward(uniform, "translates"))


@pytest.mark.parametrize("cell", registry.CELLS)
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_a_state_is_replaced_at_a_step_as_by_hand(cell, back):
    """In a recurrence of two layers; and gradients flow through the change."""
    torch.manual_seed(2)
    settings = RecipeTree({"kind": "recurrent-encoder", "width": 4, "cell": cell, "both_ways": back, "depth": 2})
    model = registry.find("model", "recurrent-encoder")(part_settings("model", settings), VOCAB).double()
    recurrent, x = model.recurrent, torch.randn(3, 6, 4).double()
    path, net = ("recurrent.back.0", recurrent.back[0]) if back else ("recurrent.layers.0", recurrent.layers[0])
    new = torch.randn(3, 1, 4).double().requires_grad_()
    part, step = net.parts[-1], 2
    with intervene(model, {(path, part): Set(new, positions=step)}), record(model, path) as tape:
        _, after = recurrent(x, recurrent.start(3, x))
    state, states = tuple(x.new_zeros(3, 4) for _ in net.parts), {}
    for time in reversed(range(6)) if back else range(6):
        state = net.step(net.inputs(x[:, time]), state)
        if time == step:
            state = (*state[:-1], new[:, 0])
        states[time] = state
    count = len(net.parts)
    found = after[0][count:] if back else after[0]
    for one, (name, own) in zip(found, zip(net.parts, state, strict=True), strict=True):
        close(one, own)
        close(tape[path][name][0], torch.stack([states[time][net.parts.index(name)] for time in range(6)], 1))
    by_hand, by_change = (torch.autograd.grad(sum(p.square().sum() for p in end), new)[0] for end in (state, found))
    close(by_change, by_hand)
    assert by_hand.abs().max() > 0


@torch.no_grad()
def test_gates_are_changed_at_chosen_steps_and_units():
    torch.manual_seed(2)
    model = exact("writes", "lstm")
    cell, width = model.recurrent.layers[0], 20
    x = model.embedding(TOKENS)
    with intervene(model, {("recurrent.layers.0", "forget"): Set(0.25, positions=[1, -2], units=[3, 19])}):
        found = forward(model, "writes")
    h = c = x.new_zeros(6, width)
    outputs = []
    for time in range(9):
        i, f, g, o = (cell.input(x[:, time]) + cell.recurrent(h)).chunk(4, -1)
        f = f.sigmoid()
        if time in (1, 7):
            f[:, [3, 19]] = 0.25
        c = f * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
    close(found, model.logits(torch.stack(outputs, 1)))


@torch.no_grad()
def test_a_block_is_patched_from_another_input():
    """The output of a block at two positions is that of another text: as a hook does it."""
    model, other = exact("writes", "gpt"), TOKENS.flip(0)
    with record(model, ("blocks.0", "output")) as tape:
        model(other)
    (clean,) = tape["blocks.0"]["output"]

    def hook(part, inputs, output):
        patched = output.clone()
        patched[:, [2, 5]] = clean[:, [2, 5]]
        return patched

    handle = model.blocks[0].register_forward_hook(hook)
    expected = forward(model, "writes")
    handle.remove()
    with intervene(model, {("blocks.0", "output"): Set(clean[:, [2, 5]], positions=[2, 5])}):
        close(forward(model, "writes"), expected)


def test_gradients_flow_through_all_changes():
    model = exact("writes", "gpt")
    factor = torch.ones(3, 1, 1).double().requires_grad_()
    with intervene(model, {("blocks.0.attend", "heads"): Scale(factor)}):
        found = torch.autograd.grad(forward(model, "writes").square().sum(), factor)[0]
    for head in range(3):
        sums = []
        for change in (1 + 1e-5, 1 - 1e-5):
            with torch.no_grad(), intervene(model, {("blocks.0.attend", "heads"): Scale(change, heads=head)}):
                sums.append(forward(model, "writes").square().sum())
        assert found[head].item() == pytest.approx(((sums[0] - sums[1]) / 2e-5).item(), rel=1e-5)
