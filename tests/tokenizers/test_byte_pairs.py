"""Both kinds of byte-pair encoding, against a plain trainer that counts everything anew each time."""

from __future__ import annotations

import inspect
import json
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer as LibraryTokenizer
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from seqlab.tokenizers import dictionary
from seqlab.tokenizers.bpe import ByteBPETokenizer
from seqlab.tokenizers.classic_bpe import ClassicBPETokenizer
from seqlab.tokenizers.merges import apply_merges, learn_merges, shown, split_word

SENTENCE = "vietnam takes measures to boost rice exports"


def joined(symbols, pair):
    """All occurrences from left to right."""
    made, index = [], 0
    while index < len(symbols):
        found = tuple(symbols[index : index + 2]) == pair
        made.append("".join(pair) if found else symbols[index])
        index += 2 if found else 1
    return made


def plain_merges(words, best, limit):
    """`words` are (symbols, count); `best` is the key of the pair to choose."""
    words, merges = [(list(symbols), count) for symbols, count in words], []
    while len(merges) < limit:
        counts = Counter()
        for symbols, count in words:
            for pair in pairwise(symbols):
                counts[pair] += count
        if not counts or max(counts.values()) < 2:
            break
        pair = max(counts, key=lambda pair: (counts[pair], best(pair)))
        merges.append(pair)
        words = [(joined(symbols, pair), count) for symbols, count in words]
    return merges


def random_text(seed):
    """A small alphabet, so that there are many ties and runs of one character."""
    chance = random.Random(seed)
    letters = "abcdefghijé"[: chance.choice([2, 3, 11])]
    return " ".join("".join(chance.choices(letters, k=chance.randint(1, 9))) for _ in range(300))


@pytest.mark.parametrize("seed", range(6))
def test_byte_trainer_equals_counting_anew(seed):
    """Ties go to the smallest ids."""
    text = random_text(seed)
    words = Counter(word for word, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text)).items()
    learned = ByteBPETokenizer.fit(text.splitlines(keepends=True), ByteBPETokenizer.Settings(vocab_size=320))
    ids = {token: index for index, token in enumerate(learned.tokens)}
    expected = plain_merges(words, lambda pair: (-ids.get(pair[0], 0), -ids.get(pair[1], 0)), len(learned.merges))
    assert learned.merges == expected


@pytest.mark.parametrize("seed", [0, 1, None])
def test_byte_trainer_equals_the_library(seed):
    """The same tokens and merges as the library's own trainer, of random words and of ordinary text."""
    text = inspect.getsource(random) if seed is None else random_text(seed) + "\n\n\t x  y's don't, 2²\xa0日本\x1c-\x85"
    peer = Library(BPE())
    peer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    options = {"vocab_size": 699, "min_frequency": 2, "initial_alphabet": ByteLevel.alphabet(), "show_progress": False}
    peer.train_from_iterator([text], BpeTrainer(**options))
    model = json.loads(peer.to_str())["model"]
    learned = ByteBPETokenizer.fit([text], ByteBPETokenizer.Settings(vocab_size=700))
    assert {token: index for index, token in enumerate(learned.tokens[1:])} == model["vocab"]
    assert [list(pair) for pair in learned.merges] == model["merges"]


def test_one_long_word():
    """DNA in one line: a word in which every pair occurs many times, some of them side by side."""
    text = "".join(random.Random(0).choices("ACGT", k=20_000))
    learned = ByteBPETokenizer.fit([text], ByteBPETokenizer.Settings(vocab_size=300))
    ids = {token: index for index, token in enumerate(learned.tokens)}
    assert learned.merges == plain_merges([(text, 1)], lambda pair: (-ids[pair[0]], -ids[pair[1]]), 43)


@pytest.mark.parametrize("word_end", ["glued", "apart"])
@pytest.mark.parametrize("seed", range(6))
def test_trainer_equals_counting_anew(seed, word_end):
    words = [(split_word(word, word_end), count) for word, count in Counter(random_text(seed).split()).items()]
    learned = learn_merges(words, [], None, 2)
    repeated = plain_merges(words, lambda pair: (shown(pair[0]), shown(pair[1])), 2000)
    assert learned == list(dict.fromkeys(repeated))


@given(
    st.text("ab", max_size=30),
    st.permutations([(a, b) for a in ("a", "b", "ab", "aa") for b in ("a", "b", "ba")]),
)
@settings(deadline=None, max_examples=200)
def test_applying_equals_one_merge_at_a_time(word, pairs):
    symbols, ranks = list(word), {pair: rank for rank, pair in enumerate(pairs)}
    while found := [pair for pair in pairwise(symbols) if pair in ranks]:
        symbols = joined(symbols, min(found, key=ranks.__getitem__))
    assert apply_merges(word, ranks) == symbols


