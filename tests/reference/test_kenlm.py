"""N-gram models against kenlm's reading of the same ARPA file, and against published perplexities."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tolerance import SMALL_NET, rounding

from seqlab.models.arpa import write_arpa
from seqlab.models.ngram import NGram

PTB = Path(__file__).resolve().parents[2] / "../shared/data/ptb"
LN10 = math.log(10)


def scores(model, tokens):
    """log₁₀ p of each token after those before it; the first is only read."""
    row = torch.tensor(tokens, dtype=torch.long)
    return (-model.losses(model(row[None, :-1]).states[0], row[1:]) / LN10).tolist()


def compare(model, words, sentences, path):
    """Every word of every sentence, with and without <s> and </s>, to a few roundings of float32."""
    kenlm = pytest.importorskip("kenlm")
    write_arpa(model, words, path)
    reader = kenlm.Model(str(path))
    ids = {word: index for index, word in enumerate(words)}
    for sentence, eos in itertools.product(sentences, [False, True]):
        tokens = [ids[word] for word in sentence] + [0] * eos
        text = " ".join(sentence)
        ours = scores(model, [0, *tokens])
        theirs = [score for score, _, _ in reader.full_scores(text, bos=True, eos=eos)]
        assert ours == pytest.approx(theirs, abs=rounding(16, 10))
        if tokens:
            first = model.logits(model.start().rows["contexts"])[0, tokens[0]].item() / LN10
            theirs = [score for score, _, _ in reader.full_scores(text, bos=False, eos=eos)]
            assert [first, *scores(model, tokens)] == pytest.approx(theirs, abs=rounding(16, 10))


@pytest.mark.parametrize("smoothing", ["kneser-ney", "modified-kneser-ney"])
@pytest.mark.parametrize("order", [2, 3, 5])  # kenlm reads no unigram models
@pytest.mark.parametrize("prune", [(), (0, 1, 2)])
def test_random_text(tmp_path, order, smoothing, prune):
    words = ["<end>", *(f"w{index}" for index in range(1, 30)), "<unk>"]
    text = np.random.default_rng(order).zipf(1.3, size=3000) % 30  # without <unk>, which yet has a share
    model = NGram(NGram.Settings(order=order, smoothing=smoothing, prune=prune), len(words))
    model.fit(np.append(text[:2500], 0))
    sentences = [[words[i] for i in part if i] for part in np.split(text[2500:], np.flatnonzero(text[2500:] == 0))]
    compare(model, words, [*sentences, [], ["<unk>", "w1", "w2", "<unk>"]], tmp_path / "model.arpa")


def test_characters(tmp_path):
    """A model over characters, where a space is a token: kenlm knows it as \\u{20}."""
    kenlm = pytest.importorskip("kenlm")
    text = "the cat sat on the mat. the dog sat on the log."
    words = ["<end>", *sorted(set(text))]
    tokens = [words.index(character) for character in text]
    model = NGram(NGram.Settings(order=3), len(words))
    model.fit(np.array([*tokens, 0]))
    write_arpa(model, words, tmp_path / "model.arpa.gz")
    spelt = " ".join(character.replace(" ", "\\u{20}") for character in text)
    expected = kenlm.Model(str(tmp_path / "model.arpa.gz")).score(spelt)
    assert sum(scores(model, [0, *tokens, 0])) == pytest.approx(expected, abs=rounding(SMALL_NET, abs(expected)))


@pytest.fixture(scope="module")
def ptb():
    if not PTB.is_dir():
        pytest.skip("the shared data has no ptb here")
    ids = {"<end>": 0}
    lines = {part: (PTB / f"ptb.{part}.txt").read_text().splitlines() for part in ("train", "valid", "test")}
    tokens = {
        part: np.array([ids.setdefault(word, len(ids)) for line in text for word in [*line.split(), "<end>"]])
        for part, text in lines.items()
    }
    return list(ids), lines, tokens


def test_penn_treebank_perplexity(ptb):
    """Modified Kneser-Ney of order 5 without cutoffs: 141.2 on the test part, as published."""
    words, _, tokens = ptb
    assert len(words) == 10_000
    model = NGram(NGram.Settings(order=5), len(words))
    model.fit(tokens["train"])
    for part, expected in (("valid", 148.0), ("test", 141.2)):
        losses = -np.array(scores(model, [0, *tokens[part].tolist()])) * LN10
        assert math.exp(losses.mean()) == pytest.approx(expected, abs=0.1)


def test_penn_treebank_scores(ptb, tmp_path):
    words, lines, tokens = ptb
    model = NGram(NGram.Settings(order=5), len(words))
    model.fit(tokens["train"][:200_000])
    compare(model, words, [line.split() for line in lines["test"][:300]], tmp_path / "ptb.arpa")
