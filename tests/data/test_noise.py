"""Scrambled letters: the same every time, in place, and only what may be moved is moved."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.noise import LETTERS, scramble
from seqlab.data.readers import fingerprint, read
from seqlab.recipe import DataSettings

TEXT = "According to a research at Cambridge University, it does not matter in what order the letters are."


@given(st.text(), st.floats(0, 1), st.integers(0, 5))
@settings(deadline=None, max_examples=100)
def test_words_keep_their_place_their_letters_and_their_ends(text, share, seed):
    noisy = scramble(text, share, seed)
    spans = [found.span() for found in LETTERS.finditer(text)]
    assert [found.span() for found in LETTERS.finditer(noisy)] == spans
    for start, stop in spans:
        before, after = text[start:stop], noisy[start:stop]
        assert (after[0], after[-1], sorted(after)) == (before[0], before[-1], sorted(before))
    others = [list(text), list(noisy)]
    for start, stop in spans:
        for characters in others:
            characters[start:stop] = [""] * (stop - start)
    assert others[0] == others[1]


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
    program = f"from seqlab.data.noise import scramble; print(scramble({TEXT!r}, 0.7))"
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
