"""The contract of a model that reads a source, for every one that is shipped."""

import pytest
import torch
from shipped_models import learnable
from shipped_translators import BUILDERS, LABELS, VOCAB, assert_same, build, exact, row_of, shipped, some_sources
from tolerance import SMALL_NET, close, rounding
from unsteady import Unsteady

from seqlab.decoding.alignment import attention_to_source, source_weights
from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.compiled import library
from seqlab.decoding.generate import generate
from seqlab.decoding.packing import packed
from seqlab.errors import SeqlabError
from seqlab.nn.recording import record

pytestmark = pytest.mark.parametrize("name", BUILDERS)

LENGTHS, WRITTEN = [7, 5, 1, 3, 7, 40], [9, 4, 7, 1, 9, 3]
SOURCE = some_sources(LENGTHS)
TOKENS = torch.randint(VOCAB, (6, 9), generator=torch.Generator().manual_seed(1))
MASK = torch.arange(9) < torch.tensor(WRITTEN)[:, None]
STOP = frozenset({0})


def chances(model, states):
    return model.logits(states).log_softmax(-1)


@torch.no_grad()
def whole(model, tokens=TOKENS, mask=MASK, source=SOURCE):
    return chances(model, model(tokens, None, mask, source).states)


def test_each_row_is_as_if_it_were_alone(name):
    """Neither the padding of its source, nor that of its target, nor its neighbours matter."""
    model = exact(name)
    together = whole(model)
    for row, length in enumerate(WRITTEN):
        alone = whole(model, TOKENS[row : row + 1, :length], None, row_of(SOURCE, row))
        close(together[row, :length], alone[0])


def test_a_state_is_the_same_as_none(name):
    model = exact(name)
    with torch.no_grad():
        output = model(TOKENS, model.start(SOURCE, 6), MASK)
        close(chances(model, output.states)[MASK], whole(model)[MASK])
        assert output.state.lengths.tolist() == WRITTEN


def test_one_position_at_a_time_with_several_rows_a_source(name):
    model, expected = exact(name), whole(model=exact(name), mask=None)
    with torch.no_grad():
        state, found = model.start(SOURCE, 12), []
        for time in range(TOKENS.shape[1]):
            logits, state = model.step(TOKENS[:, time].repeat_interleave(2), state)
            found.append(logits.log_softmax(-1))
    for rows in (slice(0, None, 2), slice(1, None, 2)):
        close(torch.stack(found, 1)[rows], expected)


def test_rows_come_and_go(name):
    """Any rows of any sources, repeated and dropped, without the sources that nobody reads, and joined with others."""
    model, expected = exact(name), whole(model=exact(name), mask=None)
    with torch.no_grad():
        state = model(TOKENS[:, :3], model.start(SOURCE, 6)).state
        other = model(TOKENS[2:4, :3], model.start({k: v[2:4] for k, v in SOURCE.items()}, 2)).state
        for rows, after in (
            ([4, 0, 0, 5], state.select(torch.tensor([4, 0, 0, 5]))),
            ([4, 4, 1, 1], state.select(torch.tensor([4, 4, 1, 1])).compact()),
            ([5, 1, 2, 3], state.select(torch.tensor([5, 1])).join(other)),
        ):
            close(chances(model, model(TOKENS[rows, 3:], after).states), expected[rows, 3:])


@torch.inference_mode()
def test_bits_do_not_depend_on_how_many_positions_are_read_at_a_time(name):
    """Of a packed model, on the CPU; where there is no compiler, up to rounding errors."""
    model = packed(shipped(name))

    def in_pieces(sizes):
        state, found, start = model.start(SOURCE, len(TOKENS)), [], 0
        for size in sizes:
            output = model(TOKENS[:, start : start + size], state, MASK[:, start : start + size])
            state, start = output.state, start + size
            found.append(output.states)
        return torch.cat(found, 1)[MASK]

    singly = in_pieces([1] * 9)
    for sizes in ([9], [1, 8], [4, 5], [2, 1, 6]):
        if library() is None:
            close(in_pieces(sizes), singly, steps=SMALL_NET)
        else:
            assert torch.equal(in_pieces(sizes), singly), sizes


@torch.inference_mode()
def test_what_is_packed_calls_no_function_whose_bits_depend_on_the_place(name):
    model = packed(shipped(name))
    with Unsteady() as seen:
        model(TOKENS, model.start(SOURCE, len(TOKENS)), MASK)
    assert library() is None or not seen.called


