"""What is particular to characters, bytes and words."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from seqlab.errors import RecipeError
from seqlab.recipe import Recipe
from seqlab.tokenizers.byte import ByteTokenizer
from seqlab.tokenizers.character import CharacterTokenizer
from seqlab.tokenizers.word import WordTokenizer


def words(text, **options):
    return WordTokenizer.fit([text], WordTokenizer.Settings(**options))


def test_characters_are_sorted():
    learned = CharacterTokenizer.fit(["cab", "b\n"], CharacterTokenizer.Settings())
    assert [learned.token(index) for index in range(learned.vocab_size)] == [
        "<end>",
        "<unk>",
        r"\n",
        "a",
        "b",
        "c",
    ]
    assert learned.encode("abz").ids == [3, 4, 1]
    assert learned.decode([3, 1, 4, 0]) == "a\ufffdb"


def test_most_frequent_characters_are_kept():
    learned = CharacterTokenizer.fit(["ddcbba"], CharacterTokenizer.Settings(vocab_size=5))
    assert learned.characters == ["a", "b", "d"]  # a and c tie: the smaller code point stays


def test_bytes():
    learned = ByteTokenizer.fit([], ByteTokenizer.Settings())
    assert learned.vocab_size == 257
    assert learned.encode("aé\0").ids == [98, 0xC3 + 1, 0xA9 + 1, 1]
    assert learned.encode("aé\0").offsets == [(0, 1), (1, 2), (1, 2), (2, 3)]
    assert learned.decode([98, 0xC3 + 1]) == "a\ufffd"
    with pytest.raises(ValidationError):
        ByteTokenizer.Settings(vocab_size=300)


def test_words_by_frequency():
    learned = words("b a c b <unk> <unk> <unk>", vocab_size=4)
    assert learned.known == ["b", "a"]
    assert learned.encode("a <unk> c").ids == [3, 1, 1]
    assert learned.decode([3, 1, 0]) == "a <unk>"


def test_end_is_a_word_like_others():
    learned = words("<end> x", split="whitespace")
    assert 0 not in learned.encode("<end>").ids
    assert learned.decode(learned.encode("x <end>").ids) == "x <end>"


def test_lowercase_keeps_offsets():
    """'İ' is two characters when lowered."""
    learned = words("i̇stanbul the", lowercase=True)
    encoding = learned.encode("İstanbul THE")
    assert encoding.offsets == [(0, 8), (9, 12)]
    assert 1 not in encoding.ids


@pytest.mark.parametrize(
    "text",
    [
        'He said, "Hello (world)!" and "bye"; don\'t pay $3.14 or 1,000%…',
        "Well-known, e.g. in the U.S.: “quoted” – and [so] on?",
        "हिन्दी में। سلام، دنیا؟ ¿Qué? ¡Sí!",
        "family 👨‍👩‍👧 here",
    ],
)
def test_punctuation_reads_well(text):
    learned = words(text)
    assert learned.decode(learned.encode(text).ids) == text


def test_words_are_whole():
    assert words("x").pattern.findall("हिन्दी don't 3.14, a_b <unk>!") == [
        *("हिन्दी", "don't", "3.14", ",", "a_b", "<unk>", "!")
    ]


def test_settings_are_checked_by_the_recipe():
    tree = {
        "task": "language-modelling",
        "data": {"train": "x"},
        "tokenizer": {"kind": "bpe", "vocab_size": 100},
    }
    with pytest.raises(RecipeError, match=r"tokenizer\.vocab_size"):
        Recipe.from_dict({**tree, "task": {"kind": "language-modelling"}})
