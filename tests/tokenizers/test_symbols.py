"""Sequences that are no text: symbols, and numbers that are ids already."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab import registry
from seqlab.errors import DataError, RunError
from seqlab.tokenizers import load_tokenizer
from seqlab.tokenizers.ids import IdTokenizer
from seqlab.tokenizers.symbols import SymbolTokenizer

TUNE = ["C4 E4 G4 C4", "C4\tE4\nC4"]


def symbols(texts=TUNE, **keys):
    return SymbolTokenizer.fit(iter(texts), SymbolTokenizer.Settings(**keys))


def ids(texts=("0 5 2", "7"), **keys):
    return IdTokenizer.fit(iter(texts), IdTokenizer.Settings(**keys))


def test_symbols_by_frequency():
    tokenizer = symbols()
    assert [tokenizer.token(index) for index in range(tokenizer.vocab_size)] == ["<end>", "<unk>", "C4", "E4", "G4"]
    assert tokenizer.encode("G4  E4 B4").ids == [4, 3, 1]
    assert tokenizer.encode("G4  E4 B4").offsets == [(0, 2), (4, 6), (7, 9)]
    assert tokenizer.decode([2, 0, 3, 1, 4]) == "C4 E4 <unk> G4"
    assert symbols(vocab_size=3).encode("C4 E4").ids == [2, 1]


def test_commas():
    tokenizer = symbols(["home,cart, pay", "home cart"], split="comma")
    assert tokenizer.encode("pay,home cart,,").ids == [4, 3, 2]
    assert tokenizer.decode([4, 3]) == "pay home"
    assert symbols(["home,cart"]).encode("home,cart").ids == [2]


def test_ids_are_themselves():
    tokenizer = ids()
    assert (tokenizer.vocab_size, tokenizer.unknown_id) == (9, None)
    assert tokenizer.encode("7 0, 5").ids == [8, 1, 6]
    assert tokenizer.encode("7 0, 5").offsets == [(0, 1), (2, 3), (5, 6)]
    assert tokenizer.decode([8, 0, 1, 6]) == "7 0 5"
    assert (tokenizer.token(0), tokenizer.token(8)) == ("<end>", "7")
    assert ids(vocab_size=257).vocab_size == 257


@given(st.lists(st.integers(0, 1000)))
@settings(max_examples=60, deadline=None)
def test_ids_survive_text(numbers):
    tokenizer = IdTokenizer(1001)
    text = " ".join(map(str, numbers))
    tokens = tokenizer.encode_batch([text, "", text])
    assert tokens == [[n + 1 for n in numbers], [], [n + 1 for n in numbers]]
    assert tokenizer.decode(tokens[0]) == text
    stream = tokenizer.stream()
    assert "".join(stream.push(token) for token in [*tokens[0], 0]) + stream.finish() == text


@pytest.mark.parametrize("wrong", ["-1", "1.5", "+1", "1_000", "٣", "C4", "1e3", "0x1", "\ud800", "9" * 5000])
def test_what_is_no_id_is_named(wrong):
    for use in (lambda: ids([f"1 2 {wrong} 3"]), lambda: ids().encode(f"1 {wrong}")):
        with pytest.raises(DataError, match=r"not an id|too large|not in the vocabulary") as error:
            use()
        assert len(str(error.value)) < 300 or wrong in "9" * 5000


def test_ids_outside_the_vocabulary():
    with pytest.raises(DataError, match="8 is not in the vocabulary, which is 0 to 7"):
        ids().encode("1 8")
    with pytest.raises(DataError, match="at least 9: one is for <end>"):
        ids(vocab_size=8)
    with pytest.raises(DataError, match="too large"):
        ids([str(2**32)])
    with pytest.raises(DataError, match="empty"):
        ids([""])


@pytest.mark.parametrize("wrong", [None, 0, -1, "5", True, 1.5, 2**32, [], {}])
def test_malformed_ids(wrong, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"kind": "ids", "count": wrong}))
    with pytest.raises(RunError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_ids_save_and_load(tmp_path):
    ids().save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == ids().fingerprint
    assert loaded.encode("7 1") == ids().encode("7 1")


def test_every_tokenizer_says_what_its_tokens_are():
    units = {kind: registry.find("tokenizer", kind).unit for kind in registry.TOKENIZERS}
    assert set(units.values()) == {"part", "word", "symbol"}
    assert [kind for kind, unit in units.items() if unit == "symbol"] == ["symbols", "ids"]
