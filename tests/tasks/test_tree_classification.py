"""Trees with labels: from lines in brackets to answers."""

import json

import pytest
from tolerance import SMALL_NET, rounding

import seqlab
from seqlab.data.builtin.phrases import phrases
from seqlab.errors import DataError, RecipeError
from seqlab.recipe import Recipe
from seqlab.registry import find
from seqlab.runs.launch import train
from seqlab.training.trainer import Silence


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder, lines = tmp_path_factory.mktemp("trees"), [text for text in phrases() if text.count("(") < 16][:1560]
    (folder / "train.txt").write_text("\n".join(lines[:1500]) + "\n", encoding="utf-8")
    (folder / "valid.txt").write_text("\n\n".join(lines[1500:]) + "\n", encoding="utf-8")
    return folder


def recipe(folder, **changes):
    sections = {
        "task": {"kind": "tree-classification"},
        "data": {key: str(folder / f"{key}.txt") for key in ("train", "valid")},
        "tokenizer": {"kind": "word", "split": "whitespace"},
        "model": {"kind": "tree-encoder", "width": 24},
        "objective": "node-classes",
        "training": {"steps": 250, "batch_size": 16, "learning_rate": 0.02, "evaluate_every": 125},
    }
    return Recipe.from_dict({key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value
                             for key, value in sections.items()})  # fmt: skip


@pytest.fixture(scope="module", params=["tree-lstm", "recursive"])
def run(request, data, tmp_path_factory):
    return train(recipe(data, model={"cell": request.param}), out=tmp_path_factory.mktemp("runs") / "run")


def test_it_learns(run):
    found = run.evaluate()
    # without gates it takes longer to learn what `not` and `very` do
    least = 0.9 if run.recipe.model.cell == "tree-lstm" else 0.55
    assert found["accuracy"] > least
    assert found["binary_accuracy"] > least
    assert found["nodes_accuracy"] > 0.8
    assert found["examples"] == 60
    other = run.evaluate(batch_size=7)
    assert {key: other[key] for key in other if key != "loss"} == {key: found[key] for key in found if key != "loss"}
    assert other["loss"] == pytest.approx(found["loss"], abs=rounding(SMALL_NET, 20))


def test_answers_with_a_label_for_every_phrase(run, tmp_path):
    path = tmp_path / "asked.txt"
    path.write_text("(? (? not) (? (? the) (? good)))\n(? superb)\n(? (? zebra) (? bad))\n", encoding="utf-8")
    phrase, word, unknown = run.predict(str(path))
    assert (phrase["text"], phrase["answer"]) == ("(? (? not) (? (? the) (? good)))", "1")
    assert phrase["tree"] == "(1 (2 not) (3 (2 the) (3 good)))"
    assert word["tree"] == "(4 superb)"
    assert unknown["text"] == "(? (? zebra) (? bad))"
    assert "zebra" in unknown["tree"]
    assert [one["unknown"] for one in (phrase, word, unknown)] == [0, 0, 1]
    assert sum(phrase["probabilities"].values()) == pytest.approx(1, abs=rounding(16))
    assert phrase["probability"] == max(phrase["probabilities"].values())
    json.dumps(phrase)


def test_a_loaded_run_is_the_same(run):
    again = seqlab.load(run.folder)
    assert again.evaluate() == run.evaluate()
    assert again.task.labels == list("01234")


def test_an_interrupted_run_ends_with_the_same_bits(data, tmp_path):
    class Plug(Silence):
        def stepped(self, step, steps, figures):
            if step == 7:
                raise ConnectionError("the plug was pulled")

    regular = {"steps": 12, "evaluate_every": 6, "checkpoint_every": 4, "accumulate": 2}
    own = recipe(data, training=regular, task={"dropout": 0.2}, model={"dropout": 0.1})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(own, out=whole)
    with pytest.raises(ConnectionError):
        train(own, out=broken, watcher=Plug())
    train(own, out=broken, resume=True)
    assert (whole / "log.jsonl").read_text() == (broken / "log.jsonl").read_text()
    manifests = [one / "checkpoints/step-00000012/MANIFEST.json" for one in (whole, broken)]
    assert manifests[0].read_text() == manifests[1].read_text()


@pytest.mark.parametrize(
    ("line", "what", "place"),
    [
        ("(3 (2 the) (3 good)", "never closed", ", line 2, column 1"),
        ("(3 (2 the) (3 good) (3 x))", "binary", ", line 2, column 21"),
        ("(7 (2 the) (3 good))", "the label '7' is not in the training data", ", line 2"),
    ],
)
def test_faults_have_a_place(data, tmp_path, line, what, place):
    path = tmp_path / "valid.txt"
    path.write_text(f"(3 good)\n{line}\n", encoding="utf-8")
    own = recipe(data)
    task = find("task", "tree-classification").prepare(own)
    with pytest.raises(DataError, match=what) as fault:
        task.split(own.data.model_copy(update={"valid": str(path)}), "valid", training=False)
    assert fault.value.where == f"{path}{place}"


def test_labels_of_other_names_have_no_two_sides():
    task = find("task", "tree-classification")
    tokenizer = find("tokenizer", "word")(["x"], "whitespace", False)
    totals = {
        "sum": 1.0,
        "count": 4.0,
        "right": 1.0,
        "roots": 2.0,
        "nodes_right": 3.0,
        "polar": 2.0,
        "polar_right": 1.0,
    }
    for labels, sides in ((["0", "1", "2"], True), (["N", "P", "V"], False)):
        metrics = task(task.Settings(), tokenizer, labels).metrics(totals, None)
        assert ("binary_accuracy" in metrics) == sides
        assert (metrics["accuracy"], metrics["nodes_accuracy"], metrics["loss"]) == (0.5, 0.75, 0.25)


def test_leaves_are_whole_words(data, tmp_path):
    for tokenizer in ({"kind": "word", "split": "punctuation"},):
        with pytest.raises(RecipeError, match="whole words"):
            train(recipe(data, tokenizer=tokenizer), out=tmp_path / "run")
    with pytest.raises(RecipeError, match="whole words"):
        train(recipe(data).changed({"tokenizer": {"kind": "character"}}), out=tmp_path / "run")


def test_sequences_are_not_trees(data, tmp_path):
    with pytest.raises(RecipeError, match="needs vocab_size, but task 'tree-classification' provides leaf_vocab_size"):
        train(recipe(data).changed({"model": {"kind": "recurrent-encoder"}}), out=tmp_path / "run")
