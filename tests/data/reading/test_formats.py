"""Files that are no plain text: .parquet, .npy and FASTA, and lists in the rows of others."""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqlab.data.checks.report import examine
from seqlab.data.formats import arrays, contents
from seqlab.data.reading.readers import fingerprint, read
from seqlab.errors import DataError
from seqlab.recipe import DataSettings


def whole(path, symbols=False, **keys) -> list[str]:
    """All of a file, nothing held out."""
    data = DataSettings(train=str(path), valid=[], **keys)
    return [record.fields["text"] for record in read(data, "train", symbols=symbols)]


def parts(path, symbols=False, **keys) -> list[list[str]]:
    data = DataSettings(train=str(path), **keys)
    return [[r.fields["text"] for r in read(data, split, symbols=symbols)] for split in ("train", "valid")]


def fault(path, symbols=False, **keys) -> str:
    with pytest.raises(DataError) as error:
        whole(path, symbols, **keys)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def table(tmp_path):
    def write(columns, rows_in_group=2, name="a.parquet"):
        path = tmp_path / name
        made = columns if isinstance(columns, pa.Table) else pa.table(columns)
        pq.write_table(made, path, row_group_size=rows_in_group)
        return path

    return write


# ---------------------------------------------------------------------- parquet


def test_parquet_gives_what_jsonl_gives(table, tmp_path):
    rows = [{"body": f"text {n} é\n", "label": n} for n in range(50)]
    path = table(pa.Table.from_pylist(rows), rows_in_group=7)
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for valid in ([], None):
        for split in ("train", "valid") if valid is None else ("train",):
            found = [
                [
                    (record.fields["text"], record.fields["label"], record.line)
                    for record in read(
                        DataSettings(train=str(file), valid=valid, columns={"text": "body"}), split, ("text", "label")
                    )
                ]
                for file in (path, lines)
            ]
            assert found[0] == found[1] != []


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["a", "b", "c"], pa.large_string()), ["a", "b", "c"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([1, 2, 3], pa.int8()), ["1", "2", "3"]),
        (pa.array([1.5, 2, 3]), ["1.5", "2.0", "3.0"]),
        (pa.array([True, False, True]), ["true", "false", "true"]),
    ],
)
def test_parquet_types(table, column, expected):
    assert whole(table({"text": column})) == expected


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.list_(pa.string()), pa.large_list(pa.int16()), pa.list_(pa.int32(), 2)]
)
def test_parquet_lists(table, kind):
    values = [[1, 2], [3, 4], [5, 6]]
    strings = pa.types.is_string(kind.value_type)
    path = table({"text": pa.array([[f"n{v}" for v in row] for row in values] if strings else values, kind)})
    expected = ["1 2", "3 4", "5 6"]
    assert whole(path, symbols=True) == [" ".join(f"n{v}" for v in r.split()) if strings else r for r in expected]
    assert "to read lists" in fault(path)


PARQUET_FAULTS = [
    ({"body": ["a"]}, ["no column 'text'", "body"]),
    ({"text": ["a", "b", None]}, ["row group 2, row 3", "column 'text'", "null"]),
    ({"text": [{"x": 1}]}, ["column 'text' is struct"]),
    ({"text": [[[1]]]}, ["column 'text' is list<", "list<"]),
    ({"text": [b"bytes"]}, ["column 'text' is binary"]),
    ({"text": [[1.5]]}, ["column 'text' is list", "double"]),
    ({"text": pa.array([], pa.string())}, ["no records"]),
]


@pytest.mark.parametrize(("columns", "said"), PARQUET_FAULTS)
def test_parquet_faults_name_the_place(table, columns, said):
    found = fault(table(columns), symbols=True)
    assert all(word in found for word in said)


def test_faults_inside_lists(table):
    assert "row group 1, row 2: column 'text': element 2 is null" in fault(
        table({"text": [["a"], ["b", None]]}), symbols=True
    )
    assert "element 1 is empty" in fault(table({"text": [[""]]}), symbols=True)


