"""The contract of a language model, for every one that is shipped."""

import copy

import pytest
import torch
from safetensors.torch import load, save
from shipped_models import BUILDERS, CONTEXT, VOCAB, build, exact, learnable, shipped, some_tokens
from tolerance import SMALL_NET, close
from torch.nn import functional as F
from unsteady import Unsteady

from seqlab.decoding.compiled import library
from seqlab.decoding.packing import packed
from seqlab.models.language_model import State

pytestmark = pytest.mark.parametrize("name", BUILDERS)


def chances(model, states):
    return model.logits(states).log_softmax(-1)


def assert_near(a, b):
    """In double precision; tables of n-grams, and the mixture with one, are float32: a handful of roundings."""
    close(a, b, steps=SMALL_NET)


def read(model, tokens, mask=None):
    """All at once after a new state: log-probabilities at every position, and the state after."""
    with torch.no_grad():
        output = model(tokens, model.start(rows=len(tokens)), mask)
        return chances(model, output.states), output.state


def step(model, tokens, state):
    with torch.no_grad():
        logits, state = model.step(tokens, state)
        return logits.log_softmax(-1), state


def ragged(lengths, seed=3):
    tokens = some_tokens(len(lengths), max(lengths), seed)
    return tokens, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_shapes(name):
    model, tokens = shipped(name), some_tokens(3, 7)
    states = model(tokens).states
    assert states.shape[:2] == (3, 7)
    assert model.logits(states).shape == (3, 7, VOCAB)
    assert model.logits(states[:, -1]).shape == (3, VOCAB)
    output = model(tokens, model.start(rows=3))
    assert len(output.state) == 3
    assert output.state.lengths.tolist() == [7, 7, 7]
    logits, after = model.step(tokens[:, 0], output.state)
    assert logits.shape == (3, VOCAB)
    assert after.lengths.tolist() == [8, 8, 8]
    assert model.vocab_size == VOCAB


def test_log_probabilities_are_of_all_tokens_and_differ(name):
    found, _ = read(shipped(name), some_tokens(2, 9))
    assert not found.isnan().any()
    assert (found.max(-1).values - found.min(-1).values > 0.05).all()


def test_with_and_without_a_state_are_the_same(name):
    model, tokens = exact(name), some_tokens(3, 11)
    with torch.no_grad():
        assert_near(chances(model, model(tokens).states), read(model, tokens)[0])


@pytest.mark.parametrize("with_state", [True, False])
def test_padding_is_ignored(name, with_state):
    model, lengths = exact(name), [5, 1, 9, 3]
    tokens, mask = ragged(lengths)
    junk = torch.where(mask, tokens, (tokens + 7) % VOCAB)
    with torch.no_grad():
        state = model.start(rows=4) if with_state else None
        output = model(tokens, state, mask)
        other = model(junk, model.start(rows=4) if with_state else None, mask)
        for row, length in enumerate(lengths):
            alone = chances(model, model(tokens[row : row + 1, :length]).states)[0]
            assert_near(chances(model, output.states)[row, :length], alone)
            assert_near(chances(model, other.states)[row, :length], alone)


def test_state_after_padding_is_that_of_the_last_real_token(name):
    model, lengths = exact(name), [5, 1, 9, 3]
    tokens, mask = ragged(lengths)
    _, state = read(model, tokens, mask)
    assert state.lengths.tolist() == lengths
    following = torch.tensor([1, 2, 3, 4])
    together, _ = step(model, following, state)
    for row, length in enumerate(lengths):
        _, alone = read(model, tokens[row : row + 1, :length])
        assert_near(together[row], step(model, following[row : row + 1], alone)[0][0])


def test_gradients_reach_every_weight(name):
    model = build(name).train()
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights:
        assert hasattr(model, "fit") or name == "mixture"  # it learns by counting, or its parts have learnt already
        return
    tokens = some_tokens(4, CONTEXT)
    output = model(tokens)
    model.losses(output.states.flatten(0, 1), tokens.roll(-1, 1).flatten()).sum().backward()
    for weight_name, weight in weights.items():
        assert weight.grad is not None, weight_name
        assert weight.grad.isfinite().all(), weight_name
        reached = (learnable(weight_name, weight.grad) > 0).float().mean()
        assert reached > (0.5 if "relu" in name else 0.99), f"{weight_name}: {reached:.0%} of its rows"


