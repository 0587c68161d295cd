"""One contract for all tokenizers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seqlab import registry
from seqlab.errors import DataError, RecipeError, RunError
from seqlab.tokenizers import load_tokenizer

CORPUS = [
    "The cat sat on the mat, and the dog — a big one — sat on the cat.\n",
    "«Où est-il?» asked the naïve reader; 3.14 + 2 = 5.14!\n",
    "日本語のテキスト और हिन्दी, שלום, سلام 👨‍👩‍👧 🇩🇪.\n",
    "<end> <unk> </w> Ġ are ordinary characters. <end> <end>\n\n",
]
KINDS = sorted(set(registry.TOKENIZERS) - {"ids"})  # which take no text: test_symbols.py
LOSSLESS = ["byte", "bpe", "unigram", "sentencepiece"]
SETTINGS = {
    "bpe": {"vocab_size": 300},
    "classic-bpe": {"vocab_size": 150},
    "wordpiece": {"vocab_size": 250},
    "unigram": {"vocab_size": 400},
    "sentencepiece": {"vocab_size": 400},
}
VARIANTS = [
    *((kind, SETTINGS.get(kind, {})) for kind in KINDS),
    ("word", {"split": "whitespace", "lowercase": True}),
    ("word", {"vocab_size": 10}),
    ("symbols", {"vocab_size": 10}),
    ("character", {"vocab_size": 12}),
    ("classic-bpe", {"word_end": "apart", "min_frequency": 1, "vocab_size": None}),
    ("classic-bpe", {"vocab_size": 20}),
    ("wordpiece", {"vocab_size": 60, "lowercase": True}),
    ("wordpiece", {"vocab_size": None, "min_frequency": 1, "strip_accents": True, "split_cjk": False}),
    ("unigram", {"vocab_size": 120, "byte_fallback": False}),
    ("sentencepiece", {"vocab_size": 400, "algorithm": "bpe"}),
    ("sentencepiece", {"vocab_size": 120, "byte_fallback": False}),
    ("sentencepiece", {"vocab_size": 400, "normalization": "nmt_nfkc"}),
]
ASKED = ["mask", "separator", "class", "pad", "begin", "<speaker>"]
NAMES = ["<mask>", "<sep>", "<cls>", "<pad>", "<begin>", "<speaker>"]
WITH_ROLES = [
    (kind, {key: value + len(ASKED) if key == "vocab_size" and value else value for key, value in options.items()})
    for kind, options in VARIANTS
]
"""The same vocabularies with all roles: as many tokens more as are asked for."""
HARD = [
    "",
    "\0",
    "\u0301",
    "👨‍👩‍👧🇩🇪",
    "שלום سلام",
    "<end>",
    "<unk> </w>",
    "a\r\n\tb  c ",
    "\x1c\x85\u2028",
    "İI",
    "\ufffd",
    "e\u0301\u0327 \u0301\u0301a",
    "\ue000\U0010fffd",
    "\ufdd0\uffff\U0010ffff",
    "x▁y ▁ ▅ \u2047 Ġ",
    "##a ## a##b [UNK] [SEP] <0x41>",
    "\u200f\u200bא\u05b8\ufeffب\u200dی",
    "  \n\n \t x \n ",
    "ﬁ½Å가한글각㍿",
]
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(["the", "cat", " ", "\n", ",", '"', "sat", "x", "é", "日", "<end>"])).map("".join),
)
COMMON = {"deadline": None, "max_examples": 60}


def learn(kind: str, **options: object):
    cls = registry.find("tokenizer", kind)
    return cls.fit(iter(CORPUS), cls.Settings(kind=kind, **options))


PLAIN = [learn(kind, **options) for kind, options in VARIANTS]
SPECIAL = [learn(kind, special=ASKED, **options) for kind, options in WITH_ROLES]
LEARNED, VARIANTS = [*PLAIN, *SPECIAL], [*VARIANTS, *WITH_ROLES]
each = pytest.mark.parametrize("tokenizer", LEARNED, ids=[f"{kind}-{options}" for kind, options in VARIANTS])


def kept(tokenizer, text):
    """What of a text must come back: all of it, or what is left when it is cleaned and blanks are forgotten."""
    if tokenizer.kind == "wordpiece":
        return "".join(tokenizer.cleaning.words(text))
    if tokenizer.kind in ("sentencepiece", "unigram"):
        text = tokenizer.processor.normalize(text).replace("▁", " ")
        return text.removeprefix(" ") if tokenizer.prefix else text
    return "".join(text.split()) if tokenizer.kind in ("word", "classic-bpe", "symbols") else text


def hard_examples(test):
    for text in HARD:
        test = example(text)(test)
    return test


@each
def test_vocabulary(tokenizer):
    size = tokenizer.vocab_size
    assert tokenizer.end_id == 0
    assert tokenizer.token(0) == "<end>"
    assert tokenizer.unknown_id is None or tokenizer.token(tokenizer.unknown_id) == "<unk>"
    assert all(tokenizer.token(index) for index in range(size))
    shown = [tokenizer.token(index) for index in range(size) if index not in tokenizer.special.names]
    assert len(set(shown)) == len(shown), "two tokens look the same"  # a word of the text may say `<end>`
    assert tokenizer.decode([0, 0]) == ""


@pytest.mark.parametrize(
    ("plain", "special"), list(zip(PLAIN, SPECIAL, strict=True)), ids=[kind for kind, _ in WITH_ROLES]
)
def test_roles(plain, special, tmp_path):
    """Those asked for follow the vocabulary, which is the same as without them; decoding leaves them out."""
    size = plain.vocab_size
    ids = range(size, size + len(ASKED))
    assert special.vocab_size == size + len(ASKED)
    roles = {role: index for role, index in zip(ASKED, ids, strict=True) if role != "<speaker>"}
    assert dict(special.special) == {**plain.special, **roles}
    assert special.special.others == {**plain.special.others, "<speaker>": ids[-1]}
    assert plain.special.keys() == {"end"} | ({"unknown"} if plain.unknown_id is not None else set())
    assert [special.token(index) for index in ids] == NAMES
    assert [special.token(index) for index in range(size)] == [plain.token(index) for index in range(size)]
    for text in [*CORPUS, *HARD]:
        encoded = plain.encode(text)
        assert special.encode(text) == encoded
        mixed = [ids[0], *(index for token in encoded.ids for index in (token, ids[3])), 0, *ids]
        assert special.decode(mixed) == plain.decode(encoded.ids)
    special.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert (dict(loaded.special), loaded.special.names) == (dict(special.special), special.special.names)
    assert plain.fingerprint != special.fingerprint == loaded.fingerprint


@pytest.mark.parametrize("tokenizer", SPECIAL, ids=[kind for kind, _ in WITH_ROLES])
@pytest.mark.parametrize("text", [*NAMES, " ".join(NAMES), "".join(NAMES), "[MASK] [SEP] <s> </s>"])
def test_text_never_becomes_a_special_token(tokenizer, text):
    """Whatever it says; not even where a text with these words was learnt from."""
    again = type(tokenizer).fit(
        iter([text * 20, *CORPUS]), type(tokenizer).Settings(kind=tokenizer.kind, special=ASKED, **room(tokenizer.kind))
    )
    for one in (tokenizer, again):
        silent = one.special.names.keys() - {one.unknown_id}
        assert silent.isdisjoint(one.encode(text).ids)
        assert silent.isdisjoint(one.encode_batch([text])[0])


def room(kind):
    return {} if kind == "byte" else {"vocab_size": 450}


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_asked_for(kind):
    cls = registry.find("tokenizer", kind)
    for wrong in (["end"], ["unknown"], ["cls"], ["<s>"], ["<mask>"], ["mask", "mask"], ["no brackets"], ["<A>"]):
        with pytest.raises(ValueError, match=r"cannot be requested|twice"):
            cls.Settings(kind=kind, special=wrong)
    with pytest.raises(RecipeError, match=r"no mask token.*tokenizer\.special: \[mask\]"):
        PLAIN[KINDS.index(kind)].special.need("mask")
    assert SPECIAL[KINDS.index(kind)].special.need("mask") == PLAIN[KINDS.index(kind)].vocab_size


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_special_tokens_take_room(kind):
    cls = registry.find("tokenizer", kind)
    least = {"bpe": 257, "unigram": 259, "sentencepiece": 259}.get(kind, 4)
    with pytest.raises(DataError, match="is too small, with"):
        cls.fit(iter(CORPUS), cls.Settings(kind=kind, vocab_size=least, special=ASKED))


@each
@hard_examples
@given(TEXT)
@settings(**COMMON)
def test_encoding(tokenizer, text):
    """Ids are of the vocabulary and never `<end>`; offsets go forward and cover all but blanks and what is dropped."""
    encoding = tokenizer.encode(text)
    assert len(encoding.ids) == len(encoding.offsets)
    assert all(0 <= index < tokenizer.vocab_size and index != tokenizer.end_id for index in encoding.ids)
    assert tokenizer.encode_batch([text, "", text]) == [encoding.ids, [], encoding.ids]
    assert all(0 <= start <= stop <= len(text) for start, stop in encoding.offsets)
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(encoding.offsets))
    covered = {index for start, stop in encoding.offsets for index in range(start, stop)}
    assert all(i in covered or c.isspace() or not kept(tokenizer, c).strip() for i, c in enumerate(text))


@pytest.mark.parametrize("kind", LOSSLESS)
@hard_examples
@given(TEXT)
@settings(**COMMON)
def test_lossless(kind, text):
    tokenizer = LEARNED[KINDS.index(kind)]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@each
@pytest.mark.parametrize("text", CORPUS)
def test_training_text_comes_back(tokenizer, text):
    """Exactly, or up to blanks where tokens are made of words; without its capitals from a lowercase vocabulary, and
    not at all from one that is too small for it."""
    ids = tokenizer.encode(text).ids
    decoded = tokenizer.decode(ids)
    if tokenizer.unknown_id in ids:
        assert tokenizer.decode([tokenizer.unknown_id]).strip() in decoded
        return
    text = text.lower() if getattr(tokenizer, "lowercase", False) else text
    if tokenizer.kind in LOSSLESS and not getattr(tokenizer, "prefix", False):
        assert decoded == text
    else:
        assert kept(tokenizer, decoded) == kept(tokenizer, text)


@each
@given(st.data())
@settings(**COMMON)
def test_ids_survive_text(tokenizer, data):
    """What was encoded, decoded and encoded again is the same, unknowns included."""
    ids = tokenizer.encode(data.draw(TEXT)).ids
    if tokenizer.kind in ("classic-bpe", "wordpiece") and tokenizer.unknown_id in ids:
        return  # an unknown character inside a word can hide a merge; `<unk>` is cut at its brackets
    again = tokenizer.encode(tokenizer.decode(ids)).ids
    if tokenizer.kind == "wordpiece" or (tokenizer.kind == "word" and tokenizer.split == "punctuation"):
        assert tokenizer.decode(again) == tokenizer.decode(ids)
    else:
        assert again == ids


@each
@given(st.data())
@settings(**COMMON)
def test_stream_equals_decode(tokenizer, data):
    """Any ids at all; and what was given out is never taken back nor a broken character."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    stream = tokenizer.stream()
    given_out = [stream.push(index) for index in ids]
    assert "".join(given_out) + stream.finish() == tokenizer.decode(ids)


