"""Counting words: exact in small, bounded in large."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from seqlab.errors import DataError
from seqlab.tokenizers import dictionary
from seqlab.tokenizers.bpe import UNIT
from seqlab.tokenizers.dictionary import count_words


def test_exact_while_there_is_room():
    texts = ["the cat sat", " the mat\nthe", "", "cat"]
    assert count_words(texts, str.split) == Counter(" ".join(texts).split())


def test_rare_words_are_forgotten():
    """Frequent words keep their exact counts; what is held has few more characters than there is room for."""
    chance = random.Random(0)
    texts = ["the cat sat " + " ".join(f"w{chance.getrandbits(40):010x}" for _ in range(20)) for _ in range(500)]
    counts = count_words(texts, str.split, room=4000)
    assert {word: counts[word] for word in ("the", "cat", "sat")} == {"the": 500, "cat": 500, "sat": 500}
    assert sum(map(len, counts)) <= 1.25 * 4000 + max(map(len, texts))
    assert len(counts) > 100


def test_of_words_seen_once_the_first_are_kept():
    words = [f"{number:04d}" for number in range(100)]
    assert list(count_words(words, str.split, room=200))[:25] == words[:25]


def test_surrogates_are_refused():
    with pytest.raises(DataError, match="surrogate"):
        count_words(["a \ud800"], str.split)


@given(st.text(st.sampled_from("ab1.' \n\t\x1c\x1f\x85\xa0\u3000é日²_-"), max_size=40))
@settings(deadline=None, max_examples=300)
def test_units_hold_the_words_that_the_library_cuts(text):
    cutter = ByteLevel(add_prefix_space=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dictionary, "PART_SIZE", 3)
        units = count_words([text], UNIT.findall)
    words = Counter()
    for unit, count in units.items():
        for word, _ in cutter.pre_tokenize_str(unit):
            words[word] += count
    assert words == Counter(word for word, _ in cutter.pre_tokenize_str(text))
