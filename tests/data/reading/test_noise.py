"""Scrambled letters: the same every time, in place, and only what may be moved is moved."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.randomness import mix
from seqlab.data.reading import readers
from seqlab.data.reading.noise import CHARACTER, SPACELESS, SPACELESS_PART, WORD, scramble
from seqlab.data.reading.readers import cache_key, fingerprint, read
from seqlab.recipe import DataSettings

TEXT = "According to a research at Cambridge University, it does not matter in what order the letters are."


LETTERS = re.compile(r"[^\W\d_]{4,}")


@given(st.text(), st.floats(0, 1), st.integers(0, 5))
@settings(deadline=None, max_examples=100)
def test_words_keep_their_place_their_letters_and_their_ends(text, share, seed):
    noisy = scramble(text, share, seed)
    spans = [found.span() for found in WORD.finditer(text)]
    assert [found.span() for found in WORD.finditer(noisy)] == spans
    for start, stop in spans:
        before, after = text[start:stop], noisy[start:stop]
        assert (after[0], after[-1], sorted(after)) == (before[0], before[-1], sorted(before))
    others = [list(text), list(noisy)]
    for start, stop in spans:
        for characters in others:
            characters[start:stop] = [""] * (stop - start)
    assert others[0] == others[1]


def of_words_with_spaces(text: str, share: float, seed: int) -> str:
    """The rule for scripts with spaces, on its own; runs were trained on texts that it made."""
    numbers, limit = count(), int(share * 2**64)

    def changed(found: re.Match[str]) -> str:
        word, key = found[0], mix(seed, next(numbers))
        inner = mixed = word[1:-1]
        turn = 0
        while key < limit and mixed == inner and len(set(inner)) > 1:
            places = sorted(range(len(inner)), key=lambda place: mix(key, turn, place))
            mixed, turn = "".join(inner[place] for place in places), turn + 1
        return word[0] + mixed + word[-1]

    return LETTERS.sub(changed, text)


SPACED = st.text(st.characters(exclude_categories=["Cs"]).filter(lambda one: not SPACELESS_PART.match(one)))


@given(SPACED, st.floats(0, 1), st.integers(0, 5))
@settings(deadline=None, max_examples=200)
def test_scripts_with_spaces_are_scrambled_as_ever(text, share, seed):
    assert scramble(text, share, seed) == of_words_with_spaces(text, share, seed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, "Aocrcding to a reasrceh at Cgbiradme Ueinitsrvy, it deos not matetr in waht oredr the lrteets are."),
        ("Съешь ещё этих мягких французских булок", None),
        ("한국어는 띄어쓰기를 합니다만 그렇습니다", None),
        ("हिन्दी में शब्दों के बीच में खाली जगह", None),
        ("الكلمات العربية بينها مسافات", None),
    ],
)
def test_known_texts_of_scripts_with_spaces(text, expected):
    assert scramble(text) == (expected or of_words_with_spaces(text, 1.0, 0))


def test_words_around_chinese_ones_stay_as_they_were():
    """A run of Chinese characters has one number, as it ever had: the words after it are what they were."""
    text = "letters 研究表明漢字 letters 北京 letters 很长的一个句子 letters"
    for seed in range(10):
        found, expected = scramble(text, 0.7, seed), of_words_with_spaces(text, 0.7, seed)
        assert re.findall("[a-z]+", found) == re.findall("[a-z]+", expected)


# ---------------------------------------------------------------------- scripts without spaces


UNSPACED = {
    "Chinese": ("研究表明", "研表究明"),
    "a clause": ("漢字的順序並不一定能影響閱讀", "漢的字序順不並定一影能閱響讀"),
    "Japanese": ("私はカタカナとひらがなを読みます", "私カはカタとナらひなが読をまみす"),
    "Thai": ("ภาษาไทยเป็นภาษาที่มีระดับเสียง", "ภษาไายทป็เภนษาที่ารมีดัะเบยสีง"),
    "Myanmar": ("မြန်မာဘာသာစကား", "မြမာန်သာဘာစကား"),
    "Khmer": ("ខ្ញុំស្រឡាញ់ភាសាខ្មែរ", "ខ្ស្ញុំឡារភាញ់ខ្សាមែរ"),
    "with a Latin word": ("使用Python语言编程非常方便", "使用Ptyhon语编言非程方常便"),
    "too short": ("北京人", "北京人"),
    "short parts": ("北京 大学 你好 世界", "北京 大学 你好 世界"),
}


@pytest.mark.parametrize("name", UNSPACED)
def test_where_a_script_has_no_spaces_neighbours_change_places(name):
    text, expected = UNSPACED[name]
    assert scramble(text) == expected


@pytest.mark.parametrize("name", UNSPACED)
def test_characters_keep_their_marks(name):
    """Not one code point leaves the letter that it belongs to; each moves by at most one place."""
    text, _ = UNSPACED[name]
    for seed in range(20):
        before, after = CHARACTER.findall(text), CHARACTER.findall(scramble(text, 0.6, seed))
        assert sorted(before) == sorted(after)
        assert not any(unicodedata.category(one[0]).startswith("M") for one in after)
        if "Python" not in text:
            for place, one in enumerate(after):
                assert one in before[max(0, place - 1) : place + 2]


def test_a_share_of_the_pairs():
    """All pairs at 1, none at 0; a larger share exchanges the same pairs and more of them."""
    text = "".join(chr(0x4E00 + place) for place in range(4002))
    moved = [
        {place for place, one in enumerate(scramble(text, share)) if one != text[place]} for share in (0, 0.1, 0.5, 1)
    ]
    assert moved[0] < moved[1] < moved[2] < moved[3]
    assert [len(places) / 4000 for places in moved] == pytest.approx([0, 0.1, 0.5, 1], abs=0.03)


@pytest.mark.parametrize("blocks", SPACELESS.values(), ids=SPACELESS)
def test_every_block_has_letters_that_change_places(blocks):
    for first, last in blocks:
        letters = [chr(code) for code in range(first, last + 1) if unicodedata.category(chr(code)) == "Lo"][:6]
        if len(letters) == 6:
            text = "".join(letters)
            assert scramble(text) != text
            assert sorted(scramble(text)) == sorted(text)


def test_share():
    """All words at 1, none at 0, and a larger share scrambles the same words and more."""
    words = ("letters " * 3000).split()
    changed = [
        {place for place, word in enumerate(scramble(" ".join(words), share).split()) if word != "letters"}
        for share in (0, 0.1, 0.5, 1)
    ]
    assert changed[0] < changed[1] < changed[2] < changed[3]
    assert [len(places) / 3000 for places in changed] == pytest.approx([0, 0.1, 0.5, 1], abs=0.03)
    assert len(changed[3]) == 3000


def test_what_cannot_change():
    assert scramble("the cat noon 1234 a_b") == "the cat noon 1234 a_b"
    assert scramble("does") == "deos"


def test_other_seeds_and_other_processes():
    assert scramble(TEXT) != scramble(TEXT, seed=1)
    program = f"from seqlab.data.reading.noise import scramble; print(scramble({TEXT!r}, 0.7))"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
        capture_output=True,
    )
    assert said.stdout.decode().strip() == scramble(TEXT, 0.7)


def test_records(tmp_path):
    """Words are numbered through all records, and a scrambled text is another text to the token store."""
    path = tmp_path / "a.txt"
    path.write_text(f"{TEXT}\n{TEXT}\n", encoding="utf-8")
    plain = DataSettings(train=str(path), valid=[], documents="line")
    noisy = plain.model_copy(update={"scramble": 0.5})
    lines = [record.fields["text"] for record in read(noisy, "train")]
    assert "\n".join(lines) == scramble(f"{TEXT}\n{TEXT}", 0.5)
    assert lines[0] != lines[1]
    assert fingerprint(noisy, "train") != fingerprint(plain, "train")


def test_what_an_older_rule_scrambled_is_not_taken_from_the_cache(tmp_path, monkeypatch):
    """But the fingerprint, which runs have recorded, stays as it is."""
    path = tmp_path / "a.txt"
    path.write_text(f"{TEXT}\n{TEXT}\n", encoding="utf-8")
    plain = DataSettings(train=str(path), valid=[], documents="line")
    noisy = plain.model_copy(update={"scramble": 0.5})
    before = [(fingerprint(one, "train"), cache_key(one, "train", "facts")) for one in (plain, noisy)]
    monkeypatch.setattr(readers, "RULE", 1)
    after = [(fingerprint(one, "train"), cache_key(one, "train", "facts")) for one in (plain, noisy)]
    assert before[0] == after[0]
    assert before[1][0] == after[1][0]
    assert before[1][1] != after[1][1]