def test_no_parquet_file(tmp_path, table):
    path = tmp_path / "b.parquet"
    path.write_bytes(b"PAR1 but not really PAR1")
    assert "damaged" in fault(path)
    good = table({"text": ["hello " * 100] * 100}, rows_in_group=10).read_bytes()
    for damage in (good[:-50], good[: len(good) // 2], b"PAR1" + bytes(200) + good[204:]):
        path.write_bytes(damage)
        assert "damaged" in fault(path)
    packed = tmp_path / "c.parquet.gz"
    packed.write_bytes(gzip.compress(good))
    assert "gunzip" in fault(packed)


def test_without_pyarrow(table, monkeypatch):
    path = table({"text": ["a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'seqlab[parquet]'" in fault(path)
    with pytest.raises(DataError, match=r"pip install 'seqlab\[parquet\]'"):
        examine([str(path)])


@pytest.mark.parametrize("rows_in_group", [200, 20_000])
def test_parquet_is_read_in_parts(table, rows_in_group):
    """20 MB of text, in small row groups or one large one: a fraction of it is in memory at a time."""
    path = table({"text": [f"{n:05} " + "x" * 1000 for n in range(20_000)]}, rows_in_group)
    before, most = pa.total_allocated_bytes(), 0
    for _ in read(DataSettings(train=str(path), valid=[]), "train"):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 8_000_000


def test_parquet_fingerprint(table):
    prints = {
        fingerprint(DataSettings(train=str(table({"text": ["a", "b"]}))), "train"),
        fingerprint(DataSettings(train=str(table({"text": ["a", "c"]}, name="b.parquet"))), "train"),
        fingerprint(DataSettings(train=str(table({"text": ["a", "b"]})), columns={"text": "x"}), "train"),
    }
    assert len(prints) == 3


# ---------------------------------------------------------------------- arrays


@pytest.fixture
def save(tmp_path):
    def write(array, name="a.npy"):
        np.save(tmp_path / name, np.asarray(array))
        return tmp_path / name

    return write


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "uint64", ">i4"])
def test_arrays(save, dtype):
    assert whole(save(np.arange(6).astype(dtype)), symbols=True) == ["0 1 2 3 4 5"]
    assert whole(save(np.arange(6).astype(dtype).reshape(2, 3)), symbols=True) == ["0 1 2", "3 4 5"]


def test_arrays_of_texts(save):
    assert whole(save(["C4", "E4 flat"]), symbols=True) == ["C4 E4␣flat"]


def test_a_long_array_comes_in_pieces_and_by_the_old_rule_its_end_is_held_out(save, monkeypatch):
    monkeypatch.setattr(arrays, "PIECE", 100)
    path = save(np.arange(1050))
    records = list(read(DataSettings(train=str(path), valid=[]), "train", symbols=True))
    assert [record.ends for record in records] == [False] * 10 + [True]
    assert [record.line for record in records] == list(range(1, 1050, 100))
    train, valid = parts(path, symbols=True, hold_out=0.1, hold_out_by="number")
    assert "".join(train).split() == [str(n) for n in range(945)]
    assert "".join(valid).split() == [str(n) for n in range(945, 1050)]


def test_whole_rows_are_held_out(save):
    train, valid = parts(save(np.arange(200).reshape(50, 4)), symbols=True, hold_out=0.2)
    assert len(train) + len(valid) == 50
    assert valid
    with pytest.raises(DataError, match="too little"):
        parts(save(np.arange(40).reshape(10, 4)), symbols=True)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((2, 2, 2), int), "3 axes"),
        (np.array(5), "0 axes"),
        (np.array([1.5, 2]), "float64"),
        (np.array([True]), "bool"),
        (np.array([None, 1], dtype=object), "objects"),
        (np.zeros((0, 3), int), "no records"),
        (np.array(["a", ""]), "is empty"),
    ],
)
def test_array_faults(tmp_path, array, said):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    assert said in fault(tmp_path / "a.npy", symbols=True)


def test_no_array(tmp_path, save):
    path = tmp_path / "b.npy"
    for content in (b"", b"text", save(np.arange(1000)).read_bytes()[:2000]):
        path.write_bytes(content)
        fault(path, symbols=True)
    packed = tmp_path / "c.npy.gz"
    packed.write_bytes(gzip.compress(save([1]).read_bytes()))
    assert "gunzip" in fault(packed, symbols=True)
    assert "tokenizer.kind=ids" in fault(save([1]))


# ---------------------------------------------------------------------- lists in rows


def test_lists_in_rows(tmp_path):
    jsonl, csv = tmp_path / "a.jsonl", tmp_path / "a.csv"
    jsonl.write_text('{"text": [60, 64, 67]}\n{"text": ["add to cart", "pay"]}\n{"text": "a b"}\n{"text": "[x] y]"}\n')
    assert whole(jsonl, symbols=True) == ["60 64 67", "add␣to␣cart pay", "a b", "[x] y]"]
    csv.write_text('text\n"[60, 64]"\n"[""a b"", 1]"\n"[\'a\', \'b\']"\nhome cart\n')
    assert whole(csv, symbols=True) == ["60 64", "a␣b 1", "a b", "home cart"]
    assert whole(csv)[0] == "[60, 64]"
    csv.write_text("text\n[1 2 3]\n")
    assert "line 2: column 'text': looks like a list" in fault(csv, symbols=True)
    for wrong in ("[1.5]", "[true]", '[{"a": 1}]', "[[1]]", "[null]", '[""]'):
        jsonl.write_text(f'{{"text": {wrong}}}\n')
        assert "line 1: column 'text': element 1" in fault(jsonl, symbols=True)
    assert "to read lists" in fault(jsonl)


