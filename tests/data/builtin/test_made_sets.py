"""Names in many languages, scanned digits, the copy task: what is in them, and what is held out."""

import sys

import numpy as np
import pytest

from seqlab.data.builtin.sets import documents, is_builtin
from seqlab.data.reading.readers import fingerprint, read
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

PARTS = ("train", "valid")


def test_a_name_has_one_language_and_a_thing_one_part():
    train, valid = (list(documents("languages", part)) for part in PARTS)
    texts = [one.fields["text"] for one in train + valid]
    assert len(texts) == len(set(texts)) > 40_000
    assert {one.fields["label"] for one in train} == {one.fields["label"] for one in valid}
    assert len({one.fields["label"] for one in train}) > 70
    assert not {one.key for one in train} & {one.key for one in valid}
    assert {one.fields["label"]: one.fields["text"] for one in train + valid if one.key == "territory/DE"}[
        "French"
    ] == "Allemagne"
    assert "Peru" not in texts


def test_digits_are_those_of_the_library():
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    found = sorted((one for part in PARTS for one in documents("digits", part)), key=lambda one: int(one.name))
    assert (np.array([one.fields["text"].split() for one in found], dtype=int) == pixels).all()
    assert [int(one.fields["label"]) for one in found] == labels.tolist()
    assert 300 < len(list(documents("digits", "valid"))) < 420


def test_permuted_digits_are_all_permuted_alike():
    pytest.importorskip("sklearn")
    plain, permuted = (
        np.array([one.fields["text"].split() for one in documents(name, "train")], int) for name in DIGITS
    )
    assert (plain != permuted).any()
    columns = [sorted(map(tuple, each.T)) for each in (plain, permuted)]
    assert columns[0] == columns[1]


DIGITS = ("digits", "digits-permuted")


def test_digits_without_the_library(monkeypatch):
    from seqlab.data.builtin.digits import digits

    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"need scikit-learn; install it: pip install 'seqlab\[images\]'"):
        list(digits())


def test_copy_is_what_its_definition_says():
    train, valid = (list(read(DataSettings(train="copy:7:100"), part, ("text", "tags"))) for part in PARTS)
    test = list(read(DataSettings(train="copy:7:100", valid="copy-test:7:100"), "valid", ("text", "tags")))
    assert [len(train), len(valid), len(test)] == [70, 20, 10]
    for record in train + valid + test:
        words, tags = record.fields["text"].split(), record.fields["tags"].split()
        assert len(words) == len(tags) == 27
        assert words[10:] == ["_"] * 6 + [":"] + ["_"] * 10
        assert tags == ["_"] * 17 + words[:10]
    assert {word for record in train for word in record.fields["text"].split()[:10]} == set("abcdefgh")
    assert len({record.fields["text"] for record in train + valid + test}) == 100


def test_copies_of_different_sizes_have_nothing_in_common():
    small, large = ({one.fields["text"] for one in documents(name, "train")} for name in ("copy:7:100", "copy:7:1000"))
    tests = {one.fields["text"] for one in documents("copy-test:7:100", "valid")}
    assert not large & tests
    assert not large & small


def test_sizes_of_copy():
    assert is_builtin("copy-test:5")
    assert not is_builtin("python-docs-test")
    assert (
        len({fingerprint(DataSettings(train=name), "train") for name in ("copy:5:50", "copy:6:50", "copy:5:60")}) == 3
    )
    for name in ("copy:0", "copy:5:3", "copy:a", "copy:1:20:3"):
        with pytest.raises(DataError, match=f"'{name}'"):
            documents(name, "train")
