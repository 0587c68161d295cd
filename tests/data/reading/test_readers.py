from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.formats import files
from seqlab.data.reading.readers import fingerprint, read, read_texts
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

TEXT = "".join(f"line {number}, and some words after it\n" for number in range(200))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=400)


def whole(path, **keys) -> list[str]:
    """All of a file, nothing held out."""
    return [record.fields["text"] for record in read(DataSettings(train=str(path), valid=[], **keys), "train")]


def parts(path, **keys) -> tuple[list[str], list[str]]:
    data = DataSettings(train=str(path), **keys)
    train, valid = ([record.fields["text"] for record in read(data, split)] for split in ("train", "valid"))
    return train, valid


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


# ---------------------------------------------------------------------- sources


def test_file_folder_pattern_list_and_gz_give_the_same(write, tmp_path):
    write("books/b.txt", "second\n")
    write("books/a.txt", "first\n")
    write("books/.hidden", "not me\n")
    write("books/empty.txt", "")
    write("packed/c.txt.gz", "first\n")
    assert whole(tmp_path / "books") == ["first\n", "second\n"]
    assert whole(tmp_path / "books/*.txt") == ["first\n", "second\n"]
    assert whole(tmp_path / "books/a.txt") == whole(tmp_path / "packed") == ["first\n"]
    twice = [str(tmp_path / "books"), str(tmp_path / "books" / "a.txt")]
    assert list(read_texts(twice)) == ["first\n", "second\n"]


def test_a_bare_builtin_name_wins_over_a_folder(write, tmp_path, monkeypatch):
    write("python-docs/a.txt", "mine\n")
    monkeypatch.chdir(tmp_path)
    assert whole("./python-docs") == ["mine\n"]
    assert len(whole("python-docs")) > 100


def test_files_of_valid_are_left_out_of_train(write, tmp_path):
    write("a.txt", "first\n")
    path = write("b.txt", "second\n")
    data = DataSettings(train=str(tmp_path), valid=str(path))
    assert [record.fields["text"] for record in read(data, "train")] == ["first\n"]
    assert [record.fields["text"] for record in read(data, "valid")] == ["second\n"]
    with pytest.raises(DataError, match="the same files"):
        read(DataSettings(train=str(path), valid=str(path)), "train")


def test_a_long_text_comes_in_pieces_cut_at_ends_of_lines(write, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 100)
    path = write("a.txt", TEXT)
    records = list(read(DataSettings(train=str(path), valid=[]), "train"))
    assert len(records) > 10
    assert all(record.fields["text"].endswith("\n") for record in records)
    assert [record.ends for record in records] == [False] * (len(records) - 1) + [True]
    read_so_far = ""
    for record in records:
        assert record.line == 1 + read_so_far.count("\n")
        read_so_far += record.fields["text"]
    assert read_so_far == TEXT


def test_documents(write):
    path = write("a.txt", "\ufeffone\r\ntwo\n\n \nthree\n")
    assert whole(path) == ["one\r\ntwo\n\n \nthree\n"]
    assert whole(path, documents="line") == ["one", "two", "three"]
    assert whole(path, documents="paragraph") == ["one\ntwo", "three"]
    records = read(DataSettings(train=str(path), valid=[], documents="line"), "train")
    assert [record.line for record in records] == [1, 2, 5]


def test_a_very_long_paragraph_comes_in_pieces(write):
    path = write("a.txt", ("x" * 999 + "\n") * 3000 + "\nlast\n")
    records = list(read(DataSettings(train=str(path), valid=[], documents="paragraph"), "train"))
    assert [record.ends for record in records] == [False, False, True, True]
    text = "".join(record.fields["text"] for record in records[:-1])
    assert text == "\n".join(["x" * 999] * 3000)


