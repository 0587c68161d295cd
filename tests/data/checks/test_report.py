from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from seqlab.cli.data import data
from seqlab.data.checks.report import examine
from seqlab.data.formats import files
from seqlab.data.formats.series import Layout, series_of
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

GOOD = "".join(f"This is the good line number {number}\n" for number in range(50))


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(tmp_path / name)

    return write


def places(path, **keys) -> list[tuple[str, int, int]]:
    found = examine([path], **keys)
    assert all(finding.count == len(finding.places) for finding in found)
    return [(finding.kind, place.line, place.byte) for finding in found for place in finding.places]


CASES = [
    ("a.txt", GOOD.encode(), []),
    ("a.txt", b"", [("empty file", 1, 0)]),
    ("a.txt", b"good\nb\xe9d\nb\xffd \xff\n", [("encoding", 2, 6), ("encoding", 3, 10)]),
    ("a.txt", b"good\nb\0d\n", [("NUL byte", 2, 6)]),
    (
        "a.txt",
        b"tab\tis fine\nbell\x07\n\xc2\x85\n",
        [("control character", 2, 16), ("control character", 3, 18)],
    ),
    ("a.txt", b"one\r\ntwo\nthree\r\n", [("mixed line ends", 2, 8)]),
    ("a.txt", b"one\r\ntwo\r\n", []),
    ("a.txt", b"one\n" + b"x" * 32 + b"\n" + b"y" * 31 + b"\n", [("long line", 2, 4)]),
    ("a.txt", ("é" * 31 + "\n").encode(), []),
    ("a.txt", b"\xef\xbb\xbfone\n", [("BOM", 1, 0)]),
    ("a.txt", b"one\n\n  \r\ntwo\n", [("mixed line ends", 3, 7), ("empty line", 2, 4), ("empty line", 3, 5)]),
    (
        "a.txt",
        b"one\n\ntwo\n\none\n",
        [("duplicate", 5, 10), ("empty line", 2, 4), ("empty line", 4, 9)],
    ),
    ("a.txt", "lost \ufffd\n".encode(), [("replacement character", 1, 5)]),
    ("a.jsonl", b'{"a": 1}\n{"a": \n[1]\n', [("broken row", 2, 9), ("broken row", 3, 16)]),
    ("a.csv", b'a,b\n1,2\n"x"y,2\n1\n3,4\n', [("broken row", 3, 8), ("broken row", 4, 15)]),
    ("a.tsv.gz", b'a\tb\n"1\t2\n3\n', [("broken row", 3, 9)]),
]


@pytest.mark.parametrize(("name", "content", "expected"), CASES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("block", [40, 1 << 20])
def test_places(write, monkeypatch, name, content, expected, packed, block):
    monkeypatch.setattr(files, "BLOCK", block)
    path = write(name + (".gz" if packed and not name.endswith(".gz") else ""), content)
    assert places(path, max_line=31) == expected


@pytest.mark.parametrize("block", [4, 7, 16])
def test_a_line_longer_than_a_block_is_one_line(write, monkeypatch, block):
    monkeypatch.setattr(files, "BLOCK", block)
    path = write("a.txt", f"{GOOD}{'a long line ' * 20}\n\n{'a long line ' * 21}\n" + "x" * 500)
    start = len(GOOD)
    expected = [("long line", 51, start), ("long line", 53, start + 242), ("long line", 54, start + 495)]
    assert places(path, max_line=200) == [*expected, ("empty line", 52, start + 241)]


def test_the_rest_is_counted(write):
    [finding] = examine([write("a.txt", "\n" * 1000)], keep=3)
    assert [place.line for place in finding.places] == [1, 2, 3]
    assert finding.count == 1000


def test_duplicates_name_the_first(write):
    path = write("a.txt", GOOD + "This is the good line number 7\n")
    (finding,) = examine([path])
    assert finding.places[0].what.startswith(f"same as {path}, line 8: 'This is")
    other = write("b.txt", "new\n" + GOOD)
    (duplicates,) = examine([path, other], keep=2)
    assert [(place.file, place.line) for place in duplicates.places] == [(path, 51), (other, 2)]
    assert duplicates.count == 51


def test_overlap(write):
    train = write("train.txt", GOOD + "ROMEO:\n")
    fresh = "".join(f"Another line, number {number}\n" for number in range(50))
    valid = write("valid.txt", fresh + "ROMEO:\nThis is the good line number 3\n")
    findings = examine([train], valid=[valid])
    assert [(f.kind, f.places[0].line, f.places[0].byte, f.fault) for f in findings] == [
        ("overlap", 52, len(fresh) + 7, True),
        ("short overlap", 51, len(fresh), False),
    ]
    short = write("short.txt", "a\nb\n")
    assert {finding.kind for finding in examine([short], valid=[short])} == {"overlap"}


def test_the_header_of_a_table_is_no_overlap(write):
    train, valid = (
        write("a.csv", "the text,the label of it\none,1\n"),
        write("b.csv", "the text,the label of it\ntwo,2\n"),
    )
    assert examine([train], valid=[valid]) == []


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="no file"):
        examine([str(tmp_path / "a.txt")])