def test_gradients_reach_through_a_carried_state_until_it_is_detached(name):
    model, tokens = build(name).train(), some_tokens(2, 6)
    if not any(weight.requires_grad for weight in model.parameters()):
        return
    first = model(tokens, model.start(rows=2)).state
    if not any(part.is_floating_point() for part in first.rows.values()):
        return  # it carries what it has read, not what it has made of it
    for state, reached in ((first.select(torch.arange(2)), True), (first.detach(), False)):
        model.zero_grad()
        embedding = model.embedding.weight
        following = torch.tensor([[VOCAB - 1], [VOCAB - 1]])
        model(following, state).states.sum().backward()
        read_before = [token for token in set(tokens.flatten().tolist()) if token != VOCAB - 1]
        assert bool((embedding.grad[read_before].abs().sum() > 0).item()) is reached


def test_one_position_at_a_time_equals_all_at_once(name):
    model, tokens = exact(name), some_tokens(3, 40)
    whole, _ = read(model, tokens)
    state = model.start(rows=3)
    for time in range(40):
        found, state = step(model, tokens[:, time], state)
        assert_near(found, whole[:, time])


def test_a_carried_state_equals_one_long_run(name):
    model, tokens = exact(name), some_tokens(3, 50)
    whole, _ = read(model, tokens)
    _, state = read(model, tokens[:, :23])
    with torch.no_grad():
        assert_near(chances(model, model(tokens[:, 23:], state).states), whole[:, 23:])


def test_chunks_of_any_size_equal_one_long_run(name):
    model, tokens = exact(name), some_tokens(2, 60)
    whole, last = read(model, tokens)
    state, start = model.start(rows=2), 0
    for size in (1, 17, 2, 16, 15, 9):
        with torch.no_grad():
            output = model(tokens[:, start : start + size], state)
        assert_near(chances(model, output.states), whole[:, start : start + size])
        state, start = output.state, start + size
    assert start == 60
    assert_near(step(model, torch.tensor([3, 4]), state)[0], step(model, torch.tensor([3, 4]), last)[0])


def test_chunks_with_padding_in_the_middle(name):
    """Rows that end in different chunks, as prompts of different lengths do."""
    model, lengths = exact(name), [3, 16, 29]
    tokens, mask = ragged(lengths)
    state = model.start(rows=3)
    for start in range(0, 29, 8):
        with torch.no_grad():
            state = model(tokens[:, start : start + 8], state, mask[:, start : start + 8]).state
    assert state.lengths.tolist() == lengths
    found, _ = step(model, torch.tensor([1, 2, 3]), state)
    for row, length in enumerate(lengths):
        _, alone = read(model, tokens[row : row + 1, :length])
        assert_near(found[row], step(model, torch.tensor([row + 1]), alone)[0][0])


@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 1, 0], [2], [0, 0, 2, 2, 1]])
def test_select_reorders_repeats_and_drops(name, rows):
    model = exact(name)
    tokens, mask = ragged([5, 12, 8])
    _, state = read(model, tokens, mask)
    kept = state.select(torch.tensor(rows))
    following = torch.tensor([1, 2, 3])
    expected, _ = step(model, following, state)
    found, after = step(model, following[rows], kept)
    assert len(after) == len(rows)
    assert_near(found, expected[rows])


def test_repeated_rows_go_separate_ways(name):
    """Copies share nothing: what one reads, the other does not see."""
    model = exact(name)
    _, state = read(model, some_tokens(1, 5))
    _, twins = step(model, torch.tensor([1, 9]), state.select(torch.tensor([0, 0])))
    found, _ = step(model, torch.tensor([4, 4]), twins)
    for row, token in enumerate([1, 9]):
        text = torch.cat([some_tokens(1, 5), torch.tensor([[token, 4]])], dim=1)
        assert_near(found[row], read(model, text)[0][0, -1])


