"""WordPiece: the criterion, the counts kept up to date, and the greedy encoder."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.tokenizers.ratio_merges import _falling, joined, learn_pieces, split_word
from seqlab.tokenizers.wordpiece import Cleaning, WordPieceTokenizer


def learn(text, **options):
    return WordPieceTokenizer.fit([text], WordPieceTokenizer.Settings(**options))


def spelt(text):
    return [(split_word(word), count) for word, count in Counter(text.split()).items()]


def plain_pieces(words, alphabet, limit, min_frequency):
    """Everything counted anew for each merge, with exact fractions."""
    words, pieces = [(list(symbols), count) for symbols, count in words], list(alphabet)
    while len(pieces) < limit:
        single, pairs = Counter(), Counter()
        for symbols, count in words:
            for symbol in symbols:
                single[symbol] += count
            for pair in pairwise(symbols):
                pairs[pair] += count
        found = {pair: count for pair, count in pairs.items() if count >= min_frequency}
        if not found:
            break
        score = {(a, b): Fraction(count, single[a] * single[b]) for (a, b), count in found.items()}
        left, right = min(found, key=lambda pair: (-score[pair], -found[pair], pair))
        for symbols, _ in words:
            index = 0
            while index < len(symbols) - 1:
                if symbols[index : index + 2] == [left, right]:
                    symbols[index : index + 2] = [joined(left, right)]
                index += 1
        if joined(left, right) not in pieces:
            pieces.append(joined(left, right))
    return pieces


def test_the_ratio_decides_not_the_count():
    """th stands 6 times, qu only 3: but t and h often stand alone, and q is never without u."""
    text = "th th th th th th qu qu qu t t t t t t ah ah ah ah"
    words = spelt(text)
    alphabet = sorted({symbol for symbols, _ in words for symbol in symbols})
    pairs = Counter(pair for symbols, count in words for pair in pairwise(symbols) for _ in range(count))
    assert pairs.most_common(1) == [(("t", "##h"), 6)]  # what a trainer that counts would merge
    assert learn_pieces(words, alphabet, None, 2)[len(alphabet)] == "qu"  # 3 / (3 · 3) = 0.33 > 6 / (12 · 10) = 0.05


def test_the_library_counts():
    """The same text: the `tokenizers` library's trainer for WordPiece merges what is most frequent."""
    import tokenizers
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.trainers import WordPieceTrainer

    learner = tokenizers.Tokenizer(WordPiece(unk_token="<unk>"))
    learner.pre_tokenizer = BertPreTokenizer()
    text = "th th th th th th qu qu qu t t t t t t ah ah ah ah"
    learner.train_from_iterator([text], WordPieceTrainer(vocab_size=20, min_frequency=2, show_progress=False))
    ids = learner.get_vocab()
    assert min((token for token in ids if len(token.removeprefix("##")) > 1), key=ids.__getitem__) == "th"


@pytest.mark.parametrize("min_frequency", [1, 2, 5])
@pytest.mark.parametrize("seed", range(6))
def test_counts_kept_up_to_date_equal_counting_anew(seed, min_frequency):
    """A small alphabet: many ties, runs of one letter, and pieces that are made in two ways."""
    chance = random.Random(seed)
    letters = "abcdefghijé"[: chance.choice([2, 3, 11])]
    words = spelt(" ".join("".join(chance.choices(letters, k=chance.randint(1, 9))) for _ in range(200)))
    alphabet = sorted({symbol for symbols, _ in words for symbol in symbols})
    learned = learn_pieces(words, alphabet, 300, min_frequency)
    assert learned == plain_pieces(words, alphabet, 300, min_frequency)
    assert len(learned) > len(alphabet)


def seen(left, right, together, times_left, times_right):
    """Words in which two symbols stand so often, and next to each other so often."""
    return [([left, right], together), ([left], times_left - together), ([right], times_right - together)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # the same ratio, but quotients of doubles differ in the last place: the more frequent pair wins
        ((81_785_928, 121_235_578, 165_040_533), (3 * 81_785_928, 3 * 121_235_578, 165_040_533)),
        # 1 − 1/(n+1) and 1 − 1/(n+2): the quotients are the same, and the more frequent pair does not win
        ((4 * 10**8, 4 * 10**8 + 2, 4 * 10**8 + 5), (2 * 10**8 + 1, 2 * 10**8 + 2, 4 * 10**8 + 5)),
    ],
)
def test_scores_of_a_huge_text_are_exact(one, other):
    """Products of counts have more than 53 bits."""
    words = [*seen("a", "##b", *one), *seen("c", "##d", *other)]
    alphabet = ["##b", "##d", "a", "c"]
    assert learn_pieces(words, alphabet, 5, 2) == plain_pieces(words, alphabet, 5, 2) == [*alphabet, "cd"]


