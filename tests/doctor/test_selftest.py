"""The self-test of `seqlab doctor`: it passes here, and finds what is broken."""

import math

import pytest
import torch

from seqlab import registry
from seqlab.decoding.compiled import library
from seqlab.doctor import selftest
from seqlab.doctor.selftest import Check, Left, self_test
from seqlab.fusion.loop import maps
from seqlab.models.mlp import MLP
from seqlab.nn.cells import Cell

CPU = torch.device("cpu")


@pytest.fixture
def only(monkeypatch):
    """`only(cells, models)` is all that is tested."""

    def choose(cells=(), models=()):
        monkeypatch.setattr(selftest, "cell_names", lambda: list(cells))
        monkeypatch.setattr(selftest, "model_names", lambda: list(models))

    return choose


@pytest.fixture
def given(monkeypatch, only):
    """Register a class for this test, and test nothing else."""

    def register(family, cls):
        monkeypatch.setitem(registry._given, (family, "mine"), cls)
        only(**{f"{family}s": ["mine"]})

    return register


def failed():
    return {check.name for check in self_test(CPU) if not check.ok}


def test_everything_passes_step_by_step(monkeypatch):
    """All that is registered, with plain recurrences, which need no time to compile."""
    monkeypatch.setattr("seqlab.fusion.loop.maps", lambda dtype: None)
    checks = list(self_test(CPU))
    assert [one for one in checks if isinstance(one, Left) or not one.ok] == []
    subjects = {check.subject for check in checks}
    assert {f"cell {name}" for name in registry.CELLS} <= subjects
    writers = ["ngram", "mlp", "recurrent", "convolutional", "gpt", "mixture", "translator", "transformer"]
    assert {f"model {name}" for name in [*writers, "recurrent-translator", "convolutional-translator"]} <= subjects


@pytest.mark.skipif(maps(torch.float32) is None, reason="there is no C++ compiler with OpenMP here")
def test_compiled_loops_pass(only):
    only(cells=["lstm", "gru"], models=["recurrent"])
    checks = list(self_test(CPU))
    assert all(check.ok for check in checks)
    assert sum(check.note == "all steps in one compiled loop" for check in checks) == 3


def test_there_is_room_but_not_much(only, monkeypatch):
    """Errors are well below what is allowed, and that is far below a part in a thousand."""
    monkeypatch.setattr("seqlab.fusion.loop.maps", lambda dtype: None)
    only(cells=["elman", "lstm", "gru"], models=["mlp", "gpt", "transformer"])
    for check in self_test(CPU):
        assert check.error <= 0.5 * check.allowed
        assert check.allowed < 1e-4


def test_repetitions_and_compiled_decoding_are_equal_to_the_bit(only):
    only(models=["gpt"])
    allowed = {check.name: check.allowed for check in self_test(CPU)}
    assert allowed["the same bits again"] == 0
    assert (allowed["greedy, alone and in a batch"] == 0) == (library() is not None)


# ---------------------------------------------------------------------- what is broken


class Rounded(Cell):
    """A state that is kept in too few bits."""

    def step(self, inputs, state):
        (h,) = state
        h = torch.tanh(inputs + self.recurrent(h))
        return ((h.bfloat16() if h.dtype == torch.float32 else h).to(h.dtype),)


class Mixing(Cell):
    """Rows see each other."""

    def step(self, inputs, state):
        (h,) = state
        return (torch.tanh(inputs + self.recurrent(h) + 0.01 * inputs.mean(0)),)


class Noisy(Cell):
    """Noise where there should be none."""

    def step(self, inputs, state):
        (h,) = state
        return (torch.tanh(inputs + self.recurrent(h) + 1e-3 * torch.randn_like(h)),)


class Remembering(Cell):
    """Something is kept outside of the state."""

    calls = 0

    def step(self, inputs, state):
        (h,) = state
        self.calls += 1
        return (torch.tanh(inputs + self.recurrent(h) + 0.01 * self.calls),)


class Raising(Cell):
    def step(self, inputs, state):
        raise NotImplementedError("no such operation on this device\nand more")


class Detached(Cell):
    """Right values, but gradients that end in float32."""

    def step(self, inputs, state):
        (h,) = state
        return (torch.tanh(inputs + self.recurrent(h.detach() if h.dtype == torch.float32 else h)),)


@pytest.mark.parametrize(
    ("cell", "check"),
    [
        (Rounded, "values and gradients"),
        (Detached, "values and gradients"),
        (Mixing, "alone and in a batch"),
        (Noisy, "the same bits again"),
        (Remembering, "one position at a time"),
    ],
)
def test_a_broken_cell_is_found(cell, check, given, monkeypatch):
    monkeypatch.setattr("seqlab.fusion.loop.maps", lambda dtype: None)
    given("cell", cell)
    assert check in failed()


def test_an_error_is_a_finding(given):
    given("cell", Raising)
    for check in self_test(CPU):
        assert not check.ok
        assert check.error == math.inf
        assert check.note == "no such operation on this device"


def test_a_sound_class_of_ones_own_passes(given):
    class Leaky(Cell):
        def step(self, inputs, state):
            (h,) = state
            return (0.9 * h + 0.1 * torch.tanh(inputs + self.recurrent(h)),)

    given("cell", Leaky)
    assert failed() == set()


class Forgetful(MLP):
    """Decodes other numbers than it learns: what it reads after a state is scaled."""

    def forward(self, tokens, state=None, mask=None, source=None):
        output = super().forward(tokens, state, mask, source)
        return output if state is None else output._replace(states=1.01 * output.states)


def test_a_broken_model_is_found(given):
    given("model", Forgetful)
    assert failed() == {"one position at a time"}


def test_what_needs_more_than_sizes_is_left_out_with_a_reason(given):
    class Demanding(MLP):
        def __init__(self, settings, vocab_size):
            raise ValueError("needs a table of its own")

    given("model", Demanding)
    (left,) = self_test(CPU)
    assert left == Left("model mine", "needs a table of its own")


# ---------------------------------------------------------------------- devices


def test_a_device_that_cannot_be_used_fails_every_check(only):
    """All that is moved there raises, and each check says so. No machine has both kinds."""
    only(cells=["elman"], models=["mlp"])
    checks = list(self_test(torch.device("mps" if torch.cuda.is_available() else "cuda")))
    assert len(checks) == 8
    assert all(isinstance(check, Check) and not check.ok and check.note for check in checks)


def test_settings_of_torch_are_left_as_they_were(only):
    only()
    before = torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled()
    inside = []
    with selftest._as_trained(torch.device("cuda")):
        inside = [torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled()]
    assert inside == [False, True]
    assert before == (torch.backends.cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled())
    state = torch.random.get_rng_state()
    only(models=["mlp"])
    list(self_test(CPU))
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("name", ["model gpt", "cell lstm"])
def test_the_test_draws_the_same_numbers_every_time(name, only, monkeypatch):
    monkeypatch.setattr("seqlab.fusion.loop.maps", lambda dtype: None)
    family, kind = name.split()
    only(**{f"{family}s": [kind]})
    first, second = ([(one.name, one.error, one.allowed) for one in self_test(CPU)] for _ in range(2))
    assert first == second
