"""`seqlab data cache`, `--device`, and what long work says of itself."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

import pytest

from seqlab.cli import display as progress
from seqlab.data.progress import work

SMALL = ["train", "lm/lstm", "tokenizer.kind=character", "model.width=16", "training.steps=2"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_listing_and_clearing(seqlab, cache, text, tmp_path):
    said = seqlab("data", "cache")
    assert said.out == f"{cache}: 0 entries, 0 bytes (limit 20.0 GB)\n"
    by_torch = "training.products=torch"  # which needs no measurement
    assert seqlab(*SMALL, f"data.train={text}", by_torch, "--out", tmp_path / "run").code == 0
    listed = seqlab("data", "cache").out
    for part in ("tokenizers", f"character of {text}", "held out", "just now", "3 entries"):
        assert part in " ".join(listed.split()).replace("\n", "") or part in listed
    found = json.loads(seqlab("data", "cache", "--json").out)
    assert sorted(one["kind"] for one in found["entries"]) == ["tokenizers", "tokens", "tokens"]
    assert found["bytes"] == sum(one["bytes"] for one in found["entries"])
    assert seqlab("data", "cache", "--clear", "1h").out.startswith("removed 0 entries")
    tokenizer = next(one["folder"] for one in found["entries"] if one["kind"] == "tokenizers")
    for path in [f"{tokenizer}.lock", *(f"{tokenizer}/{name}" for name in os.listdir(tokenizer))]:
        os.utime(path, (time.time() - 7200,) * 2)
    assert seqlab("data", "cache", "--clear", "1h").out.startswith("removed 1 entry")
    assert json.loads(seqlab("data", "cache", "--clear", "all", "--json").out)["entries"] == []
    assert seqlab(*SMALL, f"data.train={text}", "--out", tmp_path / "again").code == 0


def contents(folder) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in folder.rglob("*") if "compiled" not in path.parts}


@pytest.fixture(scope="module")
def translator(seqlab, tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator") / "run"
    small = ["model.width=16", "model.heads=2", "model.hidden_width=16", "training.steps=2", "training.batch_size=4"]
    said = seqlab("train", "translation/transformer", "data.train=reverse:5:1000", *small, "--out", folder)
    assert said.code == 0, said.err
    return folder


def test_what_is_typed_leaves_nothing_in_the_cache(seqlab, cache, runs, translator, tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("the cat sat on the mat.\nshe read about a letter.\n")
    (tmp_path / "few.tsv").write_text("source\ttarget\na b c\tc b a\nb c\tc b\n")
    cache.mkdir()
    for arguments in (
        ["predict", translator],
        ["predict", translator, few],
        ["evaluate", translator, "--data", tmp_path / "few.tsv"],
        *([command, runs[kind]] for command in ("score", "generate") for kind in runs),
        *(["evaluate", run, "--data", few] for run in runs.values()),
    ):
        said = seqlab(*arguments, stdin="a b c\n")
        assert said.code == 0, said.err
        assert contents(cache) == {}, arguments


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Another temporary folder than the system's, for a process that has not asked for one yet."""
    from seqlab.data.storage import cache as module

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path / "tmp"))
    module.temporary_folder.cache_clear()
    yield tmp_path / "tmp"
    module.temporary_folder.cache_clear()
    module._usable.cache_clear()


@pytest.mark.parametrize("place", ["cache that was named", "home"])
def test_what_is_typed_needs_no_cache_that_can_be_written(
    place, seqlab, runs, translator, temporary, monkeypatch, tmp_path
):
    (tmp_path / "file").write_text("in the way")
    if place == "home":
        monkeypatch.delenv("SEQLAB_CACHE")
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    else:
        monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "file"))
    for arguments in (["predict", translator], ["score", runs["lstm"]], ["score", runs["ngram"], "--rank"]):
        said = seqlab(*arguments, stdin="a b c\n")
        assert (said.code, said.errors) == (0, [])
        assert said.out


def test_a_home_that_cannot_be_written_stops_no_command(seqlab, runs, text, temporary, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.delenv("SEQLAB_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    said = seqlab(*SMALL, f"data.train={text}", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert said.err.count("SEQLAB_CACHE") == 1
    assert seqlab("evaluate", tmp_path / "run").code == 0
    assert str(temporary) in seqlab("data", "cache").out


def test_what_is_wrong_is_one_line(seqlab, cache, monkeypatch):
    for arguments, part in [(["--clear", "soon"], "12h, 30d or all"), ([], "SEQLAB_CACHE_LIMIT")]:
        said = seqlab("data", "cache", *arguments)
        assert (said.code, len(said.errors)) == (2, 1)
        assert part in said.errors[0]
        monkeypatch.setenv("SEQLAB_CACHE_LIMIT", "much")
        if not arguments:
            break


@pytest.mark.parametrize("command", ["evaluate", "generate", "score"])
def test_device(command, seqlab, runs):
    extra = {"evaluate": [], "generate": ["--tokens", 3], "score": []}[command]
    assert seqlab(command, runs["lstm"], *extra, "--device", "cpu", stdin="the cat\n").code == 0
    for device, part in [
        ("cuda:77", "this machine has no 'cuda:77' device"),
        ("gpu", "should be auto, cpu, mps, cuda"),
    ]:
        said = seqlab(command, runs["lstm"], *extra, "--device", device, stdin="the cat\n")
        assert (said.code, said.out, len(said.errors)) == (2, "", 1)
        assert part in said.errors[0]


def test_long_work_says_when_it_begins_and_ends(capsys, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock.now)
    with progress.Bar("mine"):
        with work("encoding book.txt", 5_000_000) as advance:
            for _ in range(10):
                clock.now += 0.4
                advance(int(clock.now * 1_000_000))
        with work("encoding note.txt", 5) as advance:
            advance(5)
    with progress.Bar("quiet", quiet=True), work("encoding book.txt") as advance:
        clock.now += 9
        advance(1)
    said = capsys.readouterr().err.splitlines()
    assert said == ["mine encoding book.txt …", "mine encoding book.txt: 4.0 MB in 4.0 s"]


def test_on_a_terminal_there_is_a_bar(capsys, monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "Console", lambda stderr: progress_console(capsys))
    with progress.Bar("mine") as bar:
        with work("encoding book.txt", 5_000_000) as advance:
            advance(2_500_000)
            (task,) = [task for task in bar.bar.tasks if task.description == "encoding book.txt"]
            assert (task.percentage, task.fields["figures"]) == (50, "2.5 MB")
        assert [task.description for task in bar.bar.tasks] == ["mine"]
    assert "encoding book.txt" in capsys.readouterr().err


def progress_console(capsys):
    import sys

    from rich.console import Console

    return Console(file=sys.stderr, force_terminal=True, width=120)


def test_work_that_nobody_watches_says_nothing(capsys):
    with work("anything", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes"), (999, "999 bytes"), (1234567, "1.2 MB"), (5e15, "5000.0 TB")]
)
def test_sizes(count, shown):
    assert progress.size(count) == shown
