"""What a person should know to read a figure is said in one line, and stands in the JSON too."""

from __future__ import annotations

import json

import pytest

LINES = ["the cat sat", "", "the dog sat on the mat", "   ", "", "a cat", "\u3000"] * 20
EMPTY = 80
NOTE = "with data.empty_lines=true, each counts as a lone `<end>`"


@pytest.fixture(scope="module")
def sparse(tmp_path_factory, seqlab):
    """A text with empty lines, and a bigram of it that leaves them out."""
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "text.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    others = [line.replace("cat", "mat").replace("dog", "cat") for line in LINES[:7]]
    (folder / "other.txt").write_text("\n".join(others) + "\n", encoding="utf-8")
    data = [f"data.train={folder / 'text.txt'}", f"data.valid={folder / 'other.txt'}", "data.documents=line"]
    keys = [*data, "tokenizer.kind=word", "model.order=2"]
    said = seqlab("train", "lm/ngram", *keys, "--out", folder / "run")
    assert said.code == 0, said.err
    kept = seqlab("train", "lm/ngram", *keys, "data.empty_lines=true", "--out", folder / "kept")
    assert kept.code == 0, kept.err
    return folder, said.err, kept.err


def test_empty_lines_that_are_left_out_are_counted(sparse, seqlab):
    folder, trained, _ = sparse
    assert f"{folder / 'text.txt'}: {EMPTY} empty lines are left out; {NOTE}" in trained
    assert f"{folder / 'other.txt'}: 4 empty lines are left out; {NOTE}" in trained
    said = seqlab("evaluate", folder / "run", "--json")
    found = json.loads(said.out)
    assert said.err.splitlines() == [f"note: {folder / 'other.txt'}: 4 empty lines are left out; {NOTE}"]
    assert found["notes"] == [said.err.strip().removeprefix("note: ")]
    assert found["signature"]["empty_lines"] == "4 left out"
    assert found["tokens"] == 3 + 6 + 2 + 3
    shown = seqlab("evaluate", folder / "run")
    assert shown.err.count("empty lines") == 1
    assert "empty lines 4 left out" in shown.out


def test_empty_lines_can_be_counted_as_lines(sparse, seqlab):
    """As published perplexities of WikiText have it: an end of its own for each."""
    folder, _, trained = sparse
    assert "empty lines" not in trained
    said = seqlab("evaluate", folder / "kept", "--json")
    found = json.loads(said.out)
    assert said.err == ""
    assert "notes" not in found
    assert found["tokens"] == 3 + 6 + 2 + 7
    errors = seqlab("train", "lm/ngram", "data.empty_lines=true", "--out", folder / "no").errors
    assert "empty_lines needs documents: line" in errors[0]


def test_where_a_part_is_held_out_the_lines_of_the_whole_file_are_counted(sparse, seqlab, tmp_path):
    folder, _, _ = sparse
    data = [f"data.train={folder / 'text.txt'}", "data.documents=line", "tokenizer.kind=word"]
    said = seqlab("train", "lm/ngram", *data, "--out", tmp_path / "run")
    assert said.err.count(f"{EMPTY} empty lines are left out") == 1


@pytest.mark.parametrize("file", [None, "-", "lines.txt"])
def test_every_line_is_scored(runs, seqlab, here, file):
    """An empty one has the score of its end; unknown words are counted, and shown where there are any."""
    lines = ["the cat sat on the mat.", "", "the zebra sat on the zebra."]
    (here / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files, stdin = ([] if file is None else [file]), "" if file == "lines.txt" else "\n".join(lines) + "\n"
    said = seqlab("score", runs["ngram"], *files, "--json", stdin=stdin)
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [(one["line"], one["text"], one["unknown"]) for one in found] == [
        (1, lines[0], 0),
        (2, "", 0),
        (3, lines[2], 2),
    ]
    assert found[1]["tokens"] == 1
    note = "note: 2 tokens are not in the vocabulary, and read as unknown (line 3: 2)"
    assert note in said.err
    table = seqlab("score", runs["ngram"], *files, "--rank", stdin=stdin)
    assert table.out.splitlines()[0].split() == ["log-prob", "perplexity", "tokens", "unknown", "text"]
    assert note in table.err
    nexts = seqlab("score", runs["ngram"], *files, "--suggest", "2", "--json", stdin=stdin)
    assert [(one["line"], one["unknown"]) for one in map(json.loads, nexts.out.splitlines())] == [
        (1, 0),
        (2, 0),
        (3, 2),
    ]
    assert note in nexts.err


def test_an_empty_text_that_is_not_closed_has_no_perplexity(sparse, seqlab, tmp_path):
    folder, _, _ = sparse
    data = [f"data.train={folder / 'text.txt'}", "tokenizer.kind=word"]
    assert seqlab("train", "lm/ngram", *data, "--out", tmp_path / "run").code == 0
    found = json.loads(seqlab("score", tmp_path / "run", "--json", stdin="\n").out)
    assert found == {"line": 1, "text": "", "log_probability": 0.0, "tokens": 0, "unknown": 0, "perplexity": None}
    assert "–" in seqlab("score", tmp_path / "run", stdin="\n").out


def test_unknown_words_of_a_prompt(runs, seqlab):
    said = seqlab("generate", runs["ngram"], "--prompt", "the zebra", "--tokens", 2, "--json")
    assert json.loads(said.out)["unknown"] == 1
    assert "note: 1 token is not in the vocabulary" in said.err
    known = seqlab("generate", runs["ngram"], "--prompt", "the cat", "--tokens", 2, "--json")
    assert (json.loads(known.out)["unknown"], known.err) == (0, "")


def test_tokenized_texts_are_said_once(seqlab, here):
    (here / "a.txt").write_text("a text .\n" * 120)
    said = seqlab("metrics", "a.txt", "a.txt", "--metric", "bleu", "--json", "--resamples", 0)
    assert len(json.loads(said.out)["notes"]) == 1
    assert said.err.count("120 of 120 lines end in a tokenised full stop") == 1
    assert said.err.startswith("note: bleu: ")


def test_a_column_that_is_not_known_is_said_of_its_file(seqlab, here):
    (here / "a.conll").write_text("EU B-ORG\n\nyes O\n" * 30)
    keys = ["data.train=a.conll", "training.steps=1", "--out", "out"]
    (error,) = seqlab("train", "classification/lstm", *keys).errors
    assert error.startswith("error: a.conll: no column is given for 'label'")
    (error,) = seqlab("train", "classification/lstm", *keys, "data.columns.label=class").errors
    assert error.startswith("error: a.conll: data.columns.label is 'class'")


def test_what_cannot_be_encoded_is_said_with_its_line(seqlab, here):
    rows = [{"text": "1 2", "label": "a"}, {"text": "3", "label": "b"}]
    (here / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 20))
    (here / "b.jsonl").write_text(json.dumps(rows[0]) + "\n" + json.dumps({"text": "1 x", "label": "a"}) + "\n")
    keys = ["data.train=a.jsonl", "data.valid=b.jsonl", "tokenizer.kind=ids", "training.steps=1", "--out", "out"]
    (error,) = seqlab("train", "classification/lstm", *keys).errors
    assert error.startswith("error: b.jsonl, line 2: ")
