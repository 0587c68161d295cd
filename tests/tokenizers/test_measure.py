"""What a tokenizer makes of a text, in figures."""

from __future__ import annotations

import pytest

from seqlab.tokenizers.byte import ByteTokenizer
from seqlab.tokenizers.character import CharacterTokenizer
from seqlab.tokenizers.classic_bpe import ClassicBPETokenizer
from seqlab.tokenizers.measure import measure, pieces, telling_words
from seqlab.tokenizers.word import WordTokenizer


def words(text):
    return WordTokenizer.fit([text], WordTokenizer.Settings())


def test_measure():
    found = measure(words("the cat sät"), ["the dog sät", " on"])
    assert (found.words, found.tokens, found.unknown, found.characters, found.bytes) == (4, 4, 2, 14, 15)
    assert (found.tokens_per_word, found.characters_per_token, found.bytes_per_token) == (1.0, 3.5, 3.75)
    assert found.unknown_share == 0.5


def test_measure_of_nothing():
    found = measure(words("the"), [])
    assert (found.tokens_per_word, found.characters_per_token, found.bytes_per_token, found.unknown_share) == (0,) * 4


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (WordTokenizer, ["<unk>"]),
        (CharacterTokenizer, ["t", "a", "c"]),
        (ClassicBPETokenizer, ["t", "a", "c", "</w>"]),
        (ByteTokenizer, ["t", "a", "c"]),
    ],
)
def test_pieces_of_a_word_are_those_in_a_text(cls, expected):
    assert pieces(cls.fit(["a cat"], cls.Settings(kind=cls.kind)), "tac") == expected


def test_telling_words():
    found = telling_words(["letters letters of many unusual words", " letters"])
    assert found == {"frequent": "letters", "rare": "unusual", "unseen": "untokenizable", "scrambled": "lrettes"}
    assert telling_words(["a b"]) == {"unseen": "untokenizable"}
    assert telling_words(["untokenizable"])["unseen"] == "rehyphenations"