def test_tables_grow(monkeypatch):
    """More pairs than the first arrays hold."""
    chance = random.Random(0)
    words = spelt(" ".join("".join(map(chr, chance.choices(range(0x3B1, 0x3C9), k=6))) for _ in range(3000)))
    alphabet = sorted({symbol for symbols, _ in words for symbol in symbols})
    limit = len(alphabet) + 12
    assert learn_pieces(words, alphabet, limit, 1) == plain_pieces(words, alphabet, limit, 1)


def test_without_a_threshold_frequent_words_come_first():
    names = " ".join(f"{a}{b}x{a}{b}" * 1 for a in "qwzkj" for b in "vhgfp")
    text = "the cat sat on the mat " * 100 + names + " " + names
    first = learn(text, vocab_size=60, min_frequency=2)
    falling = learn(text, vocab_size=60)
    assert "the" in falling.tokens
    assert "the" not in first.tokens
    assert list(_falling(23)) == [11, 5, 2, 2]
    assert list(_falling(0)) == [2]


def test_greedy_and_unknown():
    learned = WordPieceTokenizer(
        ["<end>", "<unk>", "un", "una", "##ble", "##able", "##a", "u", "##n", "a"], Cleaning(False, False, True)
    )
    encoding = learned.encode("unable una unabel ua")
    assert [learned.token(index) for index in encoding.ids] == ["una", "##ble", "una", "<unk>", "u", "##a"]
    assert encoding.offsets == [(0, 3), (3, 6), (7, 10), (11, 17), (18, 19), (19, 20)]
    assert learned.decode(encoding.ids) == "unable una <unk> ua"


@given(
    st.text("abc", max_size=12), st.sets(st.text("abc", min_size=1, max_size=4)), st.sets(st.text("abc", min_size=1))
)
@settings(deadline=None, max_examples=200)
def test_greedy_equals_its_definition(word, first, later):
    """The longest piece that fits, again and again; all of it unknown where none does."""
    learned = WordPieceTokenizer(
        ["<end>", "<unk>", *sorted(first), *(f"##{piece}" for piece in sorted(later))], Cleaning(False, False, True)
    )
    expected, rest = [], word
    while rest:
        pieces, mark = (later, "##") if expected else (first, "")
        fits = max((piece for piece in pieces if rest.startswith(piece)), key=len, default=None)
        if fits is None:
            expected = ["<unk>"]
            break
        expected.append(mark + fits)
        rest = rest[len(fits) :]
    assert [learned.token(index) for index in learned.encode(word).ids] == expected


def test_cleaning():
    plain, uncased = Cleaning.of(False, None, True), Cleaning.of(True, None, True)
    text = "Héllo,\u00a0Wörld\x00! 日本 don't\u200b"
    assert plain.words(text) == ["Héllo", ",", "Wörld", "!", "日", "本", "don", "'", "t"]
    assert uncased.words(text) == ["hello", ",", "world", "!", "日", "本", "don", "'", "t"]
    assert Cleaning.of(True, False, False).words("É日本") == ["é日本"]


def test_offsets_are_those_of_the_text_as_it_was():
    learned = learn("hello wörld " * 3, lowercase=True)
    encoding = learned.encode("\x00HÉLLO  e\u0301 wörld")
    text = "\x00HÉLLO  e\u0301 wörld"
    words = [text[start:stop] for start, stop in encoding.offsets]
    assert "".join(words).replace("\u0301", "") == "HÉLLOewörld"


def test_every_character_can_stand_anywhere():
    learned = learn("xa xa 日a日")
    assert learned.unknown_id not in learned.encode("ax aaa").ids
    assert "##日" not in learned.tokens  # is always a word


def test_reads_well():
    text = 'He said, "Hello (world)!" and bye; e.g. this.'
    learned = learn(text * 2)
    assert learned.decode(learned.encode(text).ids) == 'He said, "Hello (world)!" and bye; e. g. this.'
