"""ARPA files: what is written is read back exactly, and what is broken is named with its line."""

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerance import close, rounding

from seqlab.errors import DataError, RunError
from seqlab.models.arpa import escape, read_arpa, unescape, write_arpa
from seqlab.models.ngram import NGram

WORDS = [
    "<end>",
    "a",
    " ",
    "\n",
    "\\u{20}",
    "<s>",
    "</s>",
    "<unk>",
    "<UNK>",
    "",
    "\u2028",
    "\\",
    "<end>",
    "è",
    "\x00",
]


def fitted(order, words=WORDS, smoothing="modified-kneser-ney"):
    model = NGram(NGram.Settings(order=order, smoothing=smoothing), len(words))
    model.fit(np.append(np.random.default_rng(0).integers(0, len(words) - 1, size=300), 0))
    return model


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_round_trip(tmp_path, order, name):
    model = fitted(order, smoothing="kneser-ney")
    write_arpa(model, WORDS, tmp_path / name)
    again, words = read_arpa(tmp_path / name)
    assert words == WORDS
    assert again.order == order
    for key, table in model.state_dict().items():
        if key not in ("seen", "census"):
            close(again.state_dict()[key], table, steps=4)  # what is written has nine digits


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_arpa(fitted(3), WORDS, tmp_path / folder / "model.arpa.gz")
    one, two = ((tmp_path / folder / "model.arpa.gz").read_bytes() for folder in ("one", "two"))
    assert one == two


@given(st.text(st.characters(), max_size=6) | st.text("\\u{}520 <s>/", max_size=9))
def test_any_word_can_be_written(word):
    written = escape(word)
    assert unescape(written) == word
    assert len(written.encode("utf-8").split()) == 1
    assert written not in ("<s>", "</s>")


@pytest.mark.parametrize("smoothing", ["counts", "add-k", "stupid-backoff"])
def test_what_arpa_cannot_hold(tmp_path, smoothing):
    with pytest.raises(RunError, match=smoothing):
        write_arpa(fitted(2, smoothing=smoothing), WORDS, tmp_path / "model.arpa")


@pytest.mark.parametrize("words", [WORDS[:-1], ["<end>", *["a"] * (len(WORDS) - 1)]])
def test_words_that_do_not_fit(tmp_path, words):
    with pytest.raises(RunError, match=r"words for|spelt 'a'"):
        write_arpa(fitted(2), words, tmp_path / "model.arpa")


GOOD = """some words before
\\data\\
ngram 1=3
ngram 2=2

\\1-grams:
-99 <s> -0.3
-0.3\t</s>
-0.4\ta\t-0.2

\\2-grams:
-0.1\t<s> a
-0.2\ta </s>

\\end\\
"""


def test_a_file_of_others(tmp_path):
    (tmp_path / "model.arpa").write_text(GOOD)
    model, words = read_arpa(tmp_path / "model.arpa")
    assert words == ["<end>", "a"]
    losses = model.losses(model(torch.tensor([[0, 1, 1, 0]])).states[0], torch.tensor([1, 1, 0, 0]))
    assert (losses / np.log(10)).tolist() == pytest.approx([0.1, 0.2 + 0.4, 0.2, 0.3 + 0.3], abs=rounding(8))


