"""Held-out data that are in the training data too: the share is measured and reported."""

from __future__ import annotations

import random
import shutil
import textwrap

import numpy as np
import pytest

from seqlab.data.checks import leaks
from seqlab.data.checks.leaks import Trained, measured_on_other, overlap
from seqlab.data.formats.contents import Asked
from seqlab.data.formats.series import Layout
from seqlab.data.reading.readers import fingerprint
from seqlab.data.reading.series_splits import AskedSeries
from seqlab.recipe import DataSettings


def sentences(count: int, seed: int = 0) -> list[str]:
    own = random.Random(seed)
    return [f"{number} {' '.join(f'w{own.randrange(500)}' for _ in range(12))}" for number in range(count)]


def found(train, valid, roles=("text",), symbols=False, **keys):
    asked = Asked(DataSettings(train=str(train), valid=str(valid), **keys), roles, symbols)
    return overlap(asked, asked)


@pytest.mark.parametrize("between", ["\n\n", "\n", " "])
def test_a_copy_under_another_name(tmp_path, between):
    (tmp_path / "a.txt").write_text(between.join(sentences(400)))
    shutil.copy(tmp_path / "a.txt", tmp_path / "b.txt")
    assert found(tmp_path / "a.txt", tmp_path / "b.txt").share == 1
    (tmp_path / "c.txt").write_text(between.join(sentences(400, seed=1)))
    assert found(tmp_path / "a.txt", tmp_path / "c.txt").common == 0


def test_a_share_of_the_rows(tmp_path):
    rows, others = sentences(500), sentences(60, seed=1)
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"{row},x\n" for row in rows))
    (tmp_path / "b.csv").write_text(
        "id,text,label\n" + "".join(f"{n},{row},y\n" for n, row in enumerate(rows[:40] + others))
    )
    one = found(tmp_path / "a.csv", tmp_path / "b.csv", ("text", "label"))
    assert (one.unit, one.common, one.units) == ("record", 40, 100)
    assert str(one) == "40 of 100 held-out records (40 % of the text) are also in the training data"


def test_a_text_pasted_into_another(tmp_path):
    """The cuts of blocks follow the content: it need not begin at the same place."""
    text, other = " ".join(sentences(1000)), " ".join(sentences(1000, seed=1))
    (tmp_path / "a.txt").write_text(other[:777] + text + other[777:])
    (tmp_path / "b.txt").write_text(text)
    assert found(tmp_path / "a.txt", tmp_path / "b.txt").share > 0.9


def as_crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def rewrapped(text: str) -> str:
    return "\n\n".join(textwrap.fill(one, 40) for one in text.split("\n\n"))


def without_blank_lines(text: str) -> str:
    return text.replace("\n\n", "\n")


def as_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("changed", [as_crlf, rewrapped, without_blank_lines, as_one_line])
@pytest.mark.parametrize(("seed", "share"), [(0, 1), (1, 0)])
def test_white_space_hides_nothing(tmp_path, changed, seed, share):
    (tmp_path / "a.txt").write_text("\n\n".join(textwrap.fill(one, 60) for one in sentences(400)))
    text = "\n\n".join(textwrap.fill(one, 60) for one in sentences(400, seed))
    (tmp_path / "b.txt").write_bytes(changed(text).encode())
    assert found(tmp_path / "a.txt", tmp_path / "b.txt").share == pytest.approx(share, abs=0.02)
    assert found(tmp_path / "b.txt", tmp_path / "a.txt").share == pytest.approx(share, abs=0.02)


def test_texts_of_the_same_words_have_no_passages_in_common(tmp_path):
    for seed, name in enumerate("ab"):
        own, words = random.Random(seed), ["one", "two", "three", "four", "five", "six"]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(" ".join(own.choices(words, k=20)) for _ in range(3000)))
    assert found(tmp_path / "a.txt", tmp_path / "b.txt").common == 0


def test_line_ends_in_the_cells_of_rows(tmp_path):
    rows = sentences(100)
    for name, end in {"a": "\n", "b": "\r\n"}.items():
        lines = ["text,label", *(f'"{row}{end}more",x' for row in rows), ""]
        (tmp_path / f"{name}.csv").write_bytes(end.join(lines).encode())
    assert found(tmp_path / "a.csv", tmp_path / "b.csv", ("text", "label")).share == 1


def test_short_lines_that_are_the_same_by_chance_are_no_caution(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join([*sentences(300), *["yes ."] * 20]))
    (tmp_path / "b.txt").write_text("\n".join([*sentences(300, seed=1), *["yes ."] * 20]))
    for documents in ("line", "file"):
        one = found(tmp_path / "a.txt", tmp_path / "b.txt", documents=documents)
        assert one.common == 20
        assert str(one).startswith("20 of 320 held-out")
        assert str(one).endswith("(so few may be due to chance)")


