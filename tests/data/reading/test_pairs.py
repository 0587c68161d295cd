"""Two texts that belong together: aligned files, and the columns of tables with and without a header."""

import gzip

import pytest

from seqlab.data.reading.readers import fingerprint, read, sources
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

COLUMNS = {"source": "de", "target": "en"}
ROLES = ("source", "target")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Files are named as from the folder they are in."""
    monkeypatch.chdir(tmp_path)

    def write(**texts: str) -> None:
        for name, text in texts.items():
            path = tmp_path / name.replace("_", ".")
            path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())

    return write


def pairs(train, which="train", roles=ROLES, **keys) -> list[tuple[str, ...]]:
    keys = {"valid": [], **keys}
    return [tuple(one.fields.values()) for one in read(DataSettings(train=train, **keys), which, roles)]


# ---------------------------------------------------------------------- aligned files


def test_two_files_side_by_side(write):
    write(a_de="eins\r\n\n drei \n", a_en="one\ntwo\n three ", a_fr="un\ndeux\ntrois\n")
    assert pairs("a", columns=COLUMNS) == [("eins", "one"), ("", "two"), (" drei ", " three ")]
    assert pairs("a", columns={**COLUMNS, "language": "fr"}, roles=(*ROLES, "language"))[2] == (
        " drei ",
        " three ",
        "trois",
    )
    assert pairs("a", columns=COLUMNS, roles=("target",)) == [("one",), ("two",), (" three ",)]
    records = list(read(DataSettings(train="a", valid=[], columns=COLUMNS), "train", ROLES))
    assert records[1].place == "a.{de,en}, line 2"


def test_named_by_their_roles_where_there_are_no_columns(write):
    write(a_source="eins\n", a_target="one\n")
    assert pairs("a") == [("eins", "one")]


def test_several_names_patterns_and_packed_files(write):
    write(a_de="eins\n", a_en_gz="one\n", b_de_gz="zwei\n", b_en="two\n")
    assert pairs(["b", "a"], columns=COLUMNS) == [("zwei", "two"), ("eins", "one")]
    assert pairs(["a", "./a"], columns=COLUMNS) == [("eins", "one")]
    assert pairs("[ab]", columns=COLUMNS, format="aligned") == [("eins", "one"), ("zwei", "two")]
    assert pairs(["a", "b"], columns=COLUMNS, valid="b") == [("eins", "one")]
    assert pairs(["a", "b"], "valid", columns=COLUMNS, valid="b") == [("zwei", "two")]


def test_a_file_of_that_very_name_wins_unless_the_format_is_given(write):
    write(a="plain\n", a_de="eins\n", a_en="one\n")
    assert pairs("a", columns=COLUMNS, roles=("text",)) == [("plain\n",)]
    assert pairs("a", columns=COLUMNS, format="aligned") == [("eins", "one")]


def test_what_is_held_out_is_spread_over_the_lines(write):
    write(a_de="".join(f"d{n}\n" for n in range(1000)), a_en="".join(f"e{n}\n" for n in range(1000)))
    parts = [pairs("a", which, columns=COLUMNS, valid=None, hold_out=0.1) for which in ("train", "valid")]
    assert 70 < len(parts[1]) < 130
    assert sorted(parts[0] + parts[1]) == sorted((f"d{n}", f"e{n}") for n in range(1000))
    old = {"valid": None, "hold_out": 0.1, "hold_out_by": "number"}
    whole = [line for (line,) in pairs("a.de", "valid", ("text",), documents="line", **old)]
    assert [source for source, _ in pairs("a", "valid", columns=COLUMNS, **old)] == whole  # by the running number


def test_the_fingerprint_is_of_both_files(write):
    data = DataSettings(train="a", valid=[], columns=COLUMNS)
    found = set()
    for german, english in (("eins\n", "one\n"), ("Eins\n", "one\n"), ("eins\n", "One!\n")):
        write(a_de=german, a_en=english)
        found.add(fingerprint(data, "train"))
    assert len(found) == 3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"train": "a"}, r"a\.de: 3 lines, but a\.en has 2; each line must correspond to the same line"),
        ({"train": "a", "columns": {"source": "de", "target": "fr"}}, r"no file 'a\.fr' beside 'a\.de'"),
        (
            {"train": "a", "columns": {"source": "de"}},
            r"a\.\{de\}: no file is given for 'target'; .*data\.columns\.target",
        ),
        ({"train": "a", "columns": {}}, r"no file or folder 'a'; found a\.de, a\.en; to read two side by side"),
        ({"train": "b"}, "no file or folder 'b'"),
        ({"train": "b", "format": "aligned"}, "no aligned files 'b'"),
        ({"train": "a.de"}, "plain text does not provide source and target.*the common stem of aligned files"),
        ({"train": "empty"}, r"empty\.\{de,en\}: empty file"),
    ],
)
def test_what_is_wrong_with_aligned_files(write, keys, message):
    write(a_de="eins\nzwei\ndrei\n", a_en="one\ntwo\n", empty_de="", empty_en="")
    with pytest.raises(DataError, match=message) as error:
        pairs(**{"columns": COLUMNS, **keys})
    assert "\n" not in str(error.value)


def test_multi30k(shared_data):
    folder = shared_data("multi30k")
    found = {which: pairs(f"{folder}/train", which, columns=COLUMNS, valid=f"{folder}/val") for which in PARTS}
    assert [len(found[which]) for which in PARTS] == [29_000, 1_014]
    assert found["train"][0][1] == "Two young, White males are outside near many bushes."
    held_out = [pairs(f"{folder}/train", which, columns=COLUMNS, valid=None) for which in PARTS]
    assert len(held_out[0]) + len(held_out[1]) == 29_000
    assert [str(one) for one in sources(DataSettings(train=f"{folder}/train", columns=COLUMNS), "train")] == [
        f"{folder}/train.{{de,en}}"
    ]


PARTS = ("train", "valid")


# ---------------------------------------------------------------------- tables


def test_columns_of_any_names(write):
    write(
        a_tsv="de\ten\tfr\neins\tone\tun\n", b_csv='x,de,en\n1,"eins, zwei",one\n', c_jsonl='{"de": "a", "en": "b"}\n'
    )
    assert pairs(["a.tsv", "b.csv", "c.jsonl"], columns=COLUMNS) == [("eins", "one"), ("eins, zwei", "one"), ("a", "b")]


def test_columns_of_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"en": ["one"], "de": ["eins"]}), tmp_path / "a.parquet")
    assert pairs(str(tmp_path / "a.parquet"), columns=COLUMNS) == [("eins", "one")]
    assert pairs(str(tmp_path / "a.parquet"), columns={"source": "de", "target": "de"}) == [("eins", "eins")]


def test_columns_by_number_are_those_of_a_file_without_a_header(write):
    write(a_tsv="eins\tone\tun\nzwei\ttwo\tdeux\n", b_csv='"eins, zwei",one\n')
    assert pairs("a.tsv", columns={"source": 0, "target": 2}) == [("eins", "un"), ("zwei", "deux")]
    assert pairs("a.tsv", columns={"source": -1, "target": -3}) == [("un", "eins"), ("deux", "zwei")]
    assert pairs("b.csv", columns={"source": 1, "target": 0}) == [("one", "eins, zwei")]
    records = read(DataSettings(train="a.tsv", valid=[], columns={"text": 1}), "train")
    assert [(one.line, one.fields["text"]) for one in records] == [(1, "one"), (2, "two")]


def test_two_columns_without_a_header_are_source_and_target(write):
    write(a_tsv="Hi.\tHallo!\nGo\tGeh\n", b_csv='"Well, well.",Soso.\n', c_tsv="target\tsource\none\teins\n")
    assert pairs(["a.tsv", "b.csv"]) == [("Hi.", "Hallo!"), ("Go", "Geh"), ("Well, well.", "Soso.")]
    assert pairs("a.tsv", roles=("target",)) == [("Hallo!",), ("Geh",)]
    assert pairs("c.tsv") == [("eins", "one")]


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (
            "de\ten\na\tb\n",
            {},
            r"line 1: 'de', 'en' may be a header or a pair; set data\.columns={source: de, target: en} if it is a h",
        ),
        ("a b\tc\td\ne f\tg\th\n", {}, "no column 'source'.*without a header, columns are numbered from 0"),
        ("a\tb\n", {"columns": {"source": 0, "target": 2}}, r"line 1: no column '2'.*\(valid: -1, -2, 0, 1\)"),
        ("a\tb\nc\n", {"columns": {"source": 0, "target": 1}}, "line 2, column 1: 1 fields, but the first row has 2"),
        ("a\tb\nc\td\n", {"columns": {"source": 0}}, "no column '0'"),
    ],
)
def test_what_is_wrong_with_columns(write, text, keys, message):
    write(a_tsv=text)
    with pytest.raises(DataError, match=message) as error:
        pairs("a.tsv", **keys)
    assert "\n" not in str(error.value)


def test_tables_as_they_come(shared_data):
    german = pairs(str(shared_data("tatoeba/eng-deu.tsv")))
    assert (len(german), german[0]) == (28_200, ("Hi.", "Hallo!"))
    mails = pairs(str(shared_data("aeslc/dev.tsv")), columns={"source": 0, "target": 1})
    assert len(mails) == 1_677
    assert mails == pairs(str(shared_data("aeslc/dev.tsv")))