@pytest.mark.parametrize(
    ("right", "wrong", "line", "what"),
    [
        ("\\data\\", "data", 15, "no \\\\data"),
        ("ngram 1=3\n", "", 3, "order 2, but order 1 is expected"),
        ("ngram 1=3\nngram 2=2\n", "", 4, "no line like"),
        ("ngram 1=3", "ngram 1=4", 11, "3 1-grams end here"),
        ("\\1-grams:", "\\3-grams:", 6, "no \\\\1-grams"),
        ("-0.4\ta\t-0.2", "-0.4", 9, "1 fields"),
        ("-0.4\ta\t-0.2", "-0.4\ta b\t-0.2", 9, "4 fields"),
        ("-0.4\ta", "x\ta", 9, "not a number"),
        ("-0.4\ta", "0.4\ta", 9, "logarithm"),
        ("-0.4\ta", "nan\ta", 9, "logarithm"),
        ("-0.4\ta", "-0.4\t<s>", 9, "duplicate n-gram"),
        ("-0.3\t</s>", "-0.3\tb", 11, "no 1-gram <s> or </s>"),
        ("<s> a", "<s> c", 12, "'c' is not a 1-gram"),
        ("<s> a", "</s> a", 12, "</s> that is not last"),
        ("<s> a", "a <s>", 12, "<s> that is not first"),
        ("<s> a", "a </s>", 13, "duplicate n-gram"),
        ("\n\\end\\", "", 14, "no \\\\end"),
    ],
)
def test_broken_files(tmp_path, right, wrong, line, what):
    path = tmp_path / "model.arpa"
    assert right in GOOD
    path.write_text(GOOD.replace(right, wrong, 1))
    with pytest.raises(DataError, match=what) as caught:
        read_arpa(path)
    assert caught.value.where == f"{path}, line {line}"


def test_a_missing_lower_order(tmp_path):
    text = GOOD.replace("ngram 2=2", "ngram 2=2\nngram 3=1").replace("\n\\end", "\n\\3-grams:\n-1 a a a\n\n\\end")
    (tmp_path / "model.arpa").write_text(text)
    with pytest.raises(DataError, match="line 17: the 2-gram at the start of this n-gram is missing"):
        read_arpa(tmp_path / "model.arpa")


def test_files_that_are_not_there_or_damaged(tmp_path):
    with pytest.raises(DataError, match="cannot open"):
        read_arpa(tmp_path / "none.arpa")
    (tmp_path / "plain.arpa.gz").write_text(GOOD)
    with pytest.raises(DataError, match="cannot read further"):
        read_arpa(tmp_path / "plain.arpa.gz")
    (tmp_path / "cut.arpa.gz").write_bytes(gzip.compress(GOOD.encode())[:-20])
    with pytest.raises(DataError, match="cannot read further"):
        read_arpa(tmp_path / "cut.arpa.gz")
    (tmp_path / "latin.arpa").write_bytes(GOOD.replace("a\t", "è\t").replace(" a", " è").encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        read_arpa(tmp_path / "latin.arpa")


BACKED_OFF = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.3
-0.5\t</s>
-0.4\ta\t{backoff}
-0.6\tb\t-0.2

\\2-grams:
-0.2\t<s> a
-0.3\ta b

\\end\\
"""


def test_a_backoff_that_makes_a_probability_above_1(tmp_path):
    """One above 1 is allowed, as in models that back off without interpolation, if what it gives is none."""
    path = tmp_path / "model.arpa"
    path.write_text(BACKED_OFF.format(backoff=0.39))
    model, words = read_arpa(path)
    assert float(model.logits(model(torch.tensor([[words.index("a")]])).states).max()) <= 0
    path.write_text(BACKED_OFF.format(backoff=0.9))
    with pytest.raises(DataError, match=r"makes the probability of 'a' after 'a' 3\.16, above 1") as told:
        read_arpa(path)
    assert told.value.where == f"{path}, line 8"


@pytest.mark.parametrize(
    ("total", "digits", "accepted"),
    [(0.5, 7, True), (1, 7, True), (1.0004, 7, True), (1, 1, True), (1.01, 7, False), (1.3, 1, False), (3, 7, False)],
)
def test_probabilities_that_add_up_to_more_than_1(tmp_path, total, digits, accepted):
    """Perplexities would be impossible. Less than 1 is fine, and so is 1 after rounding: 4 · 10^−0.6 = 1.005."""
    path = tmp_path / "model.arpa"
    score = f"{np.log10(total / 4):.{digits}f}"
    grams = "".join(f"{score}\t{word}\n" for word in ("</s>", "a", "b", "c"))
    path.write_text(f"\\data\\\nngram 1=5\n\n\\1-grams:\n0\t<s>\n{grams}\n\\end\\\n")
    if accepted:
        read_arpa(path)
        return
    with pytest.raises(DataError, match=r"1-grams add up to [\d.]+, above 1; the file is damaged, or") as told:
        read_arpa(path)
    assert told.value.where == f"{path}, line 5"