# ---------------------------------------------------------------------- the command


def run(*arguments):
    return CliRunner().invoke(data, ["check", *arguments])


def test_command_on_clean_data(write):
    result = run(write("a.txt", GOOD))
    assert (result.exit_code, result.output) == (0, "clean: nothing found\n")


def test_command_with_notes_only(write):
    result = run(write("a.txt", GOOD + "\n" + "last\n"))
    assert result.exit_code == 0
    assert "empty line" in result.output
    assert "0 faults, 1 note" in result.output


def test_command_with_faults(write, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = write("a.txt", GOOD.encode() + b"bad \xff\n" * 12)
    result = run(path, "--valid", path, "--max-line", "20")
    assert result.exit_code == 1
    for word in ("fault", "encoding", "long line", "overlap", str(len(GOOD) + 4)):
        assert word in result.output
    counts = {tuple(line.split()[:4]) for line in result.output.splitlines()}
    assert ("fault", "encoding", "24", path) in counts  # of both parts


def test_command_as_json(write):
    path = write("a.txt", b"b\xe9d\n")
    result = run(path, "--json")
    report = json.loads(result.output)
    assert result.exit_code == report["faults"] == 1
    (finding,) = report["findings"]
    assert (finding["kind"], finding["fault"], finding["count"]) == ("encoding", True, 1)
    (place,) = finding["places"]
    assert (place["file"], place["line"], place["byte"]) == (path, 1, 1)


def test_command_help_shows_an_example():
    assert "seqlab data check train.txt --valid valid.txt" in run("--help").output


# ---------------------------------------------------------------------- words in columns

WORDS = [
    f"{word} NN {tag}" for word, tag in [("EU", "B-ORG"), ("rejects", "O"), ("a", "O"), ("call", "O"), ("to", "O")]
]


def sentence(number: int) -> str:
    return "\n".join([f"w{number} NN O", *WORDS]) + "\n\n"


@pytest.mark.parametrize("name", ["a.txt", "a.conll", "a.tsv", "a.conllu"])
def test_words_in_columns_are_compared_by_sentence(write, name):
    """Words and ends of sentences repeat in every such file: that is nothing to be told of."""
    text = "-DOCSTART- -X- O\n\n" + "".join(sentence(number) for number in range(40))
    if name == "a.conllu":
        text = "".join(f"# sent_id = same\n{sentence(number)}" for number in range(40))
    blank = "\t" if name in ("a.tsv", "a.conllu") else " "
    text = text.replace(" ", blank)
    found = [finding.kind for finding in examine([write(name, text)])]
    assert found == (["words in columns"] if name in ("a.txt", "a.tsv") else [])
    twice = write(f"twice-{name}", text + sentence(3).replace(" ", blank))
    [again] = examine([twice], format="conllu" if name == "a.conllu" else "conll")
    assert (again.kind, again.count, again.fault) == ("duplicate", 1, False)
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines, 1) if line.startswith("w3"))
    assert again.places[0].line == len(lines) + 1
    assert f"line {first}:" in again.places[0].what


def test_sentences_in_both_parts_are_faults_if_they_are_long(write):
    short = "LONDON NNP B-LOC\n1996-08-30 CD O\n\n"
    train = write("a.conll", "".join(sentence(number) for number in range(40)) + short)
    valid = write("b.conll", "".join(sentence(100 + number) for number in range(40)) + short + sentence(7))
    findings = examine([train], [valid])
    assert [(one.kind, one.count, one.fault) for one in findings] == [("overlap", 1, True), ("short overlap", 1, False)]


def test_a_word_with_other_columns_is_a_broken_row(write):
    path = write("a.conll", sentence(1) + "one two\n" + sentence(2))
    [finding] = examine([path])
    assert (finding.kind, finding.places[0].line) == ("broken row", 8)
    assert finding.places[0].what == "2 columns, but line 1 has 3"


