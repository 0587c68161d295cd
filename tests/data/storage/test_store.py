from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.progress import shown_by
from seqlab.data.records import Record
from seqlab.data.storage import store as module
from seqlab.data.storage.cache import cache_folder
from seqlab.data.storage.store import TokenStore
from seqlab.errors import DataError

KEY = "a" * 64


def encode(texts):
    """Bytes, moved up by one to leave 0 for the end."""
    return [[byte + 1 for byte in text.encode()] for text in texts]


def ended(text: str) -> list[int]:
    return [*encode([text])[0], 0]


def records_of(*texts, ends=True):
    return [Record({"text": text}, "a.txt", 1, ends) for text in texts]


def opened(records, key=KEY, **keys) -> TokenStore:
    keys = {"vocab_size": 257, "columns": {"text": encode}} | keys
    return TokenStore.open(lambda: iter(records), key=key, **keys)


def never():
    raise AssertionError("read although there is a store")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


def test_documents_and_totals():
    store = opened(records_of("one", "", "zwölf"))
    text = store["text"]
    assert isinstance(text.flat, np.memmap)
    assert text.flat.dtype == np.uint16
    assert [list(ids) for ids in text] == [ended("one"), [0], ended("zwölf")]
    assert list(text[-1]) == ended("zwölf")
    assert (len(store), text.tokens, text.characters, text.bytes, text.documents) == (3, 12, 8, 9, 3)
    with pytest.raises(IndexError):
        text[3]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(256, "uint8"), (257, "uint16"), (65537, "uint32")])
def test_the_smallest_type_that_holds_the_vocabulary(vocab_size, dtype):
    store = opened(records_of("a"), columns={"text": lambda texts: [[vocab_size - 1]]}, vocab_size=vocab_size)
    assert store["text"].flat.dtype == dtype
    assert list(store["text"][0]) == [vocab_size - 1, 0]


def test_a_column_of_numbers(cache):
    """Kept as numbers, in memory and in a file; a folder of ids under the same key is not taken for one of numbers."""
    rows = [[0.1, -1e30, 3.0], [], [2.5]]
    numbers = {"text": lambda texts: [np.array(row, np.float32) for row in rows[: len(texts)]]}
    opened(records_of("a", "b", "c"), columns={"text": lambda texts: [[1], [2], [3]]}, vocab_size=2**32, end=None)
    for keep in (True, False):
        column = opened(records_of("a", "b", "c"), columns=numbers, vocab_size=None, end=None, keep=keep)["text"]
        assert column.flat.dtype == np.float32
        assert [own.tolist() for own in column] == [np.array(row, np.float32).tolist() for row in rows]
    assert sorted(path.name for path in (cache / KEY).iterdir()) == ["meta.json", "text.numbers", "text.offsets"]


def test_pieces_are_one_document():
    records = [*records_of("one ", "two ", ends=False), *records_of("three", "four")]
    text = opened(records)["text"]
    assert [list(ids) for ids in text] == [ended("one two three"), ended("four")]
    unended = opened(records_of("open", ends=False), key="b")["text"]
    assert [list(ids) for ids in unended] == [ended("open")[:-1]]


def test_without_an_end_and_without_records():
    assert list(opened(records_of("ab", "c"), end=None)["text"].flat) == encode(["abc"])[0]
    empty = opened([], key="b")
    assert (len(empty), len(empty["text"].flat)) == (0, 0)


def test_columns_are_aligned():
    pairs = [Record({"source": "ab", "target": "xyz"}, "a", 1), Record({"source": "", "target": "q"}, "a", 2)]
    store = opened(pairs, columns={"source": encode, "target": encode}, end=None)
    assert [len(ids) for ids in store["source"]] == [2, 0]
    assert [len(ids) for ids in store["target"]] == [3, 1]


def test_numpy_ids_and_progress(monkeypatch):
    monkeypatch.setattr(module, "BATCH", 1)
    seen = []
    display = SimpleNamespace(
        begin=lambda what, total: seen.append((what, total)), advance=seen.append, end=lambda: seen.append("end")
    )
    as_arrays = {"text": lambda texts: [np.frombuffer(text.encode(), "uint8") for text in texts]}
    with shown_by(display):
        store = opened(records_of("ab", "cd"), columns=as_arrays, vocab_size=256, about="letters", size=4)
    assert seen == [("encoding letters", 4), 2, 4, "end"]
    assert store["text"].flat.tobytes() == b"ab\0cd\0"


