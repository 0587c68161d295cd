"""What became of each example: as many as there are, in their order, and adding up to the figures of an evaluation."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from answering_tasks import TASKS
from click.testing import CliRunner
from PIL import Image
from tolerance import SMALL_NET, rounding

import seqlab
from seqlab.cli import group
from seqlab.data.randomness import Key
from seqlab.inspection.error_report import calibration, report
from seqlab.nn.crf import CRF
from seqlab.objectives.tags import EachAlone
from seqlab.recipe import Recipe

KEYS = {
    "classes": {"confusion", "confusions", "labels", "ece", "calibration", "confidently_wrong", "surprising"},
    "several classes": {"labels", "ece", "calibration", "confidently_wrong", "surprising"},
    "tags": {"confusion", "labels", "types", "ece", "calibration", "most_errors", "surprising", "words_wrong"},
    "texts": {"mean_chrf", "histogram", "worst", "surprising"},
    "forecasts": {"columns", "histogram", "largest"},
}


@pytest.mark.parametrize("name", TASKS)
def test_there_is_one_for_each_example_in_its_place(name, trained):
    run = seqlab.load(trained(name))
    split = run.held_out()
    found = list(run.outcomes(batch_size=5))
    assert [one.record for one in found] == list(split.records())
    assert len(found) == len(split)


@pytest.mark.parametrize("name", TASKS)
def test_losses_add_up_to_that_of_an_evaluation(name, trained):
    run = seqlab.load(trained(name))
    figures, found = run.evaluate(), list(run.outcomes(batch_size=3))
    total = sum(one.loss for one in found)
    if name == "forecasts":
        assert total / figures["numbers"] == pytest.approx(figures["mse"], rel=rounding(SMALL_NET))
        return
    if name == "trees":  # whose loss is that of all nodes, and here are roots
        return
    count = figures.get("examples") or figures.get("words") or figures["tokens"]
    assert total / count == pytest.approx(figures["loss"], rel=rounding(SMALL_NET))


@pytest.mark.parametrize("name", TASKS)
def test_the_report_agrees_with_the_evaluation(name, trained):
    run = seqlab.load(trained(name))
    figures, found = run.evaluate(), report(run.outcomes(), worst=3)
    assert KEYS[found["kind"]] <= set(found)
    json.dumps(found)
    match found["kind"]:
        case "classes":
            assert found["wrong"] / found["examples"] == pytest.approx(figures["error"])
            assert np.trace(found["confusion"]["counts"]) == found["examples"] - found["wrong"]
        case "several classes":
            assert found["wrong"] / found["examples"] == pytest.approx(1 - figures["exact"])
        case "tags":
            assert found["wrong"] / found["words"] == pytest.approx(1 - figures["accuracy"])
            right, given, chosen = (sum(row[key] for row in found["types"]) for key in ("right", "given", "found"))
            assert 2 * right / (given + chosen) == pytest.approx(figures["f1"])
        case "texts":
            assert 100 * found["exact"] / found["examples"] == pytest.approx(figures["exact"])
        case "forecasts":
            assert np.mean([row["rmse"] ** 2 for row in found["columns"]]) == pytest.approx(
                figures["mse"], rel=rounding(SMALL_NET)
            )
    for rows in found.values():
        if isinstance(rows, list) and rows and "file" in rows[0]:
            assert len(rows) <= 3


@pytest.mark.parametrize("name", TASKS)
def test_table_picture_and_json(name, trained, tmp_path):
    folder = str(trained(name))
    shown = CliRunner().invoke(group, ["evaluate", folder, "--errors", "--out", str(tmp_path / "errors.png")])
    assert shown.exit_code == 0, shown.output
    assert "signature:" in shown.stdout
    assert "drawn:" in shown.stdout
    with Image.open(tmp_path / "errors.png") as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
    told = CliRunner().invoke(group, ["evaluate", folder, "--errors", "--json", "--worst", "2"])
    assert KEYS[json.loads(told.stdout)["errors"]["kind"]] <= set(json.loads(told.stdout)["errors"])


# ---------------------------------------------------------------------- by hand


def test_calibration_by_hand():
    """A bin of four that is 0.75 sure and half right, and one of one that is sure and right."""
    found = calibration([0.7, 0.8, 0.72, 0.78, 1.0], [True, False, False, True, True])
    assert [(one["from"], one["to"], one["count"]) for one in found["calibration"]] == [
        (0.7, 0.8, 3),
        (0.8, 0.9, 1),
        (0.9, 1.0, 1),
    ]
    assert found["ece"] == pytest.approx(3 / 5 * abs(2 / 3 - 2.2 / 3) + 1 / 5 * 0.8 + 0)


@pytest.mark.parametrize("crf", [False, True])
def test_probabilities_of_tags_are_marginals(crf, trained):
    """Against the sum over all sequences of tags, in double precision."""
    run = seqlab.load(trained("tags of a CRF" if crf else "tags"))
    objective, count = run.objective.double(), len(run.task.known.tags)
    sentence = objective.head.sentence
    assert isinstance(sentence, CRF if crf else EachAlone)
    if crf:
        with torch.no_grad():
            sentence.transitions.normal_(generator=torch.Generator().manual_seed(0))
    batch = run.held_out().batch(np.array([0]), Key(0, 0))
    found = objective.examined(batch)
    (states, mask, _), length = objective.body(batch), int(batch["mask"].sum())
    scores = objective.head.scores(states)
    marginals = torch.zeros(length, count, dtype=torch.float64)
    for tags in itertools.product(range(count), repeat=length):
        p = torch.exp(-sentence.losses(scores, torch.tensor([tags]), mask)[0])
        marginals[torch.arange(length), list(tags)] += p.detach()
    assert marginals.sum(1).tolist() == pytest.approx([1.0] * length)
    expected = marginals[torch.arange(length), found.found[0, :length]]
    assert found.probabilities[0, :length].tolist() == pytest.approx(expected.tolist(), abs=1e-9)


def test_the_worst_classes_are_those_of_their_lines(trained, tmp_path):
    run = seqlab.load(trained("classes"))
    lines = [{"text": f"word {n}", "label": ("fruit", "tool")[n % 2]} for n in range(7)]
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    found = report(run.outcomes(str(path)), worst=2)
    answers = list(run.predict(str(path)))
    losses = [-math.log(one["probabilities"][line["label"]]) for one, line in zip(answers, lines, strict=True)]
    worst = max(range(7), key=lambda n: losses[n])
    assert (found["surprising"][0]["line"], found["surprising"][0]["file"]) == (worst + 1, str(path))
    assert found["surprising"][0]["loss"] == pytest.approx(losses[worst], rel=1e-4)
    assert found["surprising"][0]["text"] == lines[worst]["text"]


def test_sentences_are_judged_as_sacrebleu_does(trained):
    from sacrebleu import sentence_chrf

    found = report(seqlab.load(trained("translation")).outcomes(), worst=30)
    for row in found["worst"]:
        assert row["chrf"] == pytest.approx(sentence_chrf(row["answer"], [row["reference"]]).score)
    scores = [row["chrf"] for row in found["worst"]]
    assert scores == sorted(scores)


def test_the_place_of_a_residual_is_its_step(tmp_path):
    """The numbers that stand there: the truth of each of the largest."""
    values = [math.sin(n) + 5 * (n == 170) for n in range(200)]
    (tmp_path / "a.txt").write_text("".join(f"{value:.6f}\n" for value in values), encoding="utf-8")
    task = {"kind": "forecasting", "window": 5, "horizon": 3}
    data, training = {"train": str(tmp_path / "a.txt")}, {"steps": 5}
    made = {"task": task, "data": data, "model": "series-dense", "objective": "forecast", "training": training}
    run = seqlab.train(Recipe.from_dict(made), out=tmp_path / "run")
    largest = report(run.outcomes(), worst=8)["largest"]
    assert largest[0]["step"] == 171
    assert len({row["step"] for row in largest}) == 8
    for row in largest:
        assert row["truth"] == pytest.approx(values[row["step"] - 1], abs=1e-4)
        assert row["residual"] == pytest.approx(row["truth"] - row["forecast"])


TEXT = ["the cat sat on the mat.", "", "the dog — who else? — ran away", "a cat", "", "the cat sat on a zebra"]


@pytest.mark.filterwarnings("ignore::seqlab.errors.Caution")
@pytest.mark.parametrize("documents", ["file", "line"])
@pytest.mark.parametrize("tokenizer", ["character", "byte", "word", "bpe"])
@pytest.mark.parametrize("model", ["lm/ngram", "lm/lstm", "lm/gpt"])
def test_lines_of_a_text_add_up_and_have_their_numbers(model, tokenizer, documents, tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(TEXT[:5] * 20) + "\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    keys = {"data.train": str(tmp_path / "train.txt"), "data.valid": str(tmp_path / "valid.txt")}
    small = {"tokenizer": {"kind": tokenizer, **({"vocab_size": 270} if tokenizer == "bpe" else {})}}
    if model != "lm/ngram":
        small |= {"model.width": 8, "training.steps": 2, "training.batch_size": 2, "task.window": 16}
    if model == "lm/gpt":
        small |= {"model.depth": 1, "model.heads": 2, "model.context": 16}
    recipe = Recipe.load(model).changed({**keys, **small, "data.documents": documents})
    run = seqlab.train(recipe, out=tmp_path / "run")
    figures, found = run.evaluate(), list(run.outcomes())
    assert sum(len(one.losses) for one in found) == figures["tokens"]
    assert sum(one.loss for one in found) / figures["tokens"] == pytest.approx(figures["loss"], rel=rounding(SMALL_NET))
    for one in found:
        assert one.text == [*TEXT, ""][one.record.line - 1]
        for token, start in zip(one.tokens, one.starts, strict=True):
            assert token == "<end>" or f"{one.text}\n"[start : start + len(token)] == token
    text = report(found, worst=2)
    assert text["bits_per_token"] == pytest.approx(figures["loss"] / math.log(2), rel=rounding(SMALL_NET))
    assert sum(text["histogram"]["tokens"]) == figures["tokens"]
    if tokenizer == "word":
        shown = CliRunner().invoke(group, ["evaluate", str(run.folder), "--errors", "--worst", "3"])
        assert shown.exit_code == 0, shown.output
        assert "most surprising tokens" in shown.stdout
        assert (run.folder / "errors.png").stat().st_size > 1000


def test_out_needs_errors(trained, tmp_path):
    told = CliRunner().invoke(group, ["evaluate", str(trained("classes")), "--out", str(tmp_path / "a.png")])
    assert "--out names the picture of --errors" in told.output
    told = CliRunner().invoke(group, ["evaluate", str(trained("classes")), "--errors", "--out", "a.xyz"])
    assert "not a picture file" in told.output