def test_rows_by_role(write):
    rows = [('Hello, "you"', "1"), ("two\nlines", "2")]
    jsonl = write("a.jsonl", "".join(json.dumps({"body": a, "label": int(b)}) + "\n" for a, b in rows))
    csv = write("a.csv", 'body,label\r\n"Hello, ""you""",1\r\n"two\nlines",2\r\n')
    tsv = write("a.tsv.gz", 'body\tlabel\nHello, "you"\t1\n')
    for path, expected in [(jsonl, rows), (csv, rows), (tsv, rows[:1])]:
        data = DataSettings(train=str(path), valid=[], columns={"text": "body"})
        records = list(read(data, "train", roles=("text", "label")))
        assert [(record.fields["text"], record.fields["label"]) for record in records] == expected
        assert [record.line for record in records] == ([1, 2] if path == jsonl else [2, 3])[: len(expected)]


def test_format_overrides_the_extension(write):
    path = write("a.data", '{"text": "hello"}\n')
    assert whole(path, format="jsonl") == ["hello"]
    assert whole(path) == ['{"text": "hello"}\n']


# ---------------------------------------------------------------------- faults

FAULTS = [
    ("a.txt", b"good\nbad \xe9 byte\n", ["a.txt, line 2, byte 9", "UTF-8"]),
    ("a.txt", b"\xef\xbb\xbfgood\n\xff\n", ["line 2, byte 8"]),
    ("a.txt", b"\x89PNG\0\0\0", ["binary file", "byte 4"]),
    ("a.txt", "text".encode("utf-16"), ["UTF-16", "iconv"]),
    ("a.txt", b"", ["empty file"]),
    ("a.csv", b"text\n", ["no records"]),
    ("a.jsonl", b'{"text": "a"}\n{"text": }\n', ["line 2, column 10", "JSON"]),
    ("a.jsonl", b"[1]\n", ["line 1", "object"]),
    ("a.jsonl", b'{"body": "a"}\n', ["line 1", "no column 'text'", "body"]),
    ("a.jsonl", b'{"text": null}\n', ["line 1", "null"]),
    ("a.jsonl", b'{"text": "\\ud800"}\n', ["line 1", "UTF-16"]),
    ("a.csv", b"body,label\na,b\n", ["line 2", "no column 'text'", "body, label"]),
    ("a.csv", b"text,label\na,b\na\n", ["line 3", "1 fields, but the header has 2"]),
    ("a.csv", b'text,label\na,"b"c\n', ["line 2, column 6"]),
    ("a.csv", b'text,label\na,b\n"a,b\nc,d\n', ["line 3", "never closed"]),
    ("a.csv", b"text,text\na,b\n", ["line 1", "twice"]),
    ("a.txt.gz.txt", b"x" * 50, ["too little", "data.valid"]),
]


@pytest.mark.parametrize(("name", "content", "said"), FAULTS)
def test_faults_name_the_place(write, name, content, said):
    path = write(name, content)
    data = DataSettings(train=str(path), valid=None if "valid" in said[-1] or not content else [])
    with pytest.raises(DataError) as error:
        list(read(data, "train"))
    assert all(word in str(error.value) for word in [*said, str(path)])


def test_missing_files_have_hints(write, tmp_path, monkeypatch):
    write("shakespeare.txt", TEXT)
    with pytest.raises(DataError, match=r"did you mean 'shakespeare.txt'"):
        read(DataSettings(train=str(tmp_path / "shakespear.txt")), "train")
    with pytest.raises(DataError, match=r"the folder .* does not exist"):
        read(DataSettings(train=str(tmp_path / "no" / "a.txt")), "train")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"did you mean 'python-docs'.*python-code"):
        read(DataSettings(train="python-dosc"), "train")
    with pytest.raises(DataError, match=r"\*.md"):
        read(DataSettings(train="*.md"), "train")


