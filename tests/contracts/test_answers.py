"""Every task that answers: one answer for each line, in its order, with its number, and the text as it was given."""

from __future__ import annotations

import json

import pytest
from answering_tasks import TASKS, UNKNOWN
from click.testing import CliRunner

import seqlab
from seqlab.cli import group


def check(name, answers, file):
    lines = TASKS[name][1]
    assert [one["line"] for one in answers] == list(range(1, len(lines) + 1))
    assert {one["file"] for one in answers} == {file}
    assert all(isinstance(one["answer"], str) for one in answers)
    if name == "forecasts":
        assert [bool(one["answer"]) for one in answers] == [bool(line.strip()) for line in lines]
        return
    assert [one["text"] for one in answers] == lines
    assert [one["unknown"] for one in answers] == UNKNOWN
    if "tags" in answers[0]:
        assert [len(one["tags"]) for one in answers] == [len(line.split()) for line in lines]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_one_answer_for_each_line(name, batch_size, trained, tmp_path):
    path = tmp_path / "asked.txt"
    path.write_text("\n".join(TASKS[name][1]) + "\n", encoding="utf-8")
    run = seqlab.load(trained(name))
    check(name, list(run.predict(str(path), lines=True, batch_size=batch_size)), str(path))


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_one_line_is_printed_for_each_line(name, end, trained, tmp_path):
    lines, folder = TASKS[name][1], str(trained(name))
    text = end.join(lines) + end
    path = tmp_path / "asked.txt"
    path.write_text(text, encoding="utf-8", newline="")
    for files, given in (([], text), (["-"], text), ([str(path), "--lines"], None)):
        found = CliRunner().invoke(group, ["predict", folder, *files, "--json"], input=given)
        assert found.exit_code == 0, found.output
        answers = [json.loads(line) for line in found.stdout.splitlines()]
        check(name, answers, str(path) if given is None else "standard input")
        plain = CliRunner().invoke(group, ["predict", folder, *files], input=given)
        printed = plain.stdout.split("\n")
        assert len(printed) == len(lines) + 1
        for line, answer in zip(printed, answers, strict=False):
            assert line.split("\t")[0] == " ".join(answer["answer"].split())
        place = "standard input" if given is not None else path
        note = f"note: 1 token is not in the vocabulary, and read as unknown ({place}, line 3: 1)"
        assert (note in plain.stderr) == (name != "forecasts")


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("trees", "forecasts")])
def test_one_answer_for_each_row(name, trained, tmp_path):
    """Rows of tables likewise, with empty cells too; a blank line between rows is no row."""
    fields = ["tone", "source"] if "conditions" in name else ["source"] if "translation" in name else ["text"]
    cells = [dict(zip(fields, line.split("\t") if len(fields) > 1 else [line], strict=True)) for line in TASKS[name][1]]
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(one) + "\n\n" for one in cells), encoding="utf-8")
    answers = list(seqlab.load(trained(name)).predict(str(path)))
    assert [one["line"] for one in answers] == [1, 3, 5, 7, 9, 11]
    check(name, [{**one, "line": (one["line"] + 1) // 2} for one in answers], str(path))


def test_the_unknown_are_counted_in_what_is_read(trained):
    """A byte tokenizer knows everything, and says 0."""
    told = CliRunner().invoke(group, ["predict", str(trained("classes")), "--json"], input="zebra ☃ plum\n")
    assert json.loads(told.stdout)["unknown"] == 2
    assert "2 tokens are not in the vocabulary" in told.stderr


def test_nothing_at_all_is_an_error(trained):
    told = CliRunner().invoke(group, ["predict", str(trained("classes"))], input="").exception
    assert str(told) == "standard input: has no lines; give a FILE, or pipe lines in"


def test_a_plain_text_that_is_answered_as_one_is_said(trained, tmp_path):
    (tmp_path / "a.txt").write_text("a red plum\nthe saw\n", encoding="utf-8")
    told = CliRunner().invoke(group, ["predict", str(trained("classes")), str(tmp_path / "a.txt")])
    assert len(told.stdout.splitlines()) == 1
    assert "a.txt is answered as one text; use --lines to answer line by line" in told.stderr
