"""Texts with labels: from files to answers."""

import csv
import json
import random

import numpy as np
import pytest
import torch
import yaml
from click.testing import CliRunner
from tolerance import SMALL_NET, close, rounding

import seqlab
from seqlab.cli import group
from seqlab.data.randomness import Key
from seqlab.data.records import Record
from seqlab.errors import DataError, RecipeError
from seqlab.recipe import Recipe
from seqlab.registry import find
from seqlab.runs.launch import train
from seqlab.training.trainer import Silence

WORDS = {"fruit": ["apple", "pear", "plum", "fig"], "tool": ["saw", "drill", "file", "axe"]}
FILLER = ["the", "a", "this", "red", "old"]


def example(rng):
    """What kind of thing is named first? A second one may follow."""
    first, second = rng.sample(sorted(WORDS), 2)
    words = [*rng.choices(FILLER, k=rng.randint(0, 4)), rng.choice(WORDS[first]), *rng.choices(FILLER, k=2)]
    both = rng.random() < 0.5
    words += [rng.choice(WORDS[second])] * both
    return " ".join(words), first, sorted([first, second][: 1 + both])


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(3)
    for split, count in (("train", 600), ("valid", 120)):
        rows = [example(rng) for _ in range(count)]
        write(folder / f"{split}.csv", [("text", "label"), *((text, one) for text, one, _ in rows)])
        write(folder / f"{split}-several.tsv", [("text", "label"), *((t, "; ".join(many)) for t, _, many in rows)])
    return folder


def recipe(folder, name="", suffix="csv", **changes):
    sections = {
        "task": {"kind": "classification", "summary": "last"},
        "data": {key: str(folder / f"{key}{name}.{suffix}") for key in ("train", "valid")},
        "tokenizer": {"kind": "word"},
        "model": {"kind": "recurrent-encoder", "cell": "gru", "width": 12, "dropout": 0.1},
        "objective": "classes",
        "training": {"steps": 80, "batch_size": 24, "learning_rate": 0.02, "evaluate_every": 40},
    }
    for key, value in changes.items():
        sections[key] = {**sections[key], **value} if isinstance(value, dict) else value
    return Recipe.from_dict(sections)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return train(recipe(data), out=tmp_path_factory.mktemp("runs") / "one")