@pytest.mark.parametrize("files", [3, 12, 300])
def test_a_missing_file_names_a_few_that_are_like_it_and_not_the_folder(write, tmp_path, files):
    for number in range(files):
        write(f"chapter-{number}.txt", TEXT)
    write("shakespeare.txt", TEXT)
    with pytest.raises(DataError) as error:
        read(DataSettings(train=str(tmp_path / "shakespear.txt")), "train")
    assert "; did you mean 'shakespeare.txt'" in str(error.value)
    assert str(error.value).count("chapter") <= 2
    with pytest.raises(DataError) as error:
        read(DataSettings(train=str(tmp_path / "chapter-x.txt")), "train")
    assert str(error.value).count("chapter-") <= 1 + 3
    with pytest.raises(DataError, match=r"nothing in .* has a similar name"):
        read(DataSettings(train=str(tmp_path / "zzz")), "train")


def test_a_long_list_of_valid_names_is_cut():
    from seqlab.errors import nearest

    assert nearest("b", "abc") == "did you mean 'b'? (valid: a, b, c)"
    hint = nearest("column 7", [f"column {number}" for number in range(1000)])
    assert hint.startswith("did you mean 'column 7'? (valid: column 7, ")
    assert hint.endswith("and 995 more)")


def test_damaged_gz_and_unreadable_text(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-20])
    with pytest.raises(DataError, match="damaged"):
        whole(path)


def test_plain_text_has_one_role(write):
    data = DataSettings(train=str(write("a.txt", TEXT)), valid=[])
    with pytest.raises(DataError, match="source and target"):
        list(read(data, "train", roles=("source", "target")))


# ---------------------------------------------------------------------- holding out (by content: test_holding_out.py)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_of_one_text_the_old_rule_holds_out_the_end(write, name):
    train, valid = parts(write(name, TEXT), hold_out=0.1, hold_out_by="number")
    assert "".join(train) + "".join(valid) == TEXT
    assert train[-1].endswith("\n")
    assert 0.09 < len("".join(valid)) / len(TEXT) < 0.12
    data = DataSettings(train=str(write(name, TEXT)), hold_out=0.1, hold_out_by="number")
    record = next(read(data, "valid"))
    assert record.line == 1 + "".join(train).count("\n")


def test_of_few_texts_the_old_rule_holds_out_each_end(write, tmp_path):
    write("a.txt", TEXT)
    write("b.txt", TEXT.upper())
    write("c.txt", "short\n")
    train, valid = parts(tmp_path, hold_out_by="number")
    assert train[0] + valid[0] == TEXT
    assert train[1] + valid[1] == TEXT.upper()
    assert train[2:] == ["short\n"]
    assert len(valid) == 2


def test_a_text_of_one_line_can_be_held_out_of(write):
    train, valid = parts(write("a.txt", "word " * 1000))
    assert "".join(train + valid) == "word " * 1000
    assert train[-1].endswith(" ")
    train, valid = parts(write("b.txt", "语" * 1000))
    assert "".join(train + valid) == "语" * 1000


@pytest.mark.parametrize("by", [None, "number"])
@pytest.mark.parametrize("count", [20, 21, 57, 1000])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.999])
def test_held_out_lines_are_spread_and_neither_part_is_empty(write, count, share, by):
    lines = [f"line {number}" for number in range(count)]
    train, valid = parts(write("a.txt", "\n".join(lines)), documents="line", hold_out=share, hold_out_by=by)
    assert train
    assert valid
    assert sorted(train + valid) == sorted(lines)
    assert not set(train) & set(valid)
    if count == 1000 and share == 0.05:
        numbers = [int(line.split()[1]) for line in valid]
        assert 30 <= len(numbers) <= 70
        assert min(numbers) < 200
        assert max(numbers) > 800


def test_of_many_files_whole_ones_are_held_out(write, tmp_path):
    for number in range(25):
        write(f"{number:02}.txt", f"text {number}\n")
    train, valid = parts(tmp_path)
    assert sorted(train + valid) == sorted(f"text {number}\n" for number in range(25))
    assert valid


