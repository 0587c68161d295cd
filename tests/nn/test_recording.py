"""Patterns, errors, nesting, threads and compiled models: what the contracts of a look inside do not say."""

from threading import Thread

import pytest
import torch
from tolerance import SMALL_NET, close

from seqlab.errors import SeqlabError
from seqlab.models.gpt import GPT
from seqlab.models.rnn import RecurrentLanguageModel
from seqlab.models.transformer import Transformer
from seqlab.nn.cells import LSTM
from seqlab.nn.interventions import Replace, Scale, Set, intervene
from seqlab.nn.recording import note, record, recorded, unobserved
from seqlab.nn.recurrent import Recurrent
from seqlab.training.compiling import need_compiler

TOKENS = torch.arange(10).view(2, 5)


def gpt():
    torch.manual_seed(0)
    return GPT(GPT.Settings(kind="gpt", width=12, depth=2, heads=3, context=16), 11).double().eval()


def lstm():
    torch.manual_seed(0)
    return RecurrentLanguageModel(RecurrentLanguageModel.Settings(kind="recurrent", width=6, depth=2), 11).double()


@pytest.mark.parametrize(
    ("places", "paths"),
    [
        (["blocks.1.attend"], ["blocks.1.attend"]),
        (["blocks.1"], ["blocks.1.attend", "blocks.1.feed", "blocks.1"]),
        (["blocks.*.feed"], ["blocks.0.feed", "blocks.1.feed"]),
        (["*.attend", "blocks.0"], ["blocks.0.attend", "blocks.0.feed", "blocks.0", "blocks.1.attend"]),
        ([("*", "weights")], ["blocks.0.attend", "blocks.1.attend"]),
        ([("blocks.0", "output")], ["blocks.0"]),
        ([("", "embedded")], [""]),
    ],
)
def test_places_are_paths_patterns_and_names(places, paths):
    model = gpt()
    with record(model, *places) as tape:
        model(TOKENS)
    assert list(tape) == paths
    assert all(len(values) == 1 for notes in tape.values() for values in notes.values()), "once, however often named"
    names = {place[1] for place in places if isinstance(place, tuple)}
    assert all(set(notes) == names for notes in tape.values()) or not names


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("blocks.1.atend", r"no part 'blocks\.1\.atend'; did you mean 'blocks\.1\.attend'"),
        ("decoder.*", "no part 'decoder"),
        (("blocks.2", "output"), r"no part 'blocks\.2'; did you mean 'blocks\.[01]'"),
    ],
)
def test_a_path_that_is_wrong_is_an_error_with_the_nearest_one(place, message):
    with pytest.raises(SeqlabError, match=message), record(gpt(), place):
        pytest.fail("nothing may run")
    with pytest.raises(SeqlabError, match="no part"), intervene(gpt(), {("blocks.7", "output"): Set(0)}):
        pytest.fail("nothing may run")


def test_what_was_not_recorded_is_an_error_with_the_nearest_name():
    model = gpt()
    with record(model, "blocks.0") as tape:
        model(TOKENS)
    with pytest.raises(SeqlabError, match=r"nothing was recorded for 'blocks\.1\.attend'; did you mean"):
        tape["blocks.1.attend"]
    with pytest.raises(SeqlabError, match=r"blocks\.0\.attend: notes no 'weight'; did you mean 'weights'"):
        tape["blocks.0.attend"]["weight"]
    assert "blocks.1.attend" not in tape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({("blocks.0.attend", "wieghts"): Set(0)}, r"'blocks\.0\.attend' notes no 'wieghts'; did you mean 'weights'"),
        ({("norm", "output"): Set(0)}, "'norm' noted nothing"),
        ({("blocks.0", "output"): Set(0, positions=7)}, r"no call of 'blocks\.0' had position 7"),
        ({("blocks.0", "output"): Set(0, positions=-70)}, r"no call of 'blocks\.0' had position -70"),
        ({"blocks.0": Set(0)}, r"'blocks\.0' is not a place"),
        (
            {("blocks.0.attend", "heads"): Scale(0, heads=3)},
            r"blocks\.0\.attend, heads: there is no head 3; there are 3",
        ),
        ({("blocks.0", "output"): Scale(0, heads=0)}, "the value noted here has no heads"),
        ({("blocks.0", "output"): Scale(0, units=12)}, "there is no unit 12; there are 12"),
        ({("blocks.0", "output"): Set(torch.zeros(7))}, r"shape \(7,\) does not fit \(2, 5, 12\)"),
        ({("blocks.0", "output"): Replace(lambda x: x[:, :2])}, r"shape \(2, 2, 12\) does not fit \(2, 5, 12\)"),
    ],
)
def test_a_change_that_reaches_nothing_or_does_not_fit_is_an_error(changes, message):
    model = gpt()
    with pytest.raises(SeqlabError, match=message), intervene(model, changes):
        model(TOKENS)
    with record(model) as tape:
        model(TOKENS)
    assert tape, "nobody is left looking"


