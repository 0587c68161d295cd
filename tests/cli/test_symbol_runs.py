"""Sequences that are no text, from the file to what is written: notes, clicks, pixels, DNA."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seqlab as api

MODEL = ["model.width=32", "task.window=12", "training.batch_size=8", "training.learning_rate=0.02"]
LSTM = ["train", "lm/lstm", *MODEL, "training.schedule.warmup=5", "training.clip_norm=1"]
CHORDS = ["C4 E4 G4", "F4 A4 C5", "G4 B4 D5", "A4 C5 E5"]


def songs(count: int = 120) -> list[list[str]]:
    """Each chord is followed by the next one, or now and then by any."""
    draw, found = random.Random(0), []
    for _ in range(count):
        at, notes = draw.randrange(4), []
        for _ in range(draw.randrange(3, 7)):
            notes += CHORDS[at].split()
            at = (at + 1) % 4 if draw.random() < 0.9 else draw.randrange(4)
        found.append(notes)
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, list[str]]:
    """The same songs in every format, and the keys that read each."""
    folder, tunes = tmp_path_factory.mktemp("songs"), songs()
    (folder / "a.txt").write_text("".join(" ".join(tune) + "\n" for tune in tunes))
    (folder / "commas.txt").write_text("".join(",".join(tune) + "\n" for tune in tunes))
    (folder / "a.jsonl").write_text("".join(json.dumps({"notes": tune}) + "\n" for tune in tunes))
    (folder / "a.csv").write_text("id,notes\n" + "".join(f'{n},"{tune}"\n' for n, tune in enumerate(tunes)))
    pq.write_table(pa.table({"notes": tunes}), folder / "a.parquet", row_group_size=17)
    column = ["data.columns.text=notes"]
    keys = {
        "txt": [f"data.train={folder}/a.txt", "data.documents=line"],
        "commas": [f"data.train={folder}/commas.txt", "data.documents=line", "tokenizer.split=comma"],
        **{name: [f"data.train={folder}/a.{name}", *column] for name in ("jsonl", "csv", "parquet")},
    }
    return {name: ["tokenizer.kind=symbols", "data.hold_out=0.1", *own] for name, own in keys.items()}


@pytest.fixture(scope="module")
def run(seqlab, written, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "songs"
    said = seqlab(*LSTM, *written["txt"], "training.steps=150", "--out", folder)
    assert said.code == 0, said.err
    assert "held-out bits per symbol" in said.err
    assert re.search(r"--prompt '[A-G]\d'", said.out)  # a symbol that it knows
    return folder


@pytest.mark.parametrize("by", ["document", "number"])
def test_every_format_gives_the_same_model(seqlab, written, tmp_path, by):
    figures = {}
    for name, keys in written.items():
        if (name, by) == ("commas", "document"):
            continue  # as text it is another one, of which other lines are held out
        said = seqlab("train", "lm/ngram", *keys, f"data.hold_out_by={by}", "--out", tmp_path / name)
        assert said.code == 0, said.err
        figures[name] = json.loads(seqlab("evaluate", tmp_path / name, "--json").out)
        assert figures[name].pop("signature")["tokenizer"].startswith("symbols-")
    assert all(found == figures["txt"] for found in figures.values())


def test_figures_are_per_symbol(seqlab, run):
    found = json.loads(seqlab("evaluate", run, "--json").out)
    assert found["bits_per_symbol"] == pytest.approx(found["loss"] / np.log(2))
    assert found["perplexity"] < 2  # eleven notes, but the next one is nearly always known
    assert "bits_per_character" not in found
    assert "bits per symbol" in seqlab("evaluate", run).out


def test_it_goes_on_in_symbols(seqlab, run):
    said = seqlab("generate", run, "--prompt", "C4 E4", "--tokens", 7, "--temperature", 0)
    assert said.out == "C4 E4 G4 F4 A4 C5 G4 B4 D5\n"
    assert seqlab("generate", run, "--prompt", "C4 E4 ", "--tokens", 1, "--beam", 3).out.endswith("C4 E4 G4\n")
    ranked = seqlab("score", run, "--rank", stdin="E4 C4 G4\nC4 E4 G4\nX9 X9 X9\n").out.splitlines()
    assert [line.split()[3:] for line in ranked[1:3]] == [["0", "C4", "E4", "G4"], ["0", "E4", "C4", "G4"]]
    assert ranked[3].split()[3:] == ["3", "X9", "X9", "X9"]  # what was scored are three unknown symbols
    found = json.loads(seqlab("score", run, "--suggest", "2", "--json", stdin="C4 E4\n").out)
    assert found["next"][0]["word"] == "G4"
    assert found["next"][0]["log_probability"] > -0.1


def test_compare_in_symbols(seqlab, written, tmp_path):
    keys = [*written["txt"], "--budget", "1s", "--out", tmp_path / "race", "--json"]
    said = seqlab("compare", "lm/ngram", "lm/lstm", *keys)
    assert said.code == 0, said.err
    assert json.loads(said.out)["unit"] == "bits_per_symbol"


def test_a_periodic_sequence_of_ids_is_learnt(seqlab, tmp_path):
    """0 1 2 … 9 0 1 …: nothing is left to guess but where it ends, once in 4,000."""
    np.save(tmp_path / "a.npy", np.arange(20_000) % 10)
    keys = [f"data.train={tmp_path}/a.npy", "data.hold_out=0.2", "tokenizer.kind=ids", "training.steps=400"]
    assert seqlab(*LSTM, *keys, "--out", tmp_path / "run").code == 0
    found = json.loads(seqlab("evaluate", tmp_path / "run", "--json").out)
    assert found["bits_per_symbol"] < 0.03  # uniform: 3.5
    said = seqlab("generate", tmp_path / "run", "--prompt", "4 5", "--tokens", 8, "--temperature", 0)
    assert said.out == "4 5 6 7 8 9 0 1 2 3\n"
    other = tmp_path / "other.npy"
    np.save(other, np.array([3, 12] * 100))
    said = seqlab("evaluate", tmp_path / "run", "--data", other)
    assert said.errors == [
        f"error: {other}, element 1: 12 is not in the vocabulary, which is 0 to 9; train on data that has it, or set "
        "tokenizer.vocab_size"
    ]
    assert "'C4' is not an id" in seqlab("generate", tmp_path / "run", "--prompt", "C4").errors[0]


def test_pixels(seqlab, tmp_path):
    """Rows of a table of bytes are pictures: here, stripes that begin bright or dark."""
    draw = np.random.default_rng(0)
    bright = draw.integers(0, 2, 60).astype(bool)
    pictures = np.where((np.arange(36) % 2 == 0) == bright[:, None], 200, 10).astype(np.uint8)
    np.save(tmp_path / "a.npy", pictures)
    keys = [f"data.train={tmp_path}/a.npy", "data.hold_out=0.2", "tokenizer.kind=ids", "tokenizer.vocab_size=257"]
    assert seqlab(*LSTM, *keys, "training.steps=150", "--out", tmp_path / "run").code == 0
    run = api.load(tmp_path / "run")
    assert run.tokenizer.vocab_size == 257
    assert run.evaluate()["perplexity"] < 1.3
    (text,) = run.generate("200 10 200", tokens=20, temperature=0)
    assert np.array_equal(np.fromstring(text, dtype=int, sep=" "), pictures[bright][0][3:23])


def test_dna(seqlab, tmp_path):
    """The headers of FASTA are not read; letters are characters."""
    draw = random.Random(0)
    genes = [f">gene {n} of nobody\n" + "".join(draw.choice("ACGT") for _ in range(60)) + "\n" for n in range(40)]
    (tmp_path / "a.fasta").write_text("".join(genes))
    keys = [f"data.train={tmp_path}/a.fasta", "tokenizer.kind=character", "model.order=2"]
    assert seqlab("train", "lm/ngram", *keys, "--out", tmp_path / "run").code == 0
    run = api.load(tmp_path / "run")
    assert run.tokenizer.vocab_size == 6
    assert 1.9 < run.evaluate()["bits_per_character"] < 2.3


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        (["tokenizer.kind=bpe"], "tokenizer.kind=ids"),
        (["tokenizer.kind=ids", "tokenizer.vocab_size=5"], "at least 11"),
        (["tokenizer.kind=symbols", "tokenizer.split=dot"], "tokenizer.split"),
    ],
)
def test_one_line_for_what_does_not_fit(seqlab, tmp_path, keys, part):
    np.save(tmp_path / "a.npy", np.arange(300) % 10)
    said = seqlab(*LSTM, f"data.train={tmp_path}/a.npy", *keys, "training.steps=1", "--out", tmp_path / "run")
    assert said.code == 2
    assert len(said.errors) == 1
    assert part in said.errors[0]
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_of_symbols_on_its_own(seqlab, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": ["a b", "c"]}\n')
    said = seqlab("tokenizer", "train", "symbols", tmp_path / "a.jsonl", "--out", tmp_path / "own")
    assert said.code == 0, said.err
    assert seqlab("tokenizer", "encode", tmp_path / "own", "c a␣b").out.splitlines()[0] == "3 2"
    assert seqlab("tokenizer", "show", tmp_path / "own", "--data", tmp_path / "a.jsonl").code == 0
