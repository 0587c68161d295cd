"""Unigram: the best cut, and cuts sampled from all of them."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.randomness import Key
from seqlab.errors import DataError
from seqlab.tokenizers.lattice import Pieces, Sampler
from seqlab.tokenizers.unigram import UnigramTokenizer

CORPUS = [
    "the cat sat on the mat and the dog sat on the cat",
    "the unhappiest of cats was happier than the happiest dog",
    "日本語のテキスト and naïve words, re-read 1,234 times!",
] * 20


LEARNED = UnigramTokenizer.fit(CORPUS, UnigramTokenizer.Settings(vocab_size=400))
SCORES = {text: score for text, (_, score) in LEARNED.lattice.known.items()}
SMALL = {"a": -1.0, "b": -1.5, "ab": -2.0, "ba": -3.0, "aba": -3.2, "bab": -2.2}


def all_cuts(text, pieces):
    """Every way to cut a text into pieces, by trying."""
    if not text:
        return [()]
    heads = [text[:size] for size in range(1, len(text) + 1) if text[:size] in pieces]
    return [(head, *tail) for head in heads for tail in all_cuts(text[len(head) :], pieces)]


def exact(text, pieces, alpha):
    weights = {cut: math.exp(alpha * sum(pieces[piece] for piece in cut)) for cut in all_cuts(text, pieces)}
    total = sum(weights.values())
    return {cut: weight / total for cut, weight in weights.items()}


def pieces_of(ids):
    return tuple(LEARNED.pieces[index].decode() for index in ids)


def agree(counts, expected):
    """Every cut as often as it should be drawn, to five standard deviations."""
    draws = counts.total()
    assert set(counts) <= set(expected)
    for cut, probability in expected.items():
        spread = math.sqrt(draws * probability * (1 - probability))
        assert abs(counts[cut] - draws * probability) <= 5 * spread + 1, cut


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 2.0, 30.0])
def test_the_lattice_is_sampled_exactly(alpha):
    names = list(SMALL)
    pieces = Pieces({text: ((names.index(text),), score) for text, score in SMALL.items()}, lambda _: (), 0.0, 3)
    sampler = Sampler.over(pieces.arcs("ababab"), alpha)
    expected = exact("ababab", SMALL, alpha)
    assert len(expected) > 15
    numbers = iter(np.random.default_rng(0).random(200_000).tolist())
    agree(
        Counter(tuple(names[arc.tokens[0]] for arc in sampler.draw(numbers)) for _ in range(20_000)),
        expected,
    )


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_samples_have_the_exact_probabilities(alpha):
    """Of a learnt vocabulary, over several words."""
    text = "the cats sat"
    expected = exact(text, SCORES, alpha)
    assert len(expected) > 15
    generator = np.random.default_rng(0)
    agree(Counter(pieces_of(LEARNED.sample(text, generator, alpha)) for _ in range(10_000)), expected)


@pytest.mark.parametrize("text", ["the unhappiest cat", "mats on dogs", "happier", "was sat on"])
def test_the_best_cut_is_the_best_of_all(text):
    best = max(all_cuts(text, SCORES), key=lambda cut: sum(SCORES[piece] for piece in cut))
    assert pieces_of(LEARNED.encode(text).ids) == best
    for alpha in (1000.0, 1e20, 1e308):
        assert pieces_of(LEARNED.sample(text, np.random.default_rng(0), alpha)) == best


TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.text("the cats \n▁é")


@given(TEXT, st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 1.0]))
@settings(deadline=None, max_examples=100)
def test_every_sample_is_the_same_text(text, seed, alpha):
    """Bytes and all; and the same key gives the same cut, whatever was asked before."""
    ids = LEARNED.sample(text, Key(seed, 3).generator(17), alpha)
    assert LEARNED.decode(ids) == text
    before = dict(LEARNED.samplers)
    LEARNED.samplers.clear()
    assert LEARNED.sample(text, Key(seed, 3).generator(17), alpha) == ids
    LEARNED.samplers.update(before)


def test_other_epochs_and_examples_have_other_cuts():
    keys = [Key(0, epoch).generator(example) for epoch in range(3) for example in range(3)]
    assert len({tuple(LEARNED.sample(CORPUS[1], generator, 0.1)) for generator in keys}) == 9


def test_bytes_and_ends_stay_when_text_is_cut_anew():
    ids = [0, *LEARNED.encode("the cat ж sat on").ids, 0]
    first = next(place for place, index in enumerate(ids) if LEARNED.is_byte[index])
    for cut in (ids, ids[: first + 1], ids[first + 1 :]):  # also where a character is cut in two
        again = LEARNED.resample(cut, np.random.default_rng(1), 0.3)
        assert LEARNED.decode(again) == LEARNED.decode(cut)
        assert [i for i in again if i not in LEARNED.text_ids] == [i for i in cut if i not in LEARNED.text_ids]


def test_unknown_without_bytes():
    learned = UnigramTokenizer.fit(CORPUS, UnigramTokenizer.Settings(vocab_size=80, byte_fallback=False))
    assert learned.unknown_id in learned.encode("ж").ids
    assert learned.sample("catж", np.random.default_rng(0), 1000.0)[-1] == learned.unknown_id


def test_sizes():
    for size, fallback in ((259, True), (3, False)):
        options = UnigramTokenizer.Settings(vocab_size=size, byte_fallback=fallback)
        assert UnigramTokenizer.fit(["a b"], options).vocab_size == size
    with pytest.raises(DataError, match="is too small, with"):
        UnigramTokenizer.fit(["a b"], UnigramTokenizer.Settings(vocab_size=258))