def test_reordering_is_selecting_and_uses_the_state_up(name):
    """Rows grow, shrink and go on from each other; now and then something else is done that reads the whole state."""
    for model in (shipped(name), packed(shipped(name))):
        draw = torch.Generator().manual_seed(1)
        _, ours = model.step(torch.tensor([1, 2]), model.start(rows=2))
        theirs = ours.select(torch.arange(2))
        for time in range(40 if model.context is None else model.context - 3):
            count = int(torch.randint(1, 8, (), generator=draw))
            order = torch.randint(0, len(ours), (count,), generator=draw)
            before, ours, theirs = ours, ours.reorder(order), theirs.select(order)
            with pytest.raises(RuntimeError, match="used"):
                before.select(order)
            if time % 7 == 6:
                ours, theirs = (one.join(one.select(torch.tensor([0]))).compact() for one in (ours, theirs))
            tokens = some_tokens(len(ours), 1, seed=time)
            a, ours = step(model, tokens[:, 0], ours)
            b, theirs = step(model, tokens[:, 0], theirs)
            assert torch.equal(a, b)


def test_a_compact_state_and_the_one_it_came_from_are_two(name):
    model, order = packed(shipped(name)), torch.tensor([1, 1, 0])
    _, state = model.step(torch.tensor([1, 2]), model.start(rows=2))
    state = state.reorder(order)
    copy = state.compact().select(torch.arange(3))
    for one in (1, 4):
        a, copy = step(model, torch.full((3,), one), copy)
        b, state = step(model, torch.full((3,), one), state)
        assert torch.equal(a, b)


@torch.inference_mode()
def test_bits_do_not_depend_on_how_many_positions_are_read_at_a_time(name):
    """Of a packed model, on the CPU: a prefix can be used again and a draft checked without changing a bit.

    Where there is no compiler, attention over several positions is the library's, and equal up to rounding errors.
    """
    model, texts = packed(shipped(name)), some_tokens(3, 70, seed=5)
    lengths = [texts.shape[1], 50, 33]
    singly = in_pieces(model, texts, lengths, [1] * texts.shape[1])
    for sizes in ([texts.shape[1]], [1, 32, 40], [7] * 10, [16, 1, 1, 31, 2, 30]):
        found = in_pieces(model, texts, lengths, sizes)
        for row, length in enumerate(lengths):
            if library() is None and "gpt" in name:
                close(found[row, :length], singly[row, :length], steps=SMALL_NET)
            elif not (library() is None and name == "mixture"):
                assert torch.equal(found[row, :length], singly[row, :length]), f"row {row} in pieces of {sizes}"


@torch.inference_mode()
def test_what_is_packed_calls_no_function_whose_bits_depend_on_the_place(name):
    model = packed(shipped(name))
    with Unsteady() as seen:
        model(some_tokens(3, 7), model.start(rows=3))
    assert library() is None or not seen.called


def in_pieces(model, texts, lengths, sizes):
    """The states of all positions, read so many at a time, rows of different lengths side by side."""
    state, found, start = model.start(rows=len(texts)), [], 0
    for size in sizes:
        tokens = texts[:, start : start + size]
        mask = torch.arange(start, start + tokens.shape[1]) < torch.tensor(lengths)[:, None]
        output = model(tokens, state, mask)
        state, start = output.state, start + size
        found.append(output.states)
    return torch.cat(found, 1)


@pytest.mark.parametrize("lengths", [(4, 9), (40, 3), (3, 40), (17, 16)])
def test_join_of_different_lengths_and_capacities(name, lengths):
    model = exact(name)
    texts = [some_tokens(2, length, seed=length) for length in lengths]
    states = [read(model, text)[1] for text in texts]
    following = torch.tensor([1, 2, 3, 4])
    expected = torch.cat(
        [step(model, following[2 * i : 2 * i + 2], state.select(torch.arange(2)))[0] for i, state in enumerate(states)]
    )
    joined = states[0].join(states[1])
    assert joined.lengths.tolist() == [lengths[0]] * 2 + [lengths[1]] * 2
    found, after = step(model, following, joined)
    assert_near(found, expected)
    again, _ = step(model, following, after)
    texts = [torch.cat([text, following[2 * i : 2 * i + 2, None].repeat(1, 2)], 1) for i, text in enumerate(texts)]
    assert_near(again, torch.cat([read(model, text)[0][:, -1] for text in texts]))


def test_a_used_state_cannot_be_used_again(name):
    model, tokens = exact(name), some_tokens(2, 3)
    _, state = read(model, tokens)
    copied = state.select(torch.arange(2))
    first, _ = step(model, tokens[:, 0], state)
    with pytest.raises(RuntimeError, match="already been used"):
        model(tokens, state)
    assert_near(step(model, tokens[:, 0], copied)[0], first)