def test_a_large_conll_file_prints_a_page(write):
    """And not a note for each word that occurs twice."""
    path = write("a.txt", "".join(sentence(number % 900) for number in range(1000)))
    result = run(path)
    assert result.exit_code == 0
    assert len(result.output.splitlines()) < 20
    assert "0 faults, 101 notes" in result.output
    report = json.loads(run(path, "--json").output)
    counts = {finding["kind"]: (finding["count"], len(finding["places"])) for finding in report["findings"]}
    assert counts == {"duplicate": (100, 3), "words in columns": (1, 1)}


# ---------------------------------------------------------------------- series


GOOD_DAYS = [(f"d{n}", n * n % 7) for n in range(30)]
SERIES = {
    "a.csv": ("day,sales\n" + "".join(f"{d},{n}\n" for d, n in GOOD_DAYS), "d,\nd,3\nd,n/a\nd,x\n", 32),
    "a.tsv": ("day\tsales\n" + "".join(f"{d}\t{n}\n" for d, n in GOOD_DAYS), "d\t\nd\t3\nd\tNaN\nd\t1_000\n", 32),
    "a.jsonl": (
        "".join(json.dumps({"day": d, "sales": n}) + "\n" for d, n in GOOD_DAYS),
        "".join(json.dumps({"day": "d", "sales": value}) + "\n" for value in (None, 3, "", "x")),
        31,
    ),
    "a.txt": ("".join(f"{n} {n % 3}\n" for _, n in GOOD_DAYS), "1 nan\n3 2\n1 -\n1 x\n", 31),
}


@pytest.mark.parametrize("name", SERIES)
def test_a_missing_number_of_a_series_is_found_where_training_would_stop(write, name):
    good, bad, first = SERIES[name]
    assert not any(finding.fault for finding in examine([write(name, good)]))
    path = write(name, good + bad)
    [finding] = [finding for finding in examine([path]) if finding.fault]
    assert (finding.kind, finding.count) == ("missing number", 3)
    assert [place.line for place in finding.places] == [first, first + 2, first + 3]
    assert finding.places[0].byte == len(good.encode())
    column = "'2'" if name == "a.txt" else "'sales'"
    assert f"column {column}: a missing value" in finding.places[0].what
    with pytest.raises(DataError, match=rf"{name}, line {first}, column {column}: a missing value; fill it"):
        series_of(Path(path), DataSettings(train=path), Layout())


def test_missing_elements_of_series_in_lists(write):
    path = write("a.jsonl", '{"v": [1, 2, 3, 4, 5]}\n{"v": [1, 2, 3, 4, 5, null]}\n')
    [finding] = examine([path])
    assert (finding.kind, finding.places[0].line) == ("missing number", 2)
    assert finding.places[0].what == "column 'v', element 6: a missing value"


@pytest.mark.parametrize("shape", [(40,), (20, 2), (4, 5, 2)])
def test_holes_in_arrays_of_floats(tmp_path, shape):
    values = np.arange(40.0).reshape(shape)
    np.save(tmp_path / "a.npy", values)
    assert examine([str(tmp_path / "a.npy")]) == []
    values.ravel()[[7, 9, 11, 13, 39]] = [np.nan, np.inf, np.nan, -np.inf, np.nan]
    np.save(tmp_path / "a.npy", values)
    [finding] = examine([str(tmp_path / "a.npy")])
    assert (finding.kind, finding.fault, finding.count, len(finding.places)) == ("missing number", True, 5, 3)
    place = ", ".join(str(int(one) + 1) for one in np.unravel_index(7, shape))
    assert finding.places[0].what == f"NaN or infinite at ({place})"


def test_columns_that_forecasts_leave_out(write):
    rows = "".join(f"{1700 + n},1981-01-{n % 28 + 1:02d},{n * n % 7}\n" for n in range(30))
    [finding] = examine([write("a.csv", "year,date,spots\n" + rows)])
    assert (finding.kind, finding.fault, finding.count) == ("column left out", False, 2)
    assert [place.what.split(":")[0] for place in finding.places] == ["'date' has no numbers", "'year' counts time"]


def test_values_of_a_series_may_repeat(write):
    table = "a,b\n" + "1,2\n" * 20 + "3,4\n"
    assert examine([write("a.csv", table)], [write("b.csv", table)]) == []
    assert examine([write("a.txt", "5\n" * 30)]) == []


def test_a_hole_beside_texts_is_a_note(write):
    rows = "".join(f"a review that is long enough to be a text number {n},{n % 5}\n" for n in range(20))
    [finding] = examine([write("a.csv", f"text,stars\n{rows}another review that has no stars at all but words,\n")])
    assert (finding.kind, finding.fault, finding.places[0].line) == ("empty cell", False, 22)


def test_a_text_that_begins_with_a_number_is_no_table(write):
    assert examine([write("a.txt", "1\n" + GOOD)]) == []
