"""The order of examples: a pure function of (seed, epoch), the same for any number of ranks; and windows over text."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.batching.order import Cursor, Sequential, Shuffled, Streams
from seqlab.data.batching.sequences import Lanes, ScoredLanes, ScoredWindows, Windows
from seqlab.data.randomness import Key, mix, permute
from seqlab.objectives.objective import Loss, Objective
from seqlab.training.distributed import Ranks
from seqlab.training.evaluation import evaluate

small = settings(max_examples=60, deadline=None)

# -------------------------------------------------------------------- randomness


@pytest.mark.parametrize("count", [*range(1, 70), 127, 128, 129, 1000, 4095, 4096, 4097, 100_003])
def test_permute_is_a_bijection(count):
    for key in (0, 1, 2**64 - 1):
        assert np.array_equal(np.sort(permute(np.arange(count), count, key)), np.arange(count))


def test_permute_needs_no_table():
    """Any part of the shuffle can be computed alone."""
    whole = permute(np.arange(10_000), 10_000, 5)
    assert np.array_equal(permute(np.arange(700, 900), 10_000, 5), whole[700:900])


def test_permutations_differ_and_look_random():
    shuffles = [permute(np.arange(500), 500, key) for key in range(200)]
    assert len({tuple(shuffle) for shuffle in shuffles}) == 200
    first = np.array(shuffles)[:, 0]
    assert abs(first.mean() - 249.5) < 4 * 144 / 200**0.5  # uniform over the places, within four sigma
    assert np.mean([np.corrcoef(shuffle, np.arange(500))[0, 1] for shuffle in shuffles]) == pytest.approx(0, abs=0.02)


def test_numbers_are_the_same_on_every_machine_and_version():
    """These values are part of the format: a change would make old runs resume in another order."""
    assert mix(0) == 16294208416658607535
    assert mix(1, 2, 3) == 7702586659592502839
    assert permute(np.arange(10), 10, 42).tolist() == [3, 8, 9, 1, 5, 2, 4, 0, 7, 6]
    assert Key(3, 4).below(1000) == 702
    assert Key(3, 4).generator(5).integers(1000, size=4).tolist() == [116, 251, 159, 544]


def test_noise_of_an_example_depends_on_seed_epoch_and_example():
    draws = {
        (seed, epoch, example): Key(seed, epoch).generator(example).random()
        for seed, epoch, example in itertools.product(range(3), range(3), range(50))
    }
    assert len(set(draws.values())) == len(draws)
    assert Key(1, 2).generator(7).random() == draws[1, 2, 7]


# -------------------------------------------------------------------- orders

orders = st.one_of(
    st.builds(Sequential, st.integers(1, 200), st.integers(1, 50)),
    st.builds(Shuffled, st.integers(1, 200), st.integers(1, 20), st.integers(0, 9), batches_in_chunk=st.integers(1, 5)),
    st.builds(Streams, st.integers(1, 12), st.integers(1, 9), st.integers(1, 12)),
)


def epochs(order, count):
    """The batches of the first epochs, each with its cursor."""
    return list(itertools.takewhile(lambda one: one[0].epoch < count, order.walk()))


@small
@given(orders)
def test_every_epoch_has_every_example_exactly_once(order):
    for epoch in range(3):
        batches = [indices for cursor, indices in epochs(order, 3) if cursor.epoch == epoch]
        seen = np.concatenate(batches)
        assert np.array_equal(np.sort(seen), np.arange(len(seen)))
        assert all(0 < len(indices) <= order.batch_size for indices in batches)
    assert len(seen) == (order.lanes * order.steps if isinstance(order, Streams) else order.count)


@small
@given(orders, st.data())
def test_a_walk_from_a_cursor_is_the_rest_of_the_walk(order, data):
    walk = epochs(order, 2)
    start = data.draw(st.integers(0, len(walk) - 1))
    rest = list(itertools.islice(order.walk(walk[start][0]), len(walk) - start))
    assert [cursor for cursor, _ in rest] == [cursor for cursor, _ in walk[start:]]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(rest, walk[start:], strict=True))
    after = walk[start][0]._replace(batch=walk[start][0].batch + 1)  # what a checkpoint holds: the batch after
    assert np.array_equal(next(order.walk(after))[1], next(itertools.islice(order.walk(walk[start][0]), 1, 2))[1])


@small
@given(orders)
def test_once_is_one_epoch(order):
    assert [cursor for cursor, _ in order.once()] == [cursor for cursor, _ in epochs(order, 1)]


def test_shuffles_are_a_function_of_seed_and_epoch():
    def told(seed, epoch):
        walk = Shuffled(100, 8, seed).walk(Cursor(epoch))
        return [tuple(indices) for _, indices in itertools.islice(walk, 13)]

    assert told(1, 2) == told(1, 2)
    assert len({tuple(told(seed, epoch)) for seed in range(4) for epoch in range(4)}) == 16


def test_examples_of_like_length_come_together_and_batches_do_not_come_sorted():
    lengths = np.random.default_rng(0).integers(1, 100, 4000)
    sorted_by, plain = Shuffled(4000, 20, 3, lengths), Shuffled(4000, 20, 3)

    def spread(order):
        return np.mean([np.ptp(lengths[indices]) for _, indices in order.once()])

    assert spread(sorted_by) < 0.1 * spread(plain)
    longest = [lengths[indices].max() for _, indices in sorted_by.once()]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


# -------------------------------------------------------------------- ranks


class Part(Ranks):
    """One of several ranks, in this process and without the others."""

    def sum(self, numbers, device):
        return numbers


class Recorded(Examples):
    """Remembers which examples it was asked for."""

    def __init__(self, count):
        super().__init__([1] * count, training=False)
        self.asked = []

    def batch(self, indices, key):
        self.asked.append(indices.tolist())
        return Batch(x=torch.from_numpy(indices).float())


class Sum(Objective):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(1, 1)

    def forward(self, batch, state=None):
        return Loss(batch["x"].sum(), torch.tensor(len(batch["x"])))


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize(("count", "batch_size"), [(50, 8), (9, 4), (5, 50), (1, 1)])
def test_the_slices_of_all_ranks_are_the_batch(world, count, batch_size):
    totals, slices = Counter(), []
    for rank in range(world):
        split = Recorded(count)
        totals.update(evaluate(Sum(), split, batch_size, torch.device("cpu"), Part(rank, world)))
        slices.append(split.asked)
    assert totals == {"sum": sum(range(count)), "count": count}
    assert len({len(asked) for asked in slices}) == 1  # every rank takes part in every batch
    for (_, indices), *parts in zip(Sequential(count, batch_size).once(), *slices, strict=True):
        real = [example for part in parts for example in part]
        assert set(real) == set(indices.tolist())


# -------------------------------------------------------------------- windows and lanes over a text

KEY = Key(0, 0)


def numbered(length):
    """Token t is t + 1, so that a target says which token it is; 0 is <end>."""
    return np.arange(1, length + 1)


def scored(split, batch_size):
    """The number of the target of every scored position, after looking at all inputs."""
    found = []
    for _, indices in split.order(batch_size, seed=0).once():
        batch = split.batch(indices, KEY)
        real = batch.get("mask", torch.ones_like(batch["targets"], dtype=torch.bool))
        counted = batch.get("scored", real)
        assert not (counted & ~real).any()
        assert torch.equal(batch["tokens"][real], batch["targets"][real] - 1)  # the input is the token before
        assert (real[:, 1:] <= real[:, :-1]).all()  # real tokens come first
        found += batch["targets"][counted].tolist()
    return found


@small
@given(st.integers(1, 120), st.integers(1, 40), st.data())
def test_windows_score_every_token_exactly_once(length, window, data):
    stride = data.draw(st.integers(1, window))
    split = ScoredWindows(numbered(length), window, stride, end=0)
    assert sorted(scored(split, data.draw(st.integers(1, 9)))) == list(range(1, length + 1))


@small
@given(st.integers(1, 120), st.integers(1, 40), st.data())
def test_windows_give_every_token_as_much_context_as_they_promise(length, window, data):
    """Beyond the first window, at least window − stride tokens are seen before each token that is scored."""
    stride = data.draw(st.integers(1, window))
    split = ScoredWindows(numbered(length), window, stride, end=0)
    for _, indices in split.order(1, seed=0).once():
        batch = split.batch(indices, KEY)
        counted = batch.get("scored", torch.ones_like(batch["targets"], dtype=torch.bool))
        place = int(counted[0].nonzero()[0, 0])
        assert place >= (window - stride if indices[0] else 0)


@small
@given(st.integers(1, 150), st.integers(1, 30), st.data())
def test_lanes_score_every_token_exactly_once(length, window, data):
    split = ScoredLanes(numbered(length), window, data.draw(st.integers(1, min(length, 8))), end=0)
    assert sorted(scored(split, data.draw(st.integers(1, 9)))) == list(range(1, length + 1))


def test_the_worked_example_of_windows():
    """A window of 5 gives inputs t1 … t4 and labels t2 … t5; the last window may be shorter."""
    split = ScoredWindows(numbered(12), 5, 5, end=0)
    batch = split.batch(np.array([0]), KEY)
    assert batch["tokens"][0].tolist() == [0, 1, 2, 3, 4]  # before the first token of all stands <end>
    assert batch["targets"][0, 1:].tolist() == [2, 3, 4, 5]
    last = split.batch(np.array([2]), KEY)
    assert last["targets"].tolist() == [[11, 12]]
    assert len(split) == 3


@small
@given(st.integers(1, 100), st.integers(1, 30), st.integers(0, 5))
def test_training_windows_of_an_epoch_do_not_overlap_and_miss_less_than_one(length, window, epoch):
    split = Windows(numbered(length), window)
    batch = split.batch(np.arange(len(split)), Key(3, epoch))
    targets = batch["targets"].flatten().tolist()
    assert len(set(targets)) == len(targets) > length - split.window
    before = (batch["targets"] - 2) % length + 1  # the text is a ring
    assert torch.equal(batch["tokens"], before)


def test_training_windows_cover_the_text_and_cut_it_at_other_places():
    split = Windows(numbered(103), 10)
    seen, starts = set(), set()
    for epoch in range(12):
        targets = split.batch(np.arange(len(split)), Key(0, epoch))["targets"]
        seen |= set(targets.flatten().tolist())
        starts.add(int(targets[0, 0]))
    assert seen == set(range(1, 104))
    assert len(starts) > 5


@small
@given(st.integers(1, 150), st.integers(1, 30), st.integers(1, 8), st.integers(0, 4))
def test_training_lanes_go_on_where_they_stopped(length, window, lanes, epoch):
    split = Lanes(numbered(length), window, lanes)
    targets, last = [], None
    order = split.order(lanes, seed=0)
    for _, indices in order.once():
        batch = split.batch(indices, Key(1, epoch))
        if last is not None:
            assert torch.equal(batch["tokens"][:, 0], last)
        last = batch["targets"][:, -1]
        assert torch.equal(batch["tokens"][:, 1:], batch["targets"][:, :-1])
        targets += batch["targets"].flatten().tolist()
    assert order.carries
    assert len(set(targets)) == len(targets) > length - split.lanes


@small
@given(st.integers(40, 200), st.integers(1, 12), st.integers(1, 5), st.integers(1, 30), st.integers(0, 4))
def test_training_lanes_that_begin_anew(length, window, lanes, stretch, epoch):
    """Each part of a lane is a chunk, whose first batch has no state; no token comes twice in an epoch."""
    split = Lanes(numbered(length), window, lanes, stretch)
    targets, last, chunks = [], None, set()
    for cursor, indices in split.order(lanes, seed=0).once():
        assert len(indices) == lanes
        batch = split.batch(indices, Key(1, epoch))
        if cursor.batch:
            assert torch.equal(batch["tokens"][:, 0], last)
        last = batch["targets"][:, -1]
        chunks.add(cursor.chunk)
        targets += batch["targets"].flatten().tolist()
    assert len(chunks) == split.parts == max(1, round(length // lanes / stretch))
    assert len(set(targets)) == len(targets) > length - lanes * (split.parts + 1)


# -------------------------------------------------------------------- batches


@small
@given(st.lists(st.lists(st.integers(1, 99), max_size=12), min_size=1, max_size=8))
def test_padded_and_back(sequences):
    values, mask = padded(sequences)
    assert values.shape == mask.shape == (len(sequences), max(len(sequence) for sequence in sequences))
    assert [row[real].tolist() for row, real in zip(values, mask, strict=True)] == sequences
    assert (values[~mask] == 0).all()


def test_parts_of_a_batch():
    batch = Batch({"tokens": torch.zeros(1), "source.tokens": torch.ones(2), "source.mask": torch.ones(3)})
    assert set(batch.part("source")) == {"tokens", "mask"}
    assert batch.part("image") is None
    assert isinstance(batch.to(torch.device("cpu")), Batch)


@pytest.mark.parametrize("length", [63, 64, 65, 128, 129, 2049, 2051])
@pytest.mark.parametrize("batch_size", [1, 3, 4, 8])
def test_lanes_that_ended_still_have_a_position(length, batch_size):
    """Lanes differ by one token; a batch of those that have ended is not empty, and counts nothing."""
    split = ScoredLanes(np.arange(length) % 7, 64, 8, end=0)
    counted = 0
    for _, indices in split.order(batch_size, 0).once():
        batch = split.batch(indices, Key(0, 0))
        assert batch["tokens"].shape[1] >= 1
        counted += int(batch.get("scored", torch.ones_like(batch["targets"])).sum())
    assert counted == length
