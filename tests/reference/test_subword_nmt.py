"""Classic BPE against the program of its authors: merges and segmentation of their own test data."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqlab.tokenizers.classic_bpe import ClassicBPETokenizer
from seqlab.tokenizers.merges import apply_merges, shown, split_word

DATA = Path(__file__).resolve().parents[2] / "../shared/data/subword_nmt"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data has no subword_nmt here")


@pytest.fixture(scope="module")
def corpus():
    return (DATA / "corpus.en").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def learned(corpus):
    lines = corpus.splitlines(keepends=True)
    return ClassicBPETokenizer.fit(lines, ClassicBPETokenizer.Settings(vocab_size=None))


def test_merges(learned):
    expected = (DATA / "bpe.ref").read_text(encoding="utf-8").split("\n")[1:-1]
    assert len(expected) == 1000
    assert [f"{shown(left)} {shown(right)}" for left, right in learned.merges[:1000]] == expected


def test_segmentation(learned, corpus):
    ranks = dict(list(learned.ranks.items())[:1000])

    def cut(line):
        pieces = [apply_merges(split_word(word, "glued"), ranks) for word in line.split()]
        return " ".join("@@ ".join(symbols).rstrip() for symbols in pieces)

    expected = (DATA / "corpus.bpe.ref.en").read_text(encoding="utf-8")
    ours, theirs = corpus.split("\n"), expected.split("\n")
    assert [cut(line) for line in ours] == [line.strip() for line in theirs]


def test_corpus_comes_back(learned, corpus):
    assert learned.decode(learned.encode(corpus).ids) == " ".join(corpus.split())
