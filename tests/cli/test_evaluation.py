"""`evaluate` counts every token exactly once, whatever the batch size and the format of the data."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from tolerance import SMALL_NET, rounding

import seqlab as api
from seqlab.data.reading.readers import read

KINDS = ["ngram", "lstm", "gpt"]
LINES = ["the cat sat on the mat.", "she read about a letter, “quietly”", "a bird found the café!"] * 7


def held_out(run) -> list[int]:
    """The tokens of the held-out lines, each line closed by its end."""
    lines = [record.fields["text"] for record in read(run.recipe.data, "valid")]
    return [token for ids in run.tokenizer.encode_batch(lines) for token in (*ids, run.tokenizer.end_id)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_size", [1, 3, 8, 64])
def test_every_token_is_scored_once(kind, batch_size, runs, monkeypatch):
    run = api.load(runs[kind])
    seen: list[torch.Tensor] = []
    losses = run.model.losses

    def watched(states, targets):
        seen.append(targets)
        return losses(states, targets)

    monkeypatch.setattr(run.model, "losses", watched)
    metrics = run.evaluate(batch_size=batch_size)
    expected = held_out(run)
    assert metrics["tokens"] == len(expected)
    assert np.array_equal(np.sort(torch.cat(seen).numpy()), np.sort(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_figures_do_not_depend_on_the_batch_size(kind, runs, seqlab):
    losses = [
        json.loads(seqlab("evaluate", runs[kind], "--batch-size", size, "--json").out)["loss"] for size in (1, 3, 8, 64)
    ]
    assert losses == pytest.approx([losses[0]] * 4, abs=rounding(SMALL_NET, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_lines_in_any_format(kind, runs, seqlab, tmp_path):
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *enumerate(LINES)])
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES), encoding="utf-8")
    (tmp_path / "a.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    found = [
        json.loads(seqlab("evaluate", runs[kind], "--data", tmp_path / f"a.{suffix}", "--json").out)
        for suffix in ("txt", "csv", "jsonl")
    ]
    assert found[0] == found[1] == found[2]
    run = api.load(runs[kind])
    assert found[0]["tokens"] == sum(len(ids) + 1 for ids in run.tokenizer.encode_batch(LINES))


def test_scrambled_letters(runs, seqlab):
    """The same text before and after: as many characters, but harder to predict."""
    found = json.loads(seqlab("evaluate", runs["lstm"], "--scramble", 1, "--json").out)
    assert found["scrambled"]["bits_per_character"] > found["bits_per_character"]
    assert found["scrambled"]["tokens"] == found["tokens"]
    assert found["scrambled"]["signature"]["scramble"] == 1
    run = api.load(runs["lstm"])
    assert run.evaluate(scramble=0.0) == run.evaluate()
    table = seqlab("evaluate", runs["ngram"], "--scramble", 0.5).out
    assert "scrambled" in table
    assert seqlab("evaluate", runs["lstm"], "--scramble", 2).code == 2


def test_training_on_rows(seqlab, tmp_path):
    rows = [{"body": line, "n": number} for number, line in enumerate(LINES * 5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = [f"data.train={tmp_path / 'a.jsonl'}", "data.columns.text=body", "tokenizer.kind=word"]
    said = seqlab("train", "lm/ngram", *keys, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert json.loads(seqlab("evaluate", tmp_path / "out", "--json").out)["bits_per_character"] < 1


def test_the_advice_about_a_column_can_be_followed(runs, seqlab, tmp_path):
    """An error names data.columns.text; `evaluate` takes it."""
    (tmp_path / "a.csv").write_text(
        "text\n" + "\n".join(line.replace(",", "") for line in LINES) + "\n", encoding="utf-8"
    )
    (tmp_path / "b.csv").write_text(
        (tmp_path / "a.csv").read_text(encoding="utf-8").replace("text", "body", 1), "utf-8"
    )
    said = seqlab("evaluate", runs["ngram"], "--data", tmp_path / "b.csv")
    assert said.code == 2
    assert "data.columns.text" in said.errors[0]
    said = seqlab("evaluate", runs["ngram"], "--data", tmp_path / "b.csv", "data.columns.text=body", "--json")
    assert said.code == 0, said.err
    assert said.out == seqlab("evaluate", runs["ngram"], "--data", tmp_path / "a.csv", "--json").out
    (tmp_path / "c").write_bytes((tmp_path / "b.csv").read_bytes())
    reading = ["data.format=csv", "data.columns={text: body}"]
    assert seqlab("evaluate", runs["ngram"], *reading, "--data", tmp_path / "c", "--json").out == said.out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["data.columns.text=body"], "add --data FILE"),
        (["other.txt"], "name files with --data"),
        (["data.hold_out=0.5", "--data", "other.txt"], "'data.hold_out=0.5' does not set how data is read"),
        (["data.columns=3", "--data", "other.txt"], "data.columns"),
    ],
)
def test_settings_that_do_not_say_how_a_file_is_read(arguments, part, runs, seqlab):
    said = seqlab("evaluate", runs["ngram"], *arguments)
    assert (said.code, said.out, len(said.errors)) == (2, "", 1)
    assert part in said.errors[0]
