"""A tokenizer is learnt once: the same data and settings give it from the cache, exactly as it was."""

from __future__ import annotations

import json
import multiprocessing

import pytest

from seqlab import registry
from seqlab.errors import DataError
from seqlab.recipe import DataSettings
from seqlab.tokenizers import fitted as module
from seqlab.tokenizers.fitted import fitted

CORPUS = [
    "The cat sat on the mat, and the dog sat on the cat.\n",
    "«Où est-il?» 日本語 👨‍👩‍👧 <end> <unk> sat on the\n",
]
VARIANTS = [
    ("character", {}),
    ("byte", {}),
    ("word", {"lowercase": True}),
    ("bpe", {"vocab_size": 270}),
    ("classic-bpe", {"vocab_size": 60}),
    ("symbols", {"vocab_size": 8}),
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokenizers"


@pytest.fixture
def data(tmp_path) -> DataSettings:
    (tmp_path / "text.txt").write_text("".join(CORPUS), encoding="utf-8")
    return DataSettings(train=str(tmp_path / "text.txt"), valid=[])


def settings(kind: str, **options: object):
    return registry.find("tokenizer", kind).Settings(kind=kind, **options)


@pytest.fixture
def never(monkeypatch):
    """From now on, learning is an error."""

    def forbid():
        def learn(*_):
            raise AssertionError("learnt although the cache has it")

        monkeypatch.setattr(module, "_learnt", learn)

    return forbid


@pytest.mark.parametrize(("kind", "options"), VARIANTS)
def test_the_same_from_the_cache(kind, options, data, never):
    cls = registry.find("tokenizer", kind)
    text = "".join(CORPUS)
    alone = cls.fit([text], settings(kind, **options))
    first = fitted(settings(kind, **options), data)
    never()
    again = fitted(settings(kind, **options), data)
    assert type(again) is cls
    assert alone.fingerprint == first.fingerprint == again.fingerprint
    for line in [*CORPUS, "", "unseen Ω words"]:
        assert again.encode(line) == alone.encode(line)


def test_other_data_settings_and_versions_are_learnt_anew(data, cache, tmp_path, monkeypatch):
    def count():
        return len([path for path in cache.iterdir() if path.is_dir()])

    fitted(settings("bpe", vocab_size=300), data)
    fitted(settings("bpe", vocab_size=301), data)
    assert count() == 2
    fitted(settings("word"), data)
    assert count() == 3
    monkeypatch.setattr(module, "_versions", lambda: ["another"])
    fitted(settings("word"), data)
    assert count() == 4
    (tmp_path / "text.txt").write_text("other words\n")
    assert fitted(settings("word"), data).vocab_size == 4
    assert count() == 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "tokenizer.json").write_text('{"kind": "character", "characters": ["x"]}\n'),
        lambda folder: (folder / "tokenizer.json").write_bytes(b""),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / "meta.json").write_text("{"),
        lambda folder: (folder / "meta.json").write_text("[]"),
        lambda folder: (folder / "meta.json").unlink(),
    ],
)
def test_what_is_damaged_is_learnt_anew(damage, data, cache):
    first = fitted(settings("character"), data)
    (folder,) = (path for path in cache.iterdir() if path.is_dir())
    damage(folder)
    assert fitted(settings("character"), data).fingerprint == first.fingerprint
    assert json.loads((folder / "meta.json").read_text())["fingerprint"] == first.fingerprint


def test_a_persons_own_tokenizer_is_not_kept(data, cache, monkeypatch):
    character = registry.find("tokenizer", "character")
    monkeypatch.setitem(registry._given, ("tokenizer", "mine"), character)
    own = character.Settings(kind="mine")
    assert fitted(own, data).vocab_size > 2
    assert not cache.exists()


def test_faults_name_the_place(tmp_path, cache):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": [1, 2]}\n{"text": [3, -4]}\n')
    with pytest.raises(DataError, match=r"a.jsonl, line 2: '-4' is not an id"):
        fitted(settings("ids"), DataSettings(train=str(path), valid=[]))
    assert [one for one in cache.iterdir() if one.is_dir()] == []


def learn(data, results):
    results.put(fitted(settings("bpe", vocab_size=300), data).fingerprint)


def test_several_processes_at_once(data, cache):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=learn, args=(data, results)) for _ in range(2)]
    for process in processes:
        process.start()
    assert len({results.get() for _ in processes}) == 1
    for process in processes:
        process.join()
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1