# ---------------------------------------------------------------------- FASTA

GENES = ">one first\nACGT\nacgt\n\n>two\r\nGGGG\r\nTT\r\n>empty\n>three\nN\n"


def test_fasta(tmp_path, monkeypatch):
    path = tmp_path / "a.fasta"
    path.write_bytes(GENES.encode())
    assert whole(path) == ["ACGTacgt", "GGGGTT", "N"]
    packed = tmp_path / "b.fa.gz"
    packed.write_bytes(gzip.compress(GENES.encode()))
    assert whole(packed) == whole(path)
    assert whole(path, format="txt") == [GENES]
    monkeypatch.setattr(contents, "BLOCK", 3)
    records = list(read(DataSettings(train=str(path), valid=[]), "train"))
    assert [(r.fields["text"], r.line, r.ends) for r in records] == [
        ("ACGT", 2, False),
        ("acgt", 3, True),
        ("GGGG", 6, False),
        ("TT", 7, True),
        ("N", 10, True),
    ]


def test_of_few_sequences_the_end_is_held_out_of_many_whole_ones(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(">chromosome\n" + "ACGTACGTAC\n" * 100)
    train, valid = parts(path, hold_out=0.1)
    assert "".join(train + valid) == "ACGTACGTAC" * 100
    assert len("".join(valid)) == 110  # it repeats itself: a tenth of the bytes, and to the end of a line
    path.write_text("".join(f">gene {n}\nACGT{'ACGT'[n % 4]}\n" for n in range(40)))
    train, valid = parts(path, hold_out=0.2)
    assert len(train) + len(valid) == 40
    assert set(map(len, train + valid)) == {5}


# ---------------------------------------------------------------------- the doctor


def found(*paths, valid=(), **keys):
    findings = examine([str(p) for p in paths], [str(p) for p in valid], **keys)
    return [(finding.kind, finding.places[0].line, finding.fault) for finding in findings]


def test_doctor_of_parquet(table):
    good = [f"a good sentence that is long enough, number {n}" for n in range(30)]
    assert found(table({"text": good, "n": list(range(30))})) == []
    bad = ["fine", "nul \0", "bell \x07", "lost \ufffd", "", None, "x" * 50, "fine"]
    path = table({"text": bad, "s": [{"x": 1}] * 8}, rows_in_group=3)
    findings = examine([str(path)], max_line=40)
    assert [(f.kind, f.places[0].line) for f in findings] == [
        ("NUL byte", 2),
        ("control character", 3),
        ("long line", 7),
        ("duplicate", 8),
        ("empty line", 5),
        ("replacement character", 4),
        ("null value", 6),
        ("unreadable column", 1),
    ]
    whats = [finding.places[0].what for finding in findings]
    assert "row group 3, row 7, column 'text'" in whats[2]
    assert f"as {path}, row 1" in whats[3]
    assert "struct" in whats[-1]


def test_doctor_of_series_in_parquet(table):
    values = [float(n * n % 7) for n in range(40)]
    path = table({"year": list(range(1700, 1740)), "spots": [*values[:30], None, *values[31:]]})
    assert found(path) == [("missing number", 31, True), ("column left out", 1, False)]


def test_doctor_finds_rows_in_both(table):
    train = table({"text": [f"a good sentence that is long enough, number {n}" for n in range(30)]})
    other = [f"another sentence that is long enough, number {n}" for n in range(30)]
    valid = table({"text": [*other, "a good sentence that is long enough, number 7"]}, name="valid.parquet")
    assert found(train, valid=[valid]) == [("overlap", 31, True)]
    valid.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="damaged"):
        examine([str(valid)])


def test_doctor_of_lists_and_arrays(table, save):
    path = table({"text": [[1, -2], [], [3, None]]})
    assert found(path) == [("negative number", 1, True), ("empty line", 2, False), ("null value", 3, False)]
    assert found(save(np.array([[1, 2], [3, 4], [1, 2]]))) == [("duplicate", 3, False)]
    assert found(save(np.array([5, 5, -1, 5]))) == [("negative number", 1, True)]
    assert found(save(np.zeros(600_000, int))) == []
    assert found(save([0.5])) == []  # a series


def test_doctor_of_duplicate_columns(table):
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    path = table(twice)
    assert found(path) == [("unreadable column", 1, False)]
    assert "twice" in fault(path)
