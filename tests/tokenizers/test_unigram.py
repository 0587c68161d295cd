"""Unigram: the best cut, and cuts sampled from all of them."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.randomness import Key
from seqlab.tokenizers.unigram import UnigramTokenizer

PIECES = {"a": -1.0, "b": -1.5, "ab": -2.0, "ba": -3.0, "aba": -3.2, " a": -1.7, " ": -2.5}
SMALL = UnigramTokenizer(list(PIECES), list(PIECES.values()), byte_fallback=True)


def all_cuts(text, pieces):
    """Every way to cut a text into pieces, by trying."""
    if not text:
        return [()]
    heads = [text[:size] for size in range(1, len(text) + 1) if text[:size] in pieces]
    return [(head, *tail) for head in heads for tail in all_cuts(text[len(head) :], pieces)]


def pieces_of(tokenizer, ids):
    return tuple(tokenizer.pieces[index].decode() for index in ids)


def exact(text, alpha):
    weights = {cut: math.exp(alpha * sum(PIECES[piece] for piece in cut)) for cut in all_cuts(text, PIECES)}
    total = sum(weights.values())
    return {cut: weight / total for cut, weight in weights.items()}


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("text", ["ababa", "ab aba"])
def test_samples_have_the_exact_probabilities(text, alpha):
    expected, draws = exact(text, alpha), 20_000
    assert len(expected) > 8
    generator = np.random.default_rng(0)
    counts = Counter(pieces_of(SMALL, SMALL.sample(text, generator, alpha)) for _ in range(draws))
    assert set(counts) <= set(expected)
    for cut, probability in expected.items():
        spread = math.sqrt(draws * probability * (1 - probability))
        assert abs(counts[cut] - draws * probability) <= 5 * spread + 1, cut


@given(st.text("ab ", max_size=12))
@settings(deadline=None, max_examples=100)
def test_the_best_cut_is_the_best_of_all(text):
    cuts = all_cuts(text, PIECES)
    best = max(sum(PIECES[piece] for piece in cut) for cut in cuts)
    ids = SMALL.encode(text).ids
    assert pieces_of(SMALL, ids) in cuts
    assert SMALL.log_probability(ids) == pytest.approx(best)
    assert SMALL.sample(text, np.random.default_rng(0), alpha=200.0) == ids or best - SMALL.log_probability(ids) < 0.1


TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.text("ab \n▁")


@given(TEXT, st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 1.0]))
@settings(deadline=None, max_examples=100)
def test_every_sample_is_the_same_text(text, seed, alpha):
    """Bytes and all; and the same key gives the same cut, whatever was asked before."""
    ids = SMALL.sample(text, Key(seed, 3).generator(17), alpha)
    assert SMALL.decode(ids) == text
    fresh = UnigramTokenizer(list(PIECES), list(PIECES.values()), byte_fallback=True)
    assert fresh.sample(text, Key(seed, 3).generator(17), alpha) == ids


def test_other_epochs_and_examples_have_other_cuts():
    text = "ab aba baab ab " * 5
    keys = [Key(0, epoch).generator(example) for epoch in range(3) for example in range(3)]
    cuts = {tuple(SMALL.sample(text, generator, 0.5)) for generator in keys}
    assert len(cuts) == 9


def test_unknown_without_bytes():
    small = UnigramTokenizer(list(PIECES), list(PIECES.values()), byte_fallback=False)
    encoding = small.encode("axéb")
    assert [small.token(index) for index in encoding.ids] == ["a", "<unk>", "<unk>", "b"]
    assert encoding.offsets == list(pairwise(range(5)))
    assert small.decode(encoding.ids) == "a\ufffd\ufffdb"


CORPUS = [
    "the cat sat on the mat and the dog sat on the cat",
    "the unhappiest of cats was happier than the happiest dog",
    "日本語のテキスト and naïve words, re-read 1,234 times!",
] * 20


def test_cuts_as_sentencepiece_does(multilingual):
    """The same pieces and scores, in its model and in ours: the same cuts, bytes included."""
    from seqlab.tokenizers.sentencepiece import SentencePieceTokenizer

    settings = SentencePieceTokenizer.Settings(vocab_size=500)
    peer = SentencePieceTokenizer.fit(CORPUS, settings)
    processor = sentencepiece.SentencePieceProcessor(model_proto=peer.model)
    ours = UnigramTokenizer.fit(CORPUS, UnigramTokenizer.Settings(vocab_size=499))
    assert ours.pieces[257:] == peer.pieces[258:]
    for line in [*CORPUS[:3], *multilingual, "  two  blanks\n\n and lines \n"]:
        assert [index + 1 for index in ours.encode(line).ids] == processor.encode(line)


def test_settings_are_checked():
    from seqlab.errors import DataError

    for size, fallback in ((257, True), (258, True), (3, False)):
        options = UnigramTokenizer.Settings(vocab_size=size, byte_fallback=fallback)
        if size == 257:
            with pytest.raises(DataError, match="no room"):
                UnigramTokenizer.fit(["a b"], options)
        else:
            assert UnigramTokenizer.fit(["a b"], options).vocab_size == size


def test_bytes_and_ends_stay_when_text_is_cut_anew():
    ids = [0, *SMALL.encode("ab é aba").ids, 0]
    half = ids[:-5]  # ends inside of é
    for cut in (ids, half, ids[4:]):
        again = SMALL.resample(cut, np.random.default_rng(1), 0.3)
        assert SMALL.decode(again) == SMALL.decode(cut)
        assert [index for index in again if index < SMALL.first] == [index for index in cut if index < SMALL.first]