def test_state_as_named_tensors(name):
    model, tokens = exact(name), some_tokens(2, 20)
    _, state = read(model, tokens)
    copied = State.from_tensors(load(save(state.tensors())))
    assert_near(step(model, tokens[:, 3], copied)[0], step(model, tokens[:, 3], state)[0])


def test_save_and_load(name):
    model, other = build(name), build(name, seed=2)
    for weight in other.parameters():
        torch.nn.init.normal_(weight)
    if not list(model.parameters()):
        other.fit(some_tokens(1, 40)[0].numpy())
    other.load_state_dict(load(save(dict(model.state_dict()))))
    tokens = some_tokens(3, 12)
    with torch.no_grad():
        assert torch.equal(other.logits(other(tokens).states), model.logits(model(tokens).states))


def test_batch_of_one_and_of_many(name):
    model, tokens = exact(name), some_tokens(33, 20)
    many, _ = read(model, tokens)
    for row in (0, 1, 17, 32):
        assert_near(many[row : row + 1], read(model, tokens[row : row + 1])[0])
    assert_near(many[4:9], read(model, tokens[4:9])[0])


def test_losses_equal_the_cross_entropy_of_logits(name):
    model, tokens = exact(name), some_tokens(4, 15)
    targets = some_tokens(4, 15, seed=9).flatten()
    with torch.no_grad():
        states = model(tokens).states.flatten(0, 1)
        found, logits = model.losses(states, targets), model.logits(states)
    if name == "ngram-stupid-backoff":  # its scores are no probabilities, and it does not pretend they are
        assert_near(found, -logits.gather(1, targets[:, None])[:, 0])
    else:
        assert_near(found, F.cross_entropy(logits, targets, reduction="none"))


def test_rows_do_not_see_each_other(name):
    model, tokens = shipped(name), some_tokens(3, 10)
    changed = tokens.clone()
    changed[1] = (changed[1] + 5) % VOCAB
    before, after = read(model, tokens)[0], read(model, changed)[0]
    assert torch.equal(before[[0, 2]], after[[0, 2]])


def test_the_future_is_not_seen(name):
    model, tokens = exact(name), some_tokens(2, 12)
    changed = tokens.clone()
    changed[:, 8:] = (changed[:, 8:] + 5) % VOCAB
    with torch.no_grad():
        assert_near(model(tokens).states[:, :8].double(), model(changed).states[:, :8].double())


def test_nothing_is_kept_in_self(name):
    model, tokens = build(name), some_tokens(2, 9)

    def inside():
        return [(path, key, id(value)) for path, part in model.named_modules() for key, value in vars(part).items()]

    before, weights = inside(), copy.deepcopy(model.state_dict())
    _, first = read(model, tokens)
    _, second = read(model, (tokens + 3) % VOCAB)  # two conversations at once
    turn, _ = step(model, tokens[:, 0], first)
    step(model, tokens[:, 1], second)
    assert inside() == before
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert_near(turn, step(model, tokens[:, 0], read(model, tokens)[1])[0])


def test_a_source_is_refused_by_a_model_that_takes_none(name):
    tokens = some_tokens(1, 3)
    source = {"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}
    with pytest.raises(ValueError, match="takes no source"):
        shipped(name).start(source)
    with pytest.raises(ValueError, match="takes no source"):
        shipped(name)(tokens, None, None, source)


def test_gradients_of_single_steps_equal_those_of_all_at_once(name):
    """What free running and scheduled sampling need: a backward pass through steps that were taken one by one."""
    model = copy.deepcopy(shipped(name)).double()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        assert hasattr(model, "fit") or name == "mixture"
        return
    tokens = some_tokens(2, 6, 4)
    at_once = torch.autograd.grad(chances(model, model(tokens).states).sum(), weights)
    state, total = model.start(rows=2), torch.zeros((), dtype=torch.double)
    for column in tokens.t():
        logits, state = model.step(column, state)
        total = total + logits.log_softmax(-1).sum()
    for one, other in zip(torch.autograd.grad(total, weights), at_once, strict=True):
        close(one, other)