def test_a_second_time_nothing_is_read(cache):
    first = opened(records_of("one"))
    again = TokenStore.open(never, {"text": encode}, KEY, vocab_size=257)
    assert list(again["text"].flat) == list(first["text"].flat)
    assert sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock")) == [KEY]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "meta.json").unlink(),
        lambda folder: (folder / "meta.json").write_text("{"),
        lambda folder: (folder / "meta.json").write_text("[]"),
        lambda folder: (folder / "text.ids").write_bytes(b""),
        lambda folder: (folder / "text.offsets").unlink(),
        lambda folder: folder.with_name(f"{KEY}.building").mkdir() or (folder / "text.ids").unlink(),
    ],
)
def test_a_damaged_store_is_built_again(cache, damage):
    opened(records_of("one"))
    damage(cache / KEY)
    assert list(opened(records_of("one"))["text"][0]) == ended("one")


def test_other_settings_under_the_same_key_are_not_mixed_up():
    opened(records_of("one"))
    assert list(opened(records_of("one"), end=None)["text"][0]) == ended("one")[:-1]


def test_a_failed_build_leaves_nothing(cache):
    def failing():
        yield from records_of("one")
        raise DataError("broken", where="a.txt, line 2")

    with pytest.raises(DataError, match="line 2"):
        TokenStore.open(failing, {"text": encode}, KEY, vocab_size=257)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []


def test_ids_outside_the_vocabulary_and_odd_keys_are_refused():
    with pytest.raises(ValueError, match="300"):
        opened(records_of("a"), columns={"text": lambda texts: [[300]]})
    with pytest.raises(ValueError, match="sha256"):
        opened([], key="../elsewhere")


def test_what_cannot_be_encoded_is_named_by_its_place():
    def picky(texts):
        if "bad" in texts:
            raise DataError("is bad", hint="leave it out")
        return encode(texts)

    records = [Record({"text": text}, "a.txt", line) for line, text in enumerate(["one", "bad", "two"], 1)]
    with pytest.raises(DataError, match=r"a.txt, line 2: is bad; leave it out"):
        opened(records, columns={"text": picky})


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"file: cannot write.*SEQLAB_CACHE"):
        opened(records_of("one"))


def test_full_disk(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "_settle", full)
    with pytest.raises(DataError, match=r"cache: .*No space left.*SEQLAB_CACHE"):
        opened(records_of("one"))


def test_the_cache_folder_is_the_systems_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("SEQLAB_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder().name == "seqlab"


def slow_records():
    for _ in range(20):
        time.sleep(0.02)
        yield from records_of("one")


def build_slowly(number, results):
    store = TokenStore.open(slow_records, {"text": encode}, KEY, vocab_size=257)
    results.put((number, store["text"].tokens))


def test_two_processes_at_once(cache):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=build_slowly, args=(number, results)) for number in range(2)]
    for process in processes:
        process.start()
    assert sorted(results.get() for _ in processes) == [(0, 80), (1, 80)]
    for process in processes:
        process.join()
    assert not list(cache.glob("*.building"))


def test_a_killed_build_is_done_again(cache):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=build_slowly, args=(0, results))
    process.start()
    while process.is_alive() and not list(cache.glob("*.building")):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not (cache / KEY).exists()
    assert opened(records_of("one"))["text"].tokens == 4
    assert not list(cache.glob("*.building"))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 299), max_size=6), st.booleans()), max_size=30),
    st.sampled_from([None, 0, 299]),
    st.integers(1, 400),
)
def test_round_trip_of_any_ragged_records(tmp_path_factory, rows, end, batch):
    """The text carries its own ids, so that the encoder is the identity."""
    expected, document = [], []
    for ids, ends in rows:
        document = document + ids
        if ends:
            expected.append(document + ([] if end is None else [end]))
            document = []
    if rows and not rows[-1][1]:
        expected.append(document)
    records = [Record({"text": "".join(map(chr, ids))}, "a", 1, ends) for ids, ends in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(module, "BATCH", batch)
        identity = {"text": lambda texts: [[ord(character) for character in text] for text in texts]}
        column = opened(records, columns=identity, vocab_size=300, end=end)["text"]
        patch.setenv("SEQLAB_CACHE", "/dev/null/nowhere")  # what is not kept needs no folder, and is the same
        other = opened(records, columns=identity, vocab_size=300, end=end, keep=False)["text"]
    assert [list(ids) for ids in other] == expected
    assert other.flat.dtype == column.flat.dtype
    facts = ("tokens", "documents", "characters", "bytes")
    assert [getattr(other, fact) for fact in facts] == [getattr(column, fact) for fact in facts]
    assert [list(ids) for ids in column] == expected
    assert list(column.flat) == [index for ids in expected for index in ids]
    assert column.characters == sum(len(ids) for ids, _ in rows)
