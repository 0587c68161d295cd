"""Back-translation: pairs out of plain text, by a translator in the other direction."""

import json

import pytest
from small_translations import recipe, reversals, run_command

import seqlab
from seqlab.data.reading.readers import read
from seqlab.errors import SeqlabError
from seqlab.recipe import Recipe

LINES = ["one two three", "", "four\tfive", "five " * 3000, 'six "five']


@pytest.fixture
def mono(tmp_path):
    file = tmp_path / "mono.txt"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return file


def rows_of(file):
    return [tuple(line.split("\t")) for line in file.read_text(encoding="utf-8").splitlines()]


def test_lines_become_targets_and_answers_their_sources(reverser, mono, tmp_path):
    out = tmp_path / "synthetic.tsv"
    found = run_command("back-translate", reverser.folder, mono, "--out", out, "--json")
    assert json.loads(found.stdout) == {"pairs": str(out), "written": 3, "skipped": 2}
    header, first, second, third = rows_of(out)
    assert header == ("source", "target")
    assert first == ("three two one", "one two three")
    assert second == ("five four", "four five")
    assert third[1] == 'six "five'  # as it was written, though the model does not know it
    typed = run_command("back-translate", reverser.folder, "--out", tmp_path / "other.jsonl", text=mono.read_text())
    assert "3 pairs, 2 of 5 lines left out" in typed.stdout
    rows = [json.loads(line) for line in (tmp_path / "other.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["source"] for row in rows] == [row[0] for row in (first, second, third)]
    assert [row["target"] for row in rows] == [LINES[0], LINES[2], LINES[4]]


def test_they_can_be_trained_on_beside_pairs_of_people(reverser, tmp_path):
    """The other direction, from a few pairs and many synthetic ones."""
    (tmp_path / "mono.txt").write_text("\n".join(row["target"] for row in reversals(300)) + "\n")
    made = seqlab.back_translate(reverser, str(tmp_path / "mono.txt"), tmp_path / "synthetic.tsv")
    assert made.written == 300
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + "one six\tsix one\n" * 6)
    files = [str(tmp_path / name) for name in ("pairs.tsv", "synthetic.tsv")]
    settings = recipe(tmp_path, reversals(100)).changed({"data.train": files, "training.steps": 2})
    run = seqlab.train(settings, out=tmp_path / "run")
    assert len(run.task.split(run.recipe.data, "train", training=True)) == 306


def test_drawn_sources_depend_on_the_seed_and_on_no_neighbour(reverser, tmp_path):
    lines = [row["source"] for row in reversals(40)] + ["seven eight " * 4] * 8
    (tmp_path / "mono.txt").write_text("\n".join(lines) + "\n")

    def drawn(seed, rows):
        settings = {"choose": reverser.choose(seed, temperature=1.5), "batch_size": rows}
        out = tmp_path / "drawn.jsonl"
        out.unlink(missing_ok=True)
        seqlab.back_translate(reverser, str(tmp_path / "mono.txt"), out, **settings)
        return out.read_text()

    assert drawn(1, 1) == drawn(1, 32)
    assert drawn(1, 32) != drawn(2, 32)
    same_line = {json.loads(line)["source"] for line in drawn(1, 32).splitlines()[-8:]}
    assert len(same_line) > 1  # of equal lines, each has a draw of its own


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"source": "en", "target": "de"}, ["de\ten", "two one\tone two"]),
        ({"source": 1, "target": 0}, ["two one\tone two"]),
        ({"source": 0, "target": 1}, ["one two\ttwo one"]),
        ({"source": -2, "target": -1}, ["one two\ttwo one"]),
        ({"source": 2, "target": 0}, ["two one\t\tone two"]),
    ],
)
def test_columns_are_those_of_the_run(reverser, tmp_path, columns, expected):
    """A recipe that reads its own pairs the other way round reads these too."""
    (tmp_path / "mono.txt").write_text("one two\n")
    run = reverser.changed({"data.columns": columns})
    out = tmp_path / "synthetic.tsv"
    seqlab.back_translate(run, str(tmp_path / "mono.txt"), out)
    assert out.read_text().splitlines() == expected
    other = {"source": columns["target"], "target": columns["source"]}
    data = Recipe.load("translation/transformer").data.model_copy(update={"valid": str(out), "columns": other})
    (record,) = read(data, "valid", ["source", "target"])
    assert record.fields == {"source": "two one", "target": "one two"}


def test_pairs_that_are_there_are_not_written_over(reverser, mono, tmp_path):
    (tmp_path / "pairs.tsv").write_text("precious")
    with pytest.raises(seqlab.SeqlabError, match="already exists"):
        seqlab.back_translate(reverser, str(mono), tmp_path / "pairs.tsv")
    assert (tmp_path / "pairs.tsv").read_text() == "precious"


def test_what_fails_leaves_nothing_behind(reverser, mono, tmp_path, monkeypatch):
    def stop(*arguments):
        yield {"text": "eno", "answer": "one"}
        raise KeyboardInterrupt

    monkeypatch.setattr(type(reverser), "answers", stop)
    with pytest.raises(KeyboardInterrupt):
        seqlab.back_translate(reverser, str(mono), tmp_path / "synthetic.tsv")
    assert [path.name for path in tmp_path.iterdir()] == ["mono.txt"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mono.txt", "--out", "pairs.txt"], "must end in .tsv or .jsonl"),
        (["mono.txt", "--out", "no/pairs.tsv"], "No such file"),
        (["pairs.csv", "--out", "pairs.tsv"], "is not plain text"),
        (["python-docs", "--out", "pairs.tsv"], "'python-docs' is not a file"),
        (["empty.txt", "--out", "pairs.tsv"], "no line was answered"),
        (["mono.txt", "--out", "pairs.tsv", "--beam", 2, "--temperature", 1], "leave one of them out"),
        (["mono.txt", "--out", "pairs.tsv", "--temperature", "nan"], "not a finite number"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(reverser, mono, monkeypatch, arguments, says):
    monkeypatch.chdir(mono.parent)
    (mono.parent / "pairs.csv").write_text("a,b\n")
    (mono.parent / "empty.txt").write_text("\n\n")
    found = run_command("back-translate", reverser.folder, *arguments)
    assert says in f"{found.exception} {found.output}"
    assert not list(mono.parent.glob("*.tsv"))
    assert not list(mono.parent.glob(".draft*"))


def test_a_run_that_reads_no_text_is_refused(tmp_path, mono):
    rows = [{"sizes": f"{n % 7}", "target": "one"} for n in range(60)]
    run = seqlab.train(recipe(tmp_path, rows, {"sizes": "numbers"}), out=tmp_path / "run")
    with pytest.raises(SeqlabError, match="does not translate a single text into another"):
        seqlab.back_translate(run, str(mono), tmp_path / "pairs.tsv")