def test_too_few_lines(write):
    with pytest.raises(DataError, match=r"set data\.valid"):
        parts(write("a.txt", "one\ntwo\n"), documents="line")


# ---------------------------------------------------------------------- properties


@settings(max_examples=150, deadline=None)
@given(texts.filter(bool), st.integers(4, 64))
def test_pieces_together_are_the_file(text, block):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        path = Path(folder, "a.txt")
        path.write_bytes(text.encode())
        assert "".join(whole(path)) == text


@settings(max_examples=150, deadline=None)
@given(
    texts.map(lambda text: text + "\nmore words" * 20),
    st.integers(4, 64),
    st.floats(0.01, 0.9),
    st.sampled_from(["file", "line", "paragraph"]),
    st.sampled_from([None, "number"]),
)
def test_train_and_valid_are_disjoint_and_together_everything(text, block, share, documents, by):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        path = Path(folder, "a.txt")
        path.write_bytes((text if documents != "paragraph" else text.replace("\n", "\n\n")).encode())
        data = {
            split: list(read(DataSettings(train=str(path), hold_out=share, documents=documents, hold_out_by=by), split))
            for split in ("train", "valid")
        }
        everything = list(read(DataSettings(train=str(path), valid=[], documents=documents), "train"))
        assert all(data.values())
        if documents == "file":
            texts = ["".join(record.fields["text"] for record in part) for part in data.values()]
            assert sorted("".join(texts)) == sorted(path.read_bytes().decode())  # the same characters, each once
            assert by is None or "".join(texts) == path.read_bytes().decode()
        else:
            both = sorted(data["train"] + data["valid"], key=lambda record: record.line)
            assert both == everything


# ---------------------------------------------------------------------- fingerprints


def test_fingerprint_follows_contents_and_settings_that_matter(write):
    path = write("a.txt", TEXT)
    base = DataSettings(train=str(path))
    prints = {
        fingerprint(base, "train"),
        fingerprint(base, "valid"),
        fingerprint(DataSettings(train=str(path), hold_out=0.1), "train"),
        fingerprint(DataSettings(train=str(path), documents="line"), "train"),
        fingerprint(DataSettings(train=str(path), format="csv"), "train"),
        fingerprint(DataSettings(train=str(path), columns={"text": "body"}), "train"),
        fingerprint(DataSettings(train=str(write("b.txt", TEXT + "!"))), "train"),
        fingerprint(DataSettings(train="python-docs"), "train"),
        fingerprint(DataSettings(train="python-code"), "train"),
    }
    assert len(prints) == 9
    moved = DataSettings(train=str(write("elsewhere/c.txt", TEXT)))
    assert fingerprint(moved, "train") == fingerprint(base, "train")


def test_a_part_of_a_file_is_not_the_whole_file(write):
    """Or a model would be given a token store, or a tokenizer, that was made of its held-out data too."""
    path, other = str(write("a.txt", TEXT)), str(write("b.txt", "something else"))
    parted = DataSettings(train=path)
    whole = [DataSettings(train=path, valid=other), DataSettings(train=[path], valid=[])]
    assert len({fingerprint(data, "train") for data in whole}) == 1
    assert fingerprint(parted, "train") != fingerprint(whole[0], "train")
    assert fingerprint(parted, "valid") != fingerprint(DataSettings(train=other, valid=path), "valid")


# ---------------------------------------------------------------------- real data

PTB = Path(__file__).resolve().parents[3] / "../shared/data/ptb"


@pytest.mark.skipif(not PTB.is_dir(), reason="the shared data has no ptb here")
def test_penn_treebank_has_the_published_size():
    data = DataSettings(train=str(PTB / "ptb.train.txt"), valid=str(PTB / "ptb.valid.txt"), documents="line")
    counts = [
        sum(len(record.fields["text"].split()) + 1 for record in read(data, split))  # each line ends in <eos>
        for split in ("train", "valid")
    ]
    assert counts == [929589, 73760]
