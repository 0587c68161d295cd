import numpy as np

from seqlab.data.batching.spelling import LONGEST, Alphabet, Spellings


def test_characters_that_occur_once_are_unknown():
    alphabet = Alphabet.learnt(["abba", "cab", "Z"])
    assert alphabet.characters == "ab"
    assert len(alphabet) == 4
    assert alphabet.spell("baZc") == [3, 2, 1, 1]


def test_spellings_of_some_words_side_by_side():
    spellings = Spellings(["a", "abb", "ba"], Alphabet("ab"))
    assert spellings.of(np.array([1, 2])).tolist() == [[2, 3, 3], [3, 2, 0]]
    assert spellings.of(np.array([0])).tolist() == [[2]]


def test_both_ends_of_a_long_word_are_read():
    alphabet = Alphabet("abx")
    spelt = alphabet.spell("a" * 100 + "x" * 900 + "b" * 100)
    assert len(spelt) == LONGEST
    assert set(spelt[: LONGEST // 2]) == {2}
    assert set(spelt[LONGEST // 2 :]) == {3}
