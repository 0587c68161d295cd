from __future__ import annotations

import gzip
import json

import pytest
from click.testing import CliRunner

from seqlab.cli.data import data
from seqlab.data import files
from seqlab.data.doctor import examine
from seqlab.errors import DataError

GOOD = "".join(f"This is the good line number {number}\n" for number in range(50))


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> str:
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(tmp_path / name)

    return write


def places(path, **keys) -> list[tuple[str, int, int]]:
    return [(finding.kind, finding.line, finding.byte) for finding in examine([path], **keys)]


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
        [("duplicate line", 5, 10), ("empty line", 2, 4), ("empty line", 4, 9)],
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
    findings = examine([write("a.txt", "\n" * 1000)], keep=3)
    assert [finding.line for finding in findings] == [1, 2, 3, 3]
    assert [finding.count for finding in findings] == [1, 1, 1, 997]


def test_duplicates_name_the_first(write):
    path = write("a.txt", GOOD + "This is the good line number 7\n")
    (finding,) = examine([path])
    assert finding.what.startswith(f"as {path}, line 8: 'This is")
    other = write("b.txt", "new\n" + GOOD)
    duplicates = examine([path, other], keep=2)
    assert [(finding.file, finding.line) for finding in duplicates[:2]] == [(path, 51), (other, 2)]
    assert sum(finding.count for finding in duplicates) == 51


def test_overlap(write):
    train = write("train.txt", GOOD + "ROMEO:\n")
    fresh = "".join(f"Another line, number {number}\n" for number in range(50))
    valid = write("valid.txt", fresh + "ROMEO:\nThis is the good line number 3\n")
    findings = examine([train], valid=[valid])
    assert [(f.kind, f.line, f.byte, f.fault) for f in findings] == [
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
    for word in ("fault", "encoding", "long line", "overlap", str(len(GOOD) + 4), "and 19 more"):
        assert word in result.output


def test_command_as_json(write):
    path = write("a.txt", b"b\xe9d\n")
    result = run(path, "--json")
    report = json.loads(result.output)
    assert result.exit_code == report["faults"] == 1
    (finding,) = report["findings"]
    assert (finding["kind"], finding["file"], finding["line"], finding["byte"]) == ("encoding", path, 1, 1)


def test_command_help_shows_an_example():
    assert "seqlab data check train.txt --valid valid.txt" in run("--help").output