def test_an_error_inside_is_not_hidden_by_a_change_that_reached_nothing():
    with pytest.raises(ZeroDivisionError), intervene(gpt(), {("blocks.0", "output"): Set(0)}):
        raise ZeroDivisionError


def test_a_part_that_never_ran():
    model = lstm()
    message, zeros = r"'recurrent\.layers\.1' noted nothing; it did not run", {("recurrent.layers.1", "h"): Set(0)}
    with pytest.raises(SeqlabError, match=message), intervene(model, zeros):
        model.recurrent.layers[0].step(torch.zeros(1, 24).double(), (torch.zeros(1, 6).double(),) * 2)


def test_recordings_see_what_becomes_of_changes_in_either_order():
    model = gpt()
    change = {("blocks.0", "output"): Set(0.5, units=3, positions=[0, -1])}
    with record(model, "blocks.0") as outside, intervene(model, change), record(model, "blocks.0") as inside:
        model(TOKENS)
    for tape in (outside, inside):
        (found,) = tape["blocks.0"]["output"]
        assert (found[:, [0, 4], 3] == 0.5).all()
        assert (found[:, 1:4, 3] != 0.5).all()
    assert not recorded(model), "nobody looks any more"


def test_changes_of_one_place_add_up():
    model = gpt()
    twice, place = intervene(model, {("blocks.0", "output"): Scale(2.0)}), ("blocks.0", "output")
    with twice, intervene(model, {place: Scale(3.0, units=[0])}), record(model, "*") as tape:
        changed = model(TOKENS).states
    factors = torch.full((12,), 2.0).double()
    factors[0] = 6.0
    with intervene(model, {place: Scale(factors)}):
        close(model(TOKENS).states, changed)
    assert tape[""]["embedded"]


def test_another_thread_is_not_looked_at():
    model, found = gpt(), []
    with record(model) as tape:
        thread = Thread(target=lambda: found.append(model(TOKENS)))
        thread.start()
        thread.join()
    assert found
    assert not tape


def test_nobody_looks_where_it_is_said():
    model = gpt()
    with record(model) as tape, unobserved():
        model(TOKENS)
    assert not tape


def test_states_of_a_layer_are_set_from_another_run():
    """All positions at once, although a recurrence goes one by one."""
    model, place = lstm(), ("recurrent.layers.0", "h")
    with record(model, place) as tape:
        model(TOKENS.flip(0))
    (states,) = tape[place[0]]["h"]
    with intervene(model, {place: Set(states)}), record(model, place) as again:
        model(TOKENS)
    assert torch.equal(again[place[0]]["h"][0], states)
    with pytest.raises(SeqlabError, match="does not fit"), intervene(model, {place: Set(states[:, :3])}):
        model(TOKENS)


def test_products_in_a_function_are_not_those_of_the_cell():
    """Layer norm changes the products of a step; a probe that is asked about a gate is none of them."""
    from seqlab.nn.recurrent import Arrangement

    torch.manual_seed(0)
    net = Recurrent([LSTM(3, 4)], arrangement=Arrangement(layer_norm=True)).double()
    x, turn = torch.randn(2, 5, 3).double(), torch.eye(4).double()
    plain = net(x, net.start(2, x))[0]
    with intervene(net, {("layers.0", "forget"): Replace(lambda gate: gate @ turn)}):
        close(net(x, net.start(2, x))[0], plain)


def test_a_part_of_ones_own_notes_with_one_line():
    class Doubling(torch.nn.Module):
        def forward(self, x):
            return note(self, "output", 2 * x)

    model = torch.nn.Sequential(Doubling(), torch.nn.Identity())
    with record(model) as tape, intervene(model, {("0", "output"): Set(1.0, positions=1)}):
        found = model(torch.full((1, 3, 2), 4.0))
    assert found[0, :, 0].tolist() == [8.0, 1.0, 8.0]
    assert torch.equal(tape["0"]["output"][0], found)


@pytest.mark.usefixtures("_compiler")
def test_compiled_models_are_compiled_whole_and_cannot_be_looked_into():
    torch.manual_seed(0)
    settings = Transformer.Settings(kind="transformer", width=12, depth=1, heads=3)
    model = Transformer(settings, 11, 0)
    source = {"tokens": TOKENS, "mask": torch.ones_like(TOKENS, dtype=torch.bool)}
    compiled = torch.compile(lambda: model(TOKENS, None, None, source).states, fullgraph=True, backend="eager")
    expected = compiled()
    close(expected, model(TOKENS, None, None, source).states, steps=SMALL_NET)
    with record(model) as tape:
        assert torch.equal(compiled(), expected)
    assert not tape
    zeros = {("decoder.blocks.0", "output"): Set(0)}
    with pytest.raises(SeqlabError, match="noted nothing"), intervene(model, zeros):
        compiled()


@pytest.fixture
def _compiler():
    try:
        need_compiler(torch.device("cpu"))
    except SeqlabError:
        pytest.skip("there is no C++ compiler on this machine")