def test_lines_of_a_text_and_rows(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(sentences(100)))
    (tmp_path / "b.jsonl").write_text("".join(f'{{"text": "{row}"}}\n' for row in sentences(100)))
    assert found(tmp_path / "a.txt", tmp_path / "b.jsonl").share == 1


def test_arrays(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 99, 30_000))
    np.save(tmp_path / "b.npy", np.load(tmp_path / "a.npy")[10_000:20_000])
    assert found(tmp_path / "a.npy", tmp_path / "b.npy", symbols=True).share > 0.5


def test_built_in_sets_are_not_looked_at(tmp_path):
    assert found("python-docs", "python-code") is None


def test_it_is_measured_once(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("\n".join(sentences(400)))
    monkeypatch.setattr(leaks, "QUICK", 100)
    first = found(tmp_path / "a.txt", tmp_path / "b.txt")
    monkeypatch.setattr(leaks, "_compared", None)
    assert found(tmp_path / "a.txt", tmp_path / "b.txt") == first


def steps(path, values, header="day,a,b"):
    rows = [f"{day},{','.join(map(repr, row))}" for day, row in enumerate(values.tolist())]
    path.write_text("\n".join([header, *rows, ""]))
    return path


def series(train, valid, row="step", whole=False):
    asked = AskedSeries(DataSettings(train=str(train), valid=str(valid)), Layout(row=row), 10, whole)
    return overlap(asked, asked)


def test_a_copy_of_a_series(tmp_path):
    values = np.random.default_rng(0).normal(size=(300, 2))
    steps(tmp_path / "a.csv", values)
    one = series(tmp_path / "a.csv", steps(tmp_path / "b.csv", values))
    assert str(one) == "300 of 300 held-out steps (100 %) are also in the training data"
    part = np.concatenate([values[100:150], np.random.default_rng(1).normal(size=(150, 2))])
    assert series(tmp_path / "a.csv", steps(tmp_path / "c.csv", part)).common == 50
    swapped = steps(tmp_path / "d.csv", values[:, ::-1], header="day,b,a")
    assert series(tmp_path / "a.csv", swapped).share == 1
    unrelated = steps(tmp_path / "e.csv", np.random.default_rng(2).normal(size=(300, 2)))
    assert series(tmp_path / "a.csv", unrelated).common == 0


def test_a_constant_is_in_many_series(tmp_path):
    steps(tmp_path / "a.csv", np.zeros((100, 2)))
    assert series(tmp_path / "a.csv", steps(tmp_path / "b.csv", np.zeros((50, 2)))).common == 0


def test_short_series_are_compared_whole(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 5))
    fewer = np.concatenate([values[:10], np.random.default_rng(1).normal(size=(10, 5))])
    for name, rows in zip("ab", (values, fewer), strict=True):
        (tmp_path / f"{name}.txt").write_text("\n".join(" ".join(map(repr, row)) for row in rows.tolist()))
    one = series(tmp_path / "a.txt", tmp_path / "b.txt", row="series", whole=True)
    assert (one.common, one.units) == (50, 100)


def other(train, valid, trained=""):
    asked = Asked(DataSettings(train=str(train)), ("text",))
    separate = Asked(DataSettings(train=str(train), valid=str(valid)), ("text",))
    return measured_on_other(separate, [Trained(asked, trained)])


def test_training_data_that_cannot_be_compared_are_named(tmp_path, monkeypatch):
    (tmp_path / "b.txt").write_text("\n".join(sentences(100)))
    gone = other(tmp_path / "gone.txt", tmp_path / "b.txt")["compared"]
    assert gone.startswith(f"not compared with the training data: no file or folder '{tmp_path / 'gone.txt'}'")
    shutil.copy(tmp_path / "b.txt", tmp_path / "a.txt")
    monkeypatch.setattr(leaks, "LARGE", 2000)
    large = f"not compared with the training data: {tmp_path / 'a.txt'} exceeds 0 MB"
    assert other(tmp_path / "a.txt", tmp_path / "b.txt") == {"compared": large}


def test_training_data_that_have_changed_are_compared_as_they_are(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(sentences(100)))
    (tmp_path / "b.txt").write_text("\n".join(sentences(100, seed=1)))
    trained = fingerprint(DataSettings(train=str(tmp_path / "a.txt")), "train")[:16]
    assert other(tmp_path / "a.txt", tmp_path / "b.txt", trained) == {}
    (tmp_path / "a.txt").write_text("\n".join(sentences(90)))
    noted = other(tmp_path / "a.txt", tmp_path / "b.txt", trained)["compared"]
    assert "have changed since the run was trained: compared with what they are now" in noted


def test_training_on_built_in_sets_needs_no_note(tmp_path):
    (tmp_path / "b.txt").write_text("\n".join(sentences(100)))
    assert other("python-docs", tmp_path / "b.txt", "0123") == {}