@each
def test_stream_gives_whole_characters(tokenizer):
    text = "é 日 👨‍👩‍👧"
    stream, pushed = tokenizer.stream(), ""
    for index in tokenizer.encode(text).ids:
        pushed += stream.push(index)
        if tokenizer.unknown_id is None:
            assert text.startswith(pushed)


@each
def test_save_and_load(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "run" / "tokenizer")
    for folder in (tmp_path / "run", tmp_path / "run" / "tokenizer"):
        loaded = load_tokenizer(folder)
        assert type(loaded) is type(tokenizer)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.vocab_size == tokenizer.vocab_size
        for text in CORPUS + HARD:
            assert loaded.encode(text) == tokenizer.encode(text)


@each
@pytest.mark.parametrize("method", ["encode", "encode_batch"])
def test_surrogates_are_refused(tokenizer, method):
    text = "ab\ud83d"
    with pytest.raises(DataError, match=r"U\+D83D at character 2"):
        getattr(tokenizer, method)(text if method == "encode" else ["fine", text])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_fit_refuses_surrogates(kind):
    cls = registry.find("tokenizer", kind)
    with pytest.raises(DataError, match=r"U\+DC00"):
        cls.fit(["fine", "\udc00"], cls.Settings(kind=kind))


@pytest.mark.parametrize(
    "kind", ["character", "word", "classic-bpe", "symbols", "wordpiece", "unigram", "sentencepiece"]
)
def test_nothing_to_learn(kind):
    cls = registry.find("tokenizer", kind)
    with pytest.raises(DataError, match="empty"):
        cls.fit([], cls.Settings(kind=kind))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_vocab_size_is_a_limit(kind):
    cls = registry.find("tokenizer", kind)
    for size in (259, 270):
        fitted = cls.fit([" ".join(map(chr, range(0x4E00, 0x4F00))) * 3], cls.Settings(kind=kind, vocab_size=size))
        assert fitted.vocab_size <= size


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])  # which learns nothing
def test_fit_reads_once_and_passes_errors_on(kind):
    def broken():
        yield "some text"
        raise DataError("line 7 is broken")

    cls = registry.find("tokenizer", kind)
    with pytest.raises(DataError, match="line 7"):
        cls.fit(broken(), cls.Settings(kind=kind))


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from test_tokenizer_contract import LEARNED
print([tokenizer.fingerprint for tokenizer in LEARNED])
"""


def test_same_vocabulary_in_every_process():
    here = os.path.dirname(__file__)
    for seed, threads in (("1", "1"), ("2", "4")):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        command = [sys.executable, "-c", PROGRAM, here]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert printed.strip() == str([tokenizer.fingerprint for tokenizer in LEARNED])


@each
@pytest.mark.parametrize("wrong", [None, 5, "nonsense", [5], [["a"]], ["a", "a"], [["a", "zz"]], {}, [[]], {"a": 1}])
def test_malformed_files(tokenizer, wrong, tmp_path):
    """Whatever stands under a key, and if a key is missing or too many, a RunError names the file."""
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    for key in tree:
        path.write_text(json.dumps(tree | {key: wrong}), encoding="utf-8")
        with pytest.raises(RunError, match=r"tokenizer\.json"):
            load_tokenizer(tmp_path)
        if key == "added":
            continue  # without it, it is a vocabulary without them
        path.write_text(json.dumps({name: value for name, value in tree.items() if name != key}), encoding="utf-8")
        with pytest.raises(RunError, match=r"tokenizer\.json"):
            load_tokenizer(tmp_path)
    path.write_text(json.dumps(tree | {"surplus": wrong}), encoding="utf-8")
    with pytest.raises(RunError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'"x"', b'{"kind": "bpe"}', b"[" * 100_000])
def test_no_tokenizer(content, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(RunError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_no_folder(tmp_path):
    with pytest.raises(RunError, match="no tokenizer here"):
        load_tokenizer(tmp_path / "none")
    (tmp_path / "file").write_text("text")
    with pytest.raises(RunError, match="no tokenizer here"):
        load_tokenizer(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "sentencepiece"])
def test_fork_after_threads_is_silent(kind):
    program = """
import os, sys
from seqlab import registry
cls = registry.find("tokenizer", sys.argv[1])
tokenizer = cls.fit(["some words"] * 1000, cls.Settings())
before = tokenizer.encode_batch(["some words"] * 100)
child = os.fork()
assert tokenizer.encode_batch(["some words"] * 100) == before
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert "TOKENIZERS_PARALLELISM" not in os.environ
"""
    environment = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    ran = subprocess.run([sys.executable, "-c", program, kind], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