def test_gradients_reach_every_weight(name):
    model = build(name).train()
    source = some_sources([7, 5, 2, 9, 30, 30], seed=2)
    source["tokens"][:, 0] = VOCAB + torch.arange(6) % LABELS
    tokens = torch.arange(6 * 30).view(6, 30) % VOCAB
    source["tokens"][:, 1:] = (torch.arange(6 * 29).view(6, 29) * 5) % VOCAB
    output = model(tokens, None, None, source)
    model.losses(output.states.flatten(0, 1), tokens.roll(-1, 1).flatten()).sum().backward()
    for weight_name, weight in model.named_parameters():
        if weight_name == "encoder.conditions.sizes.weight":  # of numbers, which these sources have not
            continue
        if name == "transformer-learned" and "position" in weight_name:  # of positions that are read
            assert (weight.grad.abs().amax(1) > 0).sum() >= 9
            continue
        if weight_name == "encoder.position.weight":  # nothing is at distance 0 and after it
            assert weight.grad[len(weight) // 2].eq(0).all()
            continue
        assert weight.grad is not None, weight_name
        assert weight.grad.isfinite().all(), weight_name
        reached = (learnable(weight_name, weight.grad) > 0).float().mean()
        assert reached > 0.9 or name == "separate", f"{weight_name}: {reached:.0%} of its rows"


def test_the_source_matters(name):
    """Another word, and another label: other chances."""
    model, source = exact(name), {key: tensor.clone() for key, tensor in SOURCE.items()}
    before = whole(model)
    source["tokens"][0, 3] = (source["tokens"][0, 3] + 1) % VOCAB
    source["tokens"][1, 0] = VOCAB + (source["tokens"][1, 0] - VOCAB + 1) % LABELS
    after = whole(model, source=source)
    assert (after - before)[0].abs().max() > 1e-4
    assert (after - before)[1].abs().max() > 1e-4
    close(after[4:][MASK[4:]], before[4:][MASK[4:]])


def test_attention_is_noted_and_changes_no_bit(name):
    model = shipped(name)
    with torch.no_grad():
        state = model.start(SOURCE, 6)
        plain = model(TOKENS, model.start(SOURCE, 6)).states
        with record(model) as tape:
            noted = model(TOKENS, state).states
    assert torch.equal(plain, noted)
    places = source_weights(model)
    assert bool(places) == (not name.startswith("v1"))
    for one in [one for path, weights in places for one in tape[path][weights]]:  # (B, heads, T, N)
        assert (one.shape[0], one.shape[2]) == TOKENS.shape
        real = torch.nn.functional.pad(SOURCE["mask"], [0, one.shape[-1] - SOURCE["mask"].shape[1]])
        assert (one.masked_fill(real[:, None, None], 0) == 0).all()
        if "quiet" in name:  # which may look at nothing
            assert (one.sum(-1) < 1).all()
        elif "local" not in name:  # which is not normalised
            close(one.sum(-1), torch.ones(one.shape[:-1]), steps=one.shape[-1])


@pytest.mark.parametrize("lengths", [LENGTHS, [3, 16, 9], [32, 5]], ids=["padded", "16", "32"])
def test_sentences_are_searched_side_by_side_as_if_alone(name, lengths):
    """To the bit, where they are packed for decoding, also where no source needs to be padded to a multiple of 16."""
    model, source = packed(shipped(name)), some_sources(lengths)
    for beam in (Beam(1), Beam(4, 0.6), Beam(3, 1.0, best=1)):
        together = beam_search(model, [[0]] * len(lengths), beam, 12, STOP, source)
        for row, found in enumerate(together):
            (alone,) = beam_search(model, [[0]], beam, 12, STOP, row_of(source, row))
            assert_same(found, alone, name)


def test_a_penalty_for_what_was_not_looked_at(name):
    """Of every hypothesis: log p / ((5 + n) / 6)^α + β Σ_i log min(Σ_t a_ti, 1), with a read from the finished text."""
    model, beam = packed(shipped(name)), Beam(3, 0.6, coverage_penalty=0.2)
    if name.startswith("v1"):
        with pytest.raises(SeqlabError, match="no attention"):
            beam_search(model, [[0]] * 6, beam, 8, STOP, SOURCE)
        return
    for row, found in enumerate(beam_search(model, [[0]] * 6, beam, 8, STOP, SOURCE)):
        for one in found:
            weights = attention_to_source(shipped(name), row_of(SOURCE, row), one.tokens, 0)
            missed = weights.sum(0).clamp(1e-9, 1).log().sum().item()
            plain = one.log_probability / ((5 + len(one.tokens)) / 6) ** 0.6
            # every logarithm is wrong by as much as a weight is in proportion, which is that of scores of size 20
            assert one.rank == pytest.approx(plain + 0.2 * missed, abs=0.2 * len(weights.T) * rounding(SMALL_NET, 20))


def test_no_hypothesis_is_shorter_than_asked(name):
    for found in beam_search(packed(shipped(name)), [[0]] * 6, Beam(4, shortest=5), 8, STOP, SOURCE):
        assert found
        assert all(5 < len(one.tokens) <= 8 for one in found)


def test_generation_is_a_beam_of_one(name):
    model = packed(shipped(name))
    texts = [[] for _ in LENGTHS]
    for step in generate(model, [[0]] * 6, tokens=12, stop=STOP, source=SOURCE):
        for token in step:
            texts[token.row].append(token.id)
    found = beam_search(model, [[0]] * 6, Beam(1), 12, STOP, SOURCE)
    assert [list(one[0].tokens) for one in found] == texts