def test_it_learns(run):
    found = run.evaluate()
    assert found["accuracy"] > 0.97
    assert found["error"] == pytest.approx(1 - found["accuracy"])
    assert found["macro_f1"] == pytest.approx(found["accuracy"], abs=0.02)
    assert found["examples"] == 120
    assert run.evaluate(batch_size=7)["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("summary", ["max", "mean", "attention"])
def test_other_summaries(data, tmp_path, summary):
    short = {"steps": 3, "evaluate_every": 3}
    made = train(recipe(data, task={"summary": summary}, training=short), out=tmp_path / "run")
    assert made.evaluate()["loss"] < 1
    names = {name for name in made.objective.state_dict() if name.startswith("head.")}
    assert ("head.summary.query.weight" in names) == (summary == "attention")


def test_answers(run, tmp_path):
    path = tmp_path / "asked.csv"
    write(path, [("text",), ("a red plum the saw",), ("the drill a red",), ("",)])
    plum, drill, nothing = run.predict(str(path))
    assert (plum["answer"], plum["text"]) == ("fruit", "a red plum the saw")
    assert drill["answer"] == "tool"
    assert nothing["answer"] in WORDS
    assert plum["probability"] == plum["probabilities"]["fruit"] > 0.5
    assert sum(plum["probabilities"].values()) == pytest.approx(1, abs=rounding(16))
    json.dumps(plum)


def test_a_column_of_another_name_can_be_named(run, tmp_path):
    path = tmp_path / "asked.csv"
    write(path, [("body",), ("a red plum the saw",), ("the drill a red",)])
    said = CliRunner().invoke(group, ["predict", str(run.folder), str(path), "data.columns.text=body"])
    assert said.exit_code == 0, said.output
    assert [line.split("\t")[0] for line in said.output.splitlines()] == ["fruit", "tool"]


def test_answers_do_not_depend_on_neighbours(run, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("plum\nthe old saw\na red axe this this plum\n", encoding="utf-8")
    together, alone = (list(run.predict(str(path), lines=True, batch_size=size)) for size in (3, 1))
    for one, other in zip(together, alone, strict=True):
        assert one["probability"] == pytest.approx(other["probability"], rel=rounding(SMALL_NET, 10))


def test_a_plain_file_is_one_text(run, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("plum\n" + "the old red\n" * 100_000, encoding="utf-8")  # read in more than one piece
    assert len(list(run.predict(str(path)))) == 1


def test_a_loaded_run_is_the_same(run):
    again = seqlab.load(run.folder)
    assert again.evaluate() == run.evaluate()
    assert again.task.labels == ["fruit", "tool"]
    assert yaml.safe_load((run.folder / "model.yaml").read_text())["memory"] == {"labels": ["fruit", "tool"]}


def test_an_interrupted_run_ends_with_the_same_bits(data, tmp_path):
    class Plug(Silence):
        def stepped(self, step, steps, figures):
            if step == 12:
                raise ConnectionError("the plug was pulled")

    own = recipe(data, training={"steps": 20, "evaluate_every": 10, "checkpoint_every": 5})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(own, out=whole)
    with pytest.raises(ConnectionError):
        train(own, out=broken, watcher=Plug())
    train(own, out=broken, resume=True)
    assert (whole / "log.jsonl").read_text() == (broken / "log.jsonl").read_text()
    manifests = [one / "checkpoints/step-00000020/MANIFEST.json" for one in (whole, broken)]
    assert manifests[0].read_text() == manifests[1].read_text()


def test_several_labels(data, tmp_path):
    own = recipe(data, "-several", "tsv", task={"labels": "several", "separator": ";", "summary": "max"})
    made = train(own, out=tmp_path / "run")
    found = made.evaluate()
    assert found["micro_f1"] > 0.97
    assert found["exact"] > 0.95
    assert found["error"] == pytest.approx(1 - found["micro_f1"])
    path = tmp_path / "lines.txt"
    path.write_text("the plum a saw\na fig\n", encoding="utf-8")
    both, one = made.predict(str(path), lines=True)
    assert (both["answer"], both["labels"]) == ("fruit; tool", ["fruit", "tool"])
    assert one["labels"] == ["fruit"]
    assert sum(both["probabilities"].values()) > 1.5


# -------------------------------------------------------------------- figures, by hand


@pytest.mark.parametrize("labels", ["one", "several"])
def test_metrics_by_hand(labels):
    task = find("task", "classification")
    one = task(task.Settings(kind="classification", labels=labels), None, ["a", "b", "c", "never"])
    given, found, hit = [5, 3, 2, 0], [6, 4, 0, 0], [4, 3, 0, 0]
    sums = {"given": given, "found": found, "hit": hit}
    parts = {f"{name}.{n}": float(value) for name, of in sums.items() for n, value in enumerate(of)}
    metrics = one.metrics({"sum": 5.0, "count": 10.0, "right": 7.0, **parts}, None)
    assert metrics["loss"] == 0.5
    assert metrics["macro_f1"] == pytest.approx((8 / 11 + 6 / 7 + 0) / 3)  # what never occurs is left out
    if labels == "one":
        assert metrics["accuracy"] == 0.7
        assert metrics["error"] == pytest.approx(0.3)
    else:
        assert metrics["exact"] == 0.7
        assert metrics["micro_f1"] == pytest.approx(14 / 20)


# -------------------------------------------------------------------- data of all kinds, and faults


def prepared(folder, **changes):
    own = recipe(folder, **changes)
    task = find("task", "classification").prepare(own)
    return task, task.split(own.data, "valid", training=False)


def test_formats_and_columns(data, tmp_path):
    """The same rows from all of them, under other names, with numbers for labels."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    with (data / "valid.csv").open(encoding="utf-8") as file:
        rows = [{"body": row["text"], "class": int(row["label"] == "tool")} for row in csv.DictReader(file)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write(tmp_path / "a.tsv", [("body", "class"), *((row["body"], row["class"]) for row in rows)])
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    expected = [row["class"] for row in rows]
    for suffix in ("jsonl", "tsv", "parquet"):
        path = str(tmp_path / f"a.{suffix}")
        own = {"train": path, "valid": None, "columns": {"text": "body", "label": "class"}}
        task, _ = prepared(data, data=own)
        whole = task.split(recipe(data, data={**own, "valid": path}).data, "valid", training=False)
        assert task.labels == ["0", "1"]
        assert whole.labels.tolist() == expected


def test_texts_are_closed_and_cut(data):
    task, split = prepared(data, task={"longest": 3})
    assert all(text[-1] == task.tokenizer.end_id for text in split.texts)
    assert max(map(len, split.texts)) == 4


def test_pairs_are_joined_by_the_template(data, tmp_path):
    """Premise and hypothesis: both are learnt from and read, and answered from a table without labels."""
    rows = [("text", "second", "label"), ("the red apple", "an apple", "yes"), ("a saw", "the old fig tree", "no")]
    paths = {which: str(write(tmp_path / f"{which}.tsv", rows)) for which in ("train", "valid")}
    tokenizer = {"kind": "word", "special": ["class", "separator"]}
    task, split = prepared(data, task={"texts": "two"}, data=paths, tokenizer=tokenizer)
    own, ids = (
        task.tokenizer.special,
        task.tokenizer.encode_batch(["the red apple", "an apple", "a saw", "the old fig"]),
    )
    assert task.tokenizer.unknown_id not in ids[1]
    batch = split.batch(np.array([0, 1]), Key(0, 0))
    joined = [own["class"], *ids[0], own["separator"], *ids[1], own["separator"]]
    assert batch["tokens"][0, : len(joined)].tolist() == joined
    assert batch["segments"][0, : len(joined)].tolist() == [0] * 5 + [1] * 3
    assert [record.fields["second"] for record in batch.records] == ["an apple", "the old fig tree"]
    _, cut = prepared(data, task={"texts": "two", "longest": 5}, data=paths, tokenizer=tokenizer)
    assert cut.texts == [joined, [own["class"], *ids[2], own["separator"], *ids[3], own["separator"]]]
    empty = Record({"text": "", "second": ""}, "empty.tsv", 2)
    assert task._pairs([empty])[0].ids == [own["class"], own["separator"], own["separator"]]
    write(tmp_path / "asked.tsv", [row[:2] for row in rows])
    run = seqlab.train(recipe(data, task={"texts": "two"}, data=paths, tokenizer=tokenizer), out=tmp_path / "run")
    answers = list(run.predict(str(tmp_path / "asked.tsv")))
    assert [answer["text"] for answer in answers] == ["the red apple\tan apple", "a saw\tthe old fig tree"]
    assert [answer["answer"] for answer in answers] == ["yes", "no"]
    assert [outcome.text for outcome in run.outcomes()] == [answer["text"] for answer in answers]


def test_several_labels_may_be_none(data, tmp_path):
    rows = [("x", "b, a"), ("y", ""), ("z", "b,,b")]
    paths = {which: str(write(tmp_path / f"{which}.tsv", [("text", "label"), *rows])) for which in ("train", "valid")}
    task, split = prepared(data, task={"labels": "several"}, data=paths)
    assert task.labels == ["a", "b"]
    assert split.labels.tolist() == [[True, True], [False, False], [False, True]]


@pytest.mark.parametrize(
    ("rows", "which", "what", "line"),
    [
        ([("plum", "fruit"), ("oak", "tree")], "valid", "the label 'tree' is not in the training data", 3),
        ([("plum", "fruit"), ("oak", " ")], "valid", "the label is missing", 3),
        ([("plum", "fruit"), ("fig", "fruit")], "train", "only one label \\('fruit'\\)", None),
    ],
)
def test_faults_of_labels(data, tmp_path, rows, which, what, line):
    path = write(tmp_path / "own.csv", [("text", "label"), *rows])
    with pytest.raises(DataError, match=what) as fault:
        prepared(data, data={which: str(path)})
    assert fault.value.where == (f"{path}, line {line}" if line else str(path))


def test_a_column_that_is_not_there(data, tmp_path):
    path = write(tmp_path / "own.csv", [("text", "labels"), ("plum", "fruit")])
    with pytest.raises(DataError, match=r"no column 'label'.*data.columns.label"):
        prepared(data, data={"valid": str(path)})


def test_plain_text_has_no_labels(data, tmp_path):
    path = tmp_path / "plain.txt"
    path.write_text("plum\n", encoding="utf-8")
    with pytest.raises(DataError, match="does not provide text and label"):
        prepared(data, data={"valid": str(path)})


def test_parts_that_do_not_fit(data, tmp_path):
    gpt = find("model", "gpt").Settings(kind="gpt", width=16, heads=2)
    faults = {
        "does not read a text as a whole": recipe(data).model_copy(update={"model": gpt}),
        "'node-classes' is not an objective for task 'classification'": recipe(data, objective="node-classes"),
        "needs leaf_vocab_size": recipe(data).changed({"model": {"kind": "tree-encoder"}}),
    }
    for what, own in faults.items():
        with pytest.raises(RecipeError, match=what):
            train(own, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()


# -------------------------------------------------------------------- word vectors


def test_embeddings_start_from_word_vectors(data, tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("plum 1 2 3\nzebra 0 0 0\nsaw 4 5 6\n", encoding="utf-8")
    said = []

    class Listener(Silence):
        def said(self, message):
            said.append(message)

    quiet = {"steps": 1, "learning_rate": 1e-12, "evaluate_every": 1}
    own = recipe(data, model={"embedding": 3, "vectors": str(vectors)}, training=quiet)
    made = train(own, out=tmp_path / "run", watcher=Listener())
    weight, ids = made.objective.body.embedding.weight, made.tokenizer.ids
    close(weight[ids["plum"]], torch.tensor([1.0, 2, 3]), steps=1)
    close(weight[ids["saw"]], torch.tensor([4.0, 5, 6]), steps=1)
    plain = train(recipe(data, model={"embedding": 3}, training=quiet), out=tmp_path / "plain")
    others = [index for word, index in ids.items() if word not in ("plum", "saw")]
    close(weight[others], plain.objective.body.embedding.weight[others], steps=1)
    assert any(f"3 vectors: 2 of {len(ids)} words" in message for message in said)
    vectors.unlink()  # a run that is trained does not need them
    assert seqlab.load(tmp_path / "run").evaluate() == made.evaluate()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model": {"vectors": "{}", "embedding": 5}}, "vectors of 3 numbers, but the embeddings have 5"),
        ({"model": {"vectors": "{}", "embedding": 3}, "tokenizer": "character"}, "use tokenizer.kind=word"),
    ],
)
def test_word_vectors_that_do_not_fit(data, tmp_path, changes, what):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("plum 1 2 3\n", encoding="utf-8")
    changes["model"] = {**changes["model"], "vectors": str(vectors)}
    with pytest.raises(seqlab.SeqlabError, match=what):
        train(recipe(data, **changes), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
