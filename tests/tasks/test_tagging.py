"""The task as a whole: reading, training, evaluating, answering."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tolerance import SMALL_NET, rounding

import seqlab
from seqlab.cli.predict import predict
from seqlab.data.randomness import Key, mix
from seqlab.errors import SeqlabError
from seqlab.objectives.spans import spans
from seqlab.recipe import Recipe
from seqlab.runs.launch import create_run
from seqlab.runs.run import load, restored_task
from seqlab.tasks.tagging import Tagging
from seqlab.training.trainer import Silence

FIRST = ["Ann", "Bob", "Eve", "Zoé"]
LAST = ["Li", "Smith", "Ng"]
PLACES = ["Rome", "Bern", "Oslo"]
REST = ["saw", "the", "lake", "near", "old", ","]


def sentence(number):
    """Words with names and places among them, in BIO."""
    words = []
    for place in range(3 + mix(number, 0) % 4):
        pick, which = mix(number, place, 1) % 10, mix(number, place, 2)
        if pick < 3:
            words += [(FIRST[which % 4], "B-PER"), (LAST[which % 3], "I-PER")]
        elif pick < 5:
            words.append((PLACES[which % 3], "B-LOC"))
        else:
            words.append((REST[which % 6], "O"))
    return words


def written(first, last):
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence(number)) for number in range(first, last))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagged")
    (folder / "train.conll").write_text(written(0, 400), encoding="utf-8")
    (folder / "valid.conll").write_text(written(400, 460), encoding="utf-8")
    return folder


SMALL = {
    "model.width": 12,
    "model.embedding": 8,
    "model.dropout": 0.1,
    "training.batch_size": 16,
    "training.learning_rate": 0.02,
    "training.steps": 80,
    "training.evaluate_every": 40,
}
WITH_CRF = {
    "model.characters": {"kind": "convolutional", "width": 6, "embedding": 5},
    "objective": {"kind": "tags", "crf": True, "rules": True},
}


def recipe(data, name="lstm", **changes):
    files = {"data.train": str(data / "train.conll"), "data.valid": str(data / "valid.conll")}
    own = WITH_CRF if name == "lstm-crf" else {}
    return Recipe.load(f"tagging/{name}").changed({**files, **SMALL, **own, **changes})


@pytest.fixture(scope="module")
def train_once(data, tmp_path_factory):
    made = {}

    def train(name):
        if name not in made:
            made[name] = seqlab.train(recipe(data, name), out=tmp_path_factory.mktemp("runs") / name)
        return made[name]

    return train


@pytest.fixture(params=["lstm", "lstm-crf"])
def run(request, train_once):
    return train_once(request.param)


def test_it_learns(run):
    figures = run.evaluate()
    assert figures["f1"] > 0.95
    assert figures["error"] == 1 - figures["f1"]
    assert figures["accuracy"] > 0.95
    assert figures["signature"]["spans"] == "as conlleval counts them"


def test_figures_are_those_of_its_answers(run, data):
    """Spans of the answers against those of the file, as sets of places in it."""
    answers = list(run.predict(str(data / "valid.conll")))
    gold, found, right, words = set(), set(), 0, 0
    for number, answer in zip(range(400, 460), answers, strict=True):
        tags = [tag for _, tag in sentence(number)]
        assert answer["words"] == [word for word, _ in sentence(number)]
        assert [(one["type"], one["start"], one["stop"]) for one in answer["spans"]] == spans(answer["tags"])
        gold |= {(number, *span) for span in spans(tags)}
        found |= {(number, *span) for span in spans(answer["tags"])}
        right, words = right + sum(map(str.__eq__, tags, answer["tags"])), words + len(tags)
    figures = run.evaluate()
    assert figures["precision"] == len(gold & found) / len(found)
    assert figures["recall"] == len(gold & found) / len(gold)
    assert figures["f1"] == pytest.approx(2 * len(gold & found) / (len(gold) + len(found)), abs=1e-15)
    assert (figures["accuracy"], figures["words"]) == (right / words, words)


def test_batch_size_changes_nothing(run):
    one, other = run.evaluate(batch_size=60), run.evaluate(batch_size=1)
    assert one["loss"] == pytest.approx(other["loss"], abs=rounding(SMALL_NET, 20))
    assert {name: one[name] for name in ("f1", "accuracy")} == {name: other[name] for name in ("f1", "accuracy")}


def test_a_loaded_run_is_the_same(run):
    loaded = load(run.folder)
    assert loaded.task.memory() == run.task.memory()
    assert loaded.evaluate() == run.evaluate()
    assert loaded.task.known.scheme == "BIO"


def test_an_interrupted_run_ends_with_the_same_bits(data, tmp_path):
    class Plug(Silence):
        def stepped(self, step, steps, figures):
            if step == 15:
                raise ConnectionError("the plug was pulled")

    own = recipe(data, "lstm-crf", **{"training.steps": 24, "training.checkpoint_every": 10})
    seqlab.train(own, out=tmp_path / "whole")
    with pytest.raises(ConnectionError):
        seqlab.train(own, out=tmp_path / "broken", watcher=Plug())
    seqlab.train(own, out=tmp_path / "broken", resume=True)
    last = "checkpoints/step-00000024/MANIFEST.json"
    assert (tmp_path / "whole" / last).read_text() == (tmp_path / "broken" / last).read_text()
    assert (tmp_path / "whole/log.jsonl").read_text() == (tmp_path / "broken/log.jsonl").read_text()


# -------------------------------------------------------------------- answers


def test_lines_are_cut_at_blanks(train_once):
    folder = str(train_once("lstm").folder)
    told = CliRunner().invoke(predict, [folder], input="Ann  Li saw Rome\n\nBoris near\n").stdout.splitlines()
    assert told[0] == "Ann/B-PER Li/I-PER saw/O Rome/B-LOC"
    assert told[1] == ""
    assert told[2].startswith("Boris/")
    assert len(told) == 3
    answer = json.loads(CliRunner().invoke(predict, [folder, "--json"], input="Ann Li saw Rome\n").output)
    assert answer["words"] == ["Ann", "Li", "saw", "Rome"]
    assert answer["tags"] == ["B-PER", "I-PER", "O", "B-LOC"]
    assert answer["spans"] == [
        {"type": "PER", "start": 0, "stop": 2, "text": "Ann Li"},
        {"type": "LOC", "start": 3, "stop": 4, "text": "Rome"},
    ]


def test_files_without_tags(train_once, tmp_path):
    run = train_once("lstm")
    (tmp_path / "a.txt").write_text("Ann Li\nRome\n", encoding="utf-8")
    (tmp_path / "a.conll").write_text("Ann\nLi\n\nRome\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"text": "Ann Li"}\n{"text": "Rome"}\n', encoding="utf-8")
    for name in ("a.txt", "a.conll", "a.jsonl"):
        assert [one["answer"] for one in run.predict(str(tmp_path / name))] == ["Ann/B-PER Li/I-PER", "Rome/B-LOC"]


def test_rules_hold_in_every_answer(train_once, tmp_path):
    (tmp_path / "a.txt").write_text("Li Ann Li Li\nSmith\nsaw Ng\n", encoding="utf-8")
    for answer in train_once("lstm-crf").predict(str(tmp_path / "a.txt")):
        for before, tag in zip(["O", *answer["tags"]], answer["tags"], strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:]


@pytest.mark.parametrize("name", ["lstm", "lstm-crf"])
def test_tags_that_were_not_in_the_training_data_are_refused(train_once, tmp_path, name):
    """As labels are: without them there would be no loss, and with them left out another one."""
    (tmp_path / "a.conll").write_text("Rome B-LOC\n\nAnn B-NEW\nLi I-PER\n", encoding="utf-8")
    with pytest.raises(SeqlabError, match="the tag 'B-NEW' of 'Ann' is not in the training data") as told:
        train_once(name).evaluate(str(tmp_path / "a.conll"))
    assert told.value.where == f"{tmp_path / 'a.conll'}, line 3"
    assert "the tags are B-LOC, B-PER, I-PER, O" in told.value.hint


# -------------------------------------------------------------------- reading


def task_of(data, **changes):
    own = recipe(data, **changes)
    return Tagging.prepare(own), own.data


def test_tags_in_rows(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a b", "tags": "X Y"}\n{"text": "b", "tags": "Y"}\n')
    (tmp_path / "valid.tsv").write_text("text\ttags\na b b\tX Y Y\n")
    files = {"data.train": str(tmp_path / "train.jsonl"), "data.valid": str(tmp_path / "valid.tsv")}
    task, settings = task_of(tmp_path, **files)
    assert task.known.tags == ["X", "Y"]
    assert task.known.scheme is None
    batch = task.split(settings, "valid", training=False).batch(np.array([0]), Key(0, 0))
    assert batch["tags"].tolist() == [[0, 1, 1]]
    assert "spans" not in batch


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"text": "a b", "tags": "X"}\n', "a.jsonl, line 1: 2 words but 1 tags"),
        ("a.tsv", "text\ttags\na\tX\na b c\tX Y\n", "a.tsv, line 3: 3 words but 2 tags"),
        ("a.jsonl", '{"text": " ", "tags": ""}\n', "a.jsonl, line 1: a sentence without words"),
        ("a.txt", "a b\n", "plain text does not provide text and tags"),
    ],
)
def test_faults_name_their_place(data, tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    task, settings = task_of(data)
    with pytest.raises(SeqlabError) as error:
        task.split(settings.model_copy(update={"valid": str(tmp_path / name)}), "valid", training=False)
    assert message in str(error.value)


def test_a_token_must_be_a_word(data):
    task, settings = task_of(data, **{"tokenizer": {"kind": "character"}, "task.unknown": 0.0})
    with pytest.raises(SeqlabError, match=r"tokenizer: \d+ tokens for \d+ words .* set tokenizer.kind=word"):
        task.split(settings, "valid", training=False)


def test_only_models_that_read_a_whole_sentence(data):
    with pytest.raises(SeqlabError, match="does not read a sentence as a whole"):
        seqlab.train(recipe(data).changed({"model": "gpt"}), out=data / "none")
    assert not (data / "none").exists()


def test_words_of_which_there_is_one_become_unknown_at_times(tmp_path):
    (tmp_path / "a.conll").write_text("a X\na X\nonce Y\nb X\nb X\n", encoding="utf-8")
    task, settings = task_of(tmp_path, **{"data.train": str(tmp_path / "a.conll"), "data.valid": []})
    split = task.split(settings, "train", training=True)
    read = [split.batch(np.array([0]), Key(0, epoch)) for epoch in range(40)]
    hidden = [(batch["tokens"] == task.tokenizer.unknown_id).tolist()[0] for batch in read]
    assert {tuple(row) for row in hidden} == {(False,) * 5, (False, False, True, False, False)}
    again = [split.batch(np.array([0]), Key(0, epoch)) for epoch in range(40)]
    assert all(torch.equal(one["tokens"], other["tokens"]) for one, other in zip(read, again, strict=True))
    assert all(torch.equal(batch["spellings"], read[0]["spellings"]) for batch in read)  # still spelt as it is


def test_words_are_spelt_once_in_a_batch(data):
    task, settings = task_of(data, **{"tokenizer.lowercase": True})
    split = task.split(settings, "valid", training=False)
    batch = split.batch(np.arange(20), Key(0, 0))
    words = [word for number in range(400, 420) for word, _ in sentence(number)]
    assert len(batch["spellings"]) == len(set(words))
    spelt = batch["spellings"][batch["spelt"][batch["mask"]]]
    for word, row in zip(words, spelt.tolist(), strict=True):
        assert [number for number in row if number] == task.known.alphabet.spell(word)


def test_what_is_remembered_can_be_written_down(tmp_path):
    odd = "é\x7f\ufeff\u200d💧\x01'\"#"
    (tmp_path / "a.conll").write_text(f"{odd} yes\n{odd} 1\nno no\n\nx null\n", encoding="utf-8")
    own = recipe(tmp_path, **{"data.train": str(tmp_path / "a.conll"), "data.valid": []})
    task = Tagging.prepare(own)
    create_run(tmp_path / "run", own, task)
    assert restored_task(tmp_path / "run", own).memory() == task.memory()
    assert set(odd) <= set(task.memory()["alphabet"])
