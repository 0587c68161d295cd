"""How far translators go: sources of 1 to 2,000 tokens, long targets, and the memory of a search."""

import copy

import pytest
import torch
from shipped_translators import BUILDERS, assert_same, row_of, shipped, some_sources

from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.packing import packed
from seqlab.models.language_model import LanguageModel
from seqlab.models.transformer import TransformerDecoder
from seqlab.nn.attention import BLOCK

STOP = frozenset({0})
EVERY = pytest.mark.parametrize("name", BUILDERS)


@EVERY
def test_a_short_source_beside_a_very_long_one(name):
    """It is translated as if it were alone, and so are sources on both sides of 192 positions, where the library
    begins to split sums. (Without a compiler, it reads keys of all sources in one product: equal up to rounding.)"""
    source, model, beam = some_sources([3, 2000, 1, 130, 200]), packed(shipped(name)), Beam(2, 0.6)
    together = beam_search(model, [[0]] * 5, beam, 6, STOP, source)
    for row in (0, 2, 3, 4):
        (alone,) = beam_search(model, [[0]], beam, 6, STOP, row_of(source, row))
        assert_same(together[row], alone, name, long=True)
    assert all(-100 < one.log_probability < 0 for one in together[1])


@pytest.mark.parametrize("name", ["v2", "convolutional", "transformer"])
def test_a_target_of_two_thousand_tokens(name):
    """It does not matter that the one beside it was finished long ago."""
    source, model = some_sources([4, 9]), packed(shipped(name))
    short, long = beam_search(model, [[0]] * 2, Beam(1), [5, 2000], source=source)
    assert (len(short[0].tokens), len(long[0].tokens)) == (5, 2000)
    (alone,) = beam_search(model, [[0]], Beam(1), 200, source=row_of(source, 1))
    assert alone[0].tokens == long[0].tokens[:200]


# ---------------------------------------------------------------------- memory


class Spy(LanguageModel):
    """Another model; notes the bytes of every state that it gives."""

    def __init__(self, model):
        super().__init__()
        self.model, self.vocab_size = model, model.vocab_size
        self.shared, self.rows = [], []

    def start(self, source=None, rows=1):
        return self.model.start(source, rows)

    def forward(self, tokens, state=None, mask=None):
        output = self.model(tokens, state, mask)
        self.shared.append(size(output.state.shared))
        self.rows.append(size(output.state.rows))
        return output

    def logits(self, states):
        return self.model.logits(states)


def size(tensors):
    """The memory behind tensors, also where they are parts of larger ones."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors.values()}
    return sum(storages.values())


def spied(name, width, limits):
    spy, source = Spy(packed(shipped(name))), some_sources([40, 3, 300])
    beam_search(spy, [[0]] * 3, Beam(width), limits, source=source)
    return spy, size(spy.start(source, 3).shared)


@EVERY
def test_sources_are_held_once_and_not_once_a_hypothesis(name):
    for width in (1, 6):
        spy, once = spied(name, width, [10] * 3)
        assert spy.shared == [once] * 10


@EVERY
def test_sources_of_finished_sentences_are_let_go(name):
    spy, once = spied(name, 3, [2, 4, 8])
    assert spy.shared == [once] * 2 + [once * 2 // 3] * 2 + [once // 3] * 4


@EVERY
def test_hypotheses_take_no_more_room_than_they_need(name):
    """So many times one hypothesis; and that grows with what it has written, by half as much again at most."""
    one, many = (spied(name, width, [150] * 3)[0].rows for width in (1, 5))
    assert many[1:] == [5 * bytes for bytes in one[1:]]
    if isinstance(shipped(name).decoder, TransformerDecoder):
        assert all(bytes <= one[0] / BLOCK * (1.5 * time + BLOCK) for time, bytes in enumerate(one))
    else:
        assert one == [one[0]] * 150


def test_the_spy_sees_what_is_copied():
    """A model that would hold its sources once a row is found out."""

    class Copying(type(shipped("transformer"))):
        def forward(self, tokens, state=None, mask=None, source=None):
            output = super().forward(tokens, state, mask, source)
            output.state.shared = {key: one[output.state.owner] for key, one in output.state.shared.items()}
            output.state.owner = torch.arange(len(tokens))
            return output

    model = copy.copy(shipped("transformer"))
    model.__class__ = Copying
    spy = Spy(model)
    beam_search(spy, [[0]] * 2, Beam(4), 4, source=some_sources([5, 6]))
    assert spy.shared[-1] == 4 * spy.shared[0]