def test_the_sentence_of_the_lecture():
    """17 start symbols; two merges are forced; 35 give whole words, and one pair is left after 34."""
    options = ClassicBPETokenizer.Settings(vocab_size=None, min_frequency=1, word_end="apart")
    learned = ClassicBPETokenizer.fit([SENTENCE], options)
    assert len({symbol for word in SENTENCE.split() for symbol in split_word(word, "apart")}) == 17
    assert [tuple(map(shown, pair)) for pair in learned.merges[:2]] == [("s", "</w>"), ("e", "s</w>")]
    assert len(learned.merges) == 35
    pieces = [learned.token(index) for index in learned.encode(SENTENCE).ids]
    assert pieces == [f"{word}</w>" for word in SENTENCE.split()]
    last = dict(list(learned.ranks.items())[:34])
    left = {pair for word in SENTENCE.split() for pair in pairwise(apply_merges(split_word(word, "apart"), last))}
    assert len(left) == 1


def test_word_end_is_no_text():
    """A word that spells </w> is not the end of a word."""
    learned = ClassicBPETokenizer.fit(["e</w>x e</w> e"] * 3, ClassicBPETokenizer.Settings())
    assert learned.decode(learned.encode("e</w>x e</w> e").ids) == "e</w>x e</w> e"


def test_character_never_seen_at_the_end_of_a_word():
    learned = ClassicBPETokenizer.fit(["xa xa"], ClassicBPETokenizer.Settings())
    encoding = learned.encode("ax b")
    assert [learned.token(index) for index in encoding.ids] == ["a", "x", "</w>", "<unk>", "</w>"]
    assert encoding.offsets == [(0, 1), (1, 2), (2, 2), (3, 4), (4, 4)]
    assert learned.decode(encoding.ids) == "ax \ufffd"


def test_same_ids_as_the_library_with_our_files(tmp_path):
    """The merges of a GPT-2 style merges.txt and vocab.json mean to the library what they mean to us."""
    text = random_text(0) + " Hello, world! It's 2024 — 日本語 <end>\n\n  x\t"
    learned = ByteBPETokenizer.fit([text], ByteBPETokenizer.Settings(vocab_size=350))
    vocabulary = {token: index for index, token in enumerate(learned.tokens)}
    peer = LibraryTokenizer(vocabulary, learned.merges)
    assert learned.encode(text).ids == peer.encode(text).ids
    assert peer.decode(learned.encode(text).ids) == text


def test_offsets_inside_a_character():
    learned = ByteBPETokenizer.fit(["aa bb"], ByteBPETokenizer.Settings())
    encoding = learned.encode("x日😀")
    assert encoding.offsets == [(0, 1), *[(1, 2)] * 3, *[(2, 3)] * 4]
    assert [learned.token(index) for index in encoding.ids][:2] == ["x", r"\xe6"]


@given(st.text(st.sampled_from("ab1. \n\t\x1c\x85é'")))
@settings(deadline=None, max_examples=200)
def test_long_texts_are_cut_where_it_changes_nothing(text):
    corpus = "a b 1. \n\n ab ab. b'a\tb a1 1a"
    learned = ByteBPETokenizer.fit([corpus * 3], ByteBPETokenizer.Settings(vocab_size=300))
    whole = learned.encoder.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dictionary, "PART_SIZE", 1)
        parts = learned.encode(text)
        assert (parts.ids, parts.offsets) == (whole.ids, whole.offsets)
        assert learned.encode_batch([text, text]) == [whole.ids, whole.ids]


def test_single_digits_are_never_merged():
    texts = ["on 2024-10-10 and 2024-10-11, in 2024"] * 50
    settings = ByteBPETokenizer.Settings(vocab_size=400, single_digits=True)
    tokenizer = ByteBPETokenizer.fit(texts, settings)
    tokens = [tokenizer.token(token) for token in tokenizer.encode("in 2024 and 10").ids]
    assert [token for token in tokens if any(sign.isdigit() for sign in token)] == list("202410")
    assert tokenizer.decode(tokenizer.encode(texts[0]).ids) == texts[0]
    merged = ByteBPETokenizer.fit(texts, ByteBPETokenizer.Settings(vocab_size=400))
    assert len(merged.encode(texts[0]).ids) < len(tokenizer.encode(texts[0]).ids)
