"""Translation and its kin: what a source is made of, what is written for it, and how that is judged."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from small_translations import WORDS, recipe, reversals, run_command, write_pairs
from tolerance import SMALL_NET, rounding

import seqlab
from seqlab.cli import group
from seqlab.data.randomness import Key
from seqlab.errors import Caution, RecipeError, SeqlabError
from seqlab.inspection.error_report import report
from seqlab.runs.preparation import prepare
from seqlab.training.trainer import Silence


def test_it_learns_and_is_judged_by_what_it_writes(reverser):
    figures = reverser.evaluate()
    assert figures["exact"] >= 99
    assert figures["bleu"] > 99
    assert "nrefs:1" in figures["signature"]["bleu"]
    assert set(reverser.evaluate(metrics=["wer"])) >= {"loss", "wer"}


def test_short_and_long_sources_are_judged_apart(reverser):
    lengths = [len(row["source"]) for row in reversals()[:40]]
    assert reverser.task.source_lengths(reverser.held_out()) == lengths
    found = reverser.evaluate(metrics=["exact"], lengths=True)
    bins = found["by_length"]
    assert (bins[0]["shortest"], bins[-1]["longest"]) == (min(lengths), max(lengths))
    assert sum(one["lines"] * one["figures"]["exact"] for one in bins) == pytest.approx(40 * found["exact"])
    said = run_command("evaluate", reverser.folder, "--by-length")
    assert f"{bins[0]['shortest']}–{bins[0]['longest']}" in said.stdout


def test_without_metrics_nothing_is_judged_by_length(tmp_path):
    settings = recipe(tmp_path, reversals(), model={"kind": "recurrent-translator", "width": 4})
    seqlab.train(settings.changed({"training.steps": 1, "task.metrics": []}), out=tmp_path / "run")
    assert "--by-length needs a metric" in run_command("evaluate", tmp_path / "run", "--by-length").exception.what


def test_samples_are_answers_to_held_out_examples(reverser):
    samples = [json.loads(line) for line in (reverser.folder / "samples.jsonl").read_text().splitlines()]
    *_, last = samples
    source, _, answer = last["text"].partition(" → ")
    assert answer == " ".join(reversed(source.split()))


def test_every_line_is_answered_in_its_order(reverser):
    """An empty one, one of unknown words, and one that is too long do not stop the others."""
    lines = ["one two three", "", "☃", "five " * 20_000, "six five"]
    found = run_command("predict", reverser.folder, "--json", text="\n".join(lines) + "\n")
    answers = [json.loads(line) for line in found.stdout.splitlines()]
    assert [one["answer"] for one in answers][::4] == ["three two one", "five six"]
    assert len(answers) == 5
    assert "the maximum of 2,048" in answers[3]["error"]
    assert "standard input, line 4: 20,001 tokens" in found.stderr


def test_sources_that_are_too_long_are_judged_and_said(reverser, tmp_path):
    """As empty answers: left out, they would flatter the figure."""
    rows = [*reversals(9), {"source": "one " * 30, "target": "two"}]
    data = write_pairs(tmp_path / "long.jsonl", rows)
    run = reverser.changed({"task.longest": 20})
    with pytest.warns(Caution, match=r"1 of 10 sources have more than task.longest=20 tokens: scored as empty answers"):
        found = run.evaluate(data, metrics=["exact"])
    assert (found["exact"], found["too_long"]) == (90.0, 1)
    assert found["signature"]["too_long"] in found["notes"]
    whole = reverser.evaluate(data, metrics=["exact"])
    assert whole["too_long"] == 0
    assert "too_long" not in whole["signature"]


def test_the_report_marks_sources_without_an_answer(reverser, tmp_path):
    rows = [*reversals(9), {"source": "one " * 30, "target": "two"}]
    data = write_pairs(tmp_path / "long.jsonl", rows)
    found = report(reverser.changed({"task.longest": 20}).outcomes(data))
    first, *others = found["worst"]
    assert (first["line"], first["answer"]) == (10, "")
    assert first["error"] == "31 tokens exceed the maximum of 20 (task.longest)"
    assert {row["error"] for row in others} == {""}
    assert found["unanswered"] == 1
    assert "error" not in report(reverser.outcomes(data))["worst"][0]


def test_generate_prints_the_answer_alone(reverser):
    """The prompt of a translator is its source, and no beginning."""
    asked = ["generate", reverser.folder, "--prompt", "one two three"]
    assert run_command(*asked, "--temperature", 0).stdout == "three two one\n"
    assert run_command(*asked, "--beam", 2, "--samples", 1).stdout.splitlines()[1] == "three two one"
    assert json.loads(run_command(*asked, "--temperature", 0, "--json").stdout)["texts"] == ["three two one"]
    told = run_command("generate", reverser.folder, "--prompt", "one ☃ three", "--temperature", 0, "--json")
    assert json.loads(told.stdout)["unknown"] == 1
    assert "note: 1 token is not in the vocabulary" in told.stderr


def test_a_text_without_its_source_is_not_scored(reverser):
    with pytest.raises(SeqlabError, match="scores a text together with its source"):
        reverser.score(["three two one"])
    with pytest.raises(TypeError, match="list of texts"):
        reverser.score("three two one")


def test_learned_positions_that_are_too_few(tmp_path):
    """Said before training; and where they are enough, texts end at the last of them."""
    model = {"kind": "transformer", "width": 16, "depth": 1, "heads": 2, "position": {"kind": "learned", "length": 12}}
    settings = recipe(tmp_path, reversals(60), model=model).changed({"training.steps": 2})
    with pytest.raises(RecipeError, match=r"task.longest: .* exceeds the 12 positions of the model; set"):
        seqlab.train(settings, out=tmp_path / "run")
    run = seqlab.train(settings.changed({"task.longest": 12}), out=tmp_path / "run")
    (tmp_path / "lines.txt").write_text("one two three four five six one two three four five\none\n")
    answers = list(run.predict(str(tmp_path / "lines.txt"), lines=True))
    assert all("error" not in one for one in answers)


@pytest.mark.parametrize("tokenizer", ["word", "character", "byte", "bpe", "classic-bpe", "unigram", "wordpiece"])
def test_strange_lines_do_not_change_the_others(tokenizer, tmp_path):
    """Nothing, an unknown symbol, 100,000 characters without a blank and with many: answered, or it is said why."""
    size = {"vocab_size": 300} if tokenizer in ("classic-bpe", "unigram", "wordpiece") else {}
    small = {"kind": "transformer", "width": 8, "depth": 1, "heads": 2}
    settings = recipe(tmp_path, reversals(60), model=small).changed({"tokenizer": {"kind": tokenizer, **size}})
    run = seqlab.train(settings, out=tmp_path / "run").changed({"decoding.beam": 1, "task.longest": 300})
    plain, strange = ["one two three", "six five"], ["", "☃", "x" * 100_000, "one " * 25_000]
    files = {"plain.txt": plain, "strange.txt": [plain[0], *strange, plain[1]]}
    found = {}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        found[name] = list(run.predict(str(tmp_path / name), lines=True))
    first, *answers, last = found["strange.txt"]
    assert [one["answer"] for one in (first, last)] == [one["answer"] for one in found["plain.txt"]]
    assert len(answers) == len(strange)
    assert all(isinstance(one["answer"], str) for one in answers)
    assert "the maximum of 300" in answers[3]["error"]
    assert ("error" in answers[2]) == (tokenizer not in ("word", "wordpiece"))  # to which it is one unknown word


def test_n_best_and_alignments(reverser):
    found = run_command("predict", reverser.folder, "--n-best", 3, "--alignments", "--json", text="one two three\n")
    answer = json.loads(found.stdout)
    assert len(answer["n_best"]) == 3
    assert answer["n_best"][0]["answer"] == answer["answer"] == "three two one"
    ranks = [one["rank"] for one in answer["n_best"]]
    assert ranks == sorted(ranks, reverse=True)
    pairs = [tuple(map(int, pair.split("-"))) for pair in answer["alignment"].split()]
    assert pairs[:3] == [(2, 0), (1, 1), (0, 2)]
    assert answer["source_tokens"] == ["one", "two", "three", "<end>"]
    for one in answer["n_best"]:
        assert len(one["alignment"].split()) == len(one["tokens"])
    assert (
        "--n-best 3 is more than --beam 2" in run_command("predict", reverser.folder, "--beam", 2, "--n-best", 3).output
    )


def test_every_line_of_a_plain_text_is_a_source(reverser, tmp_path):
    (tmp_path / "asked.txt").write_text("one two three\n\nsix five\n")
    typed, given = (
        run_command("predict", reverser.folder, *files, text=text).stdout
        for files, text in (([], "one two three\n\nsix five\n"), ([tmp_path / "asked.txt"], None))
    )
    assert given == typed
    assert given.splitlines()[2] == "five six\tsix five"
    table = write_pairs(tmp_path / "asked.jsonl", [{"source": "one two"}])
    mixed = run_command("predict", reverser.folder, table, tmp_path / "asked.txt").exception
    assert "some of the files are plain text" in mixed.what
    (tmp_path / "asked.dat").write_text('{"source": "one two"}\n')
    named = reverser.changed({"data.format": "jsonl"}).predict(str(tmp_path / "asked.dat"))
    assert [one["text"] for one in named] == ["one two"]


def test_what_is_typed_and_cannot_be_read_is_said_of_standard_input(reverser):
    told = CliRunner().invoke(group, ["predict", str(reverser.folder)], input=b"one\n\xff\xfe\n").exception
    assert str(told).startswith("standard input: not UTF-8 text (line 2")
    told = CliRunner().invoke(group, ["predict", str(reverser.folder)], input=b"one\n\0two\n").exception
    assert told.where.startswith("standard input")


def test_wrong_names_of_metrics_are_said_before_the_work(reverser, monkeypatch):
    monkeypatch.setattr("seqlab.runs.run.evaluate", None)
    told = run_command("evaluate", reverser.folder, "--metric", "chrf, BLUE").exception
    assert "unknown metric 'BLUE'" in told.what
    assert "did you mean 'bleu'" in told.hint
    assert "rouge," in told.hint


def test_pairs_that_are_too_long_are_left_out_and_counted(tmp_path):
    told = []

    class Heard(Silence):
        def said(self, message):
            told.append(message)

    rows = [*reversals(), {"source": "one " * 30, "target": "two"}]
    settings = recipe(tmp_path, rows).changed({"task.longest": 20})
    prepared = prepare(settings, torch.device("cpu"), Heard())
    assert len(prepared.train_split) == len(rows) - 1
    assert f"left out 1 of {len(rows):,} pairs, which exceed task.longest=20 tokens" in told
    with pytest.raises(SeqlabError, match=r"all .* pairs have more than 1 tokens"):
        prepare(settings.changed({"task.longest": 1}), torch.device("cpu"), Silence())


def test_answers_do_not_depend_on_batches(reverser):
    texts = [row["source"] for row in reversals(60)]
    file = reverser.folder / "asked.txt"
    file.write_text("\n".join(texts) + "\n")
    one, many = (list(reverser.predict(str(file), lines=True, batch_size=size)) for size in (1, 50))
    assert [a["answer"] for a in one] == [a["answer"] for a in many]
    for a, b in zip(one, many, strict=True):
        assert a["rank"] == pytest.approx(
            b["rank"], abs=6 * rounding(SMALL_NET, 10)
        )  # to the bit where there are kernels


def test_evaluation_may_have_no_metrics_and_predict_knows_its_place(reverser, tmp_path):
    assert "bleu" not in reverser.changed({"task.metrics": []}).evaluate()
    classes = seqlab.train("classification/lstm", {"training.steps": 1, "model.width": 4}, out=tmp_path / "run")
    told = run_command("predict", classes.folder, "--beam", 2, text="x\n").exception
    assert "does not generate texts" in told.what
    assert "generates no texts" in run_command("evaluate", classes.folder, "--by-length").exception.what
    told = run_command("evaluate", classes.folder, "--metric", "bleu,chrf").exception
    assert told.what == "generates no texts to score by bleu and chrf"
    assert "translation" in told.hint
    with pytest.raises(SeqlabError, match="generates no texts to score by bleu"):
        classes.evaluate(metrics=["bleu"])


def test_the_matrix_and_the_tree_are_drawn(reverser, tmp_path):
    for command, fields in (("attention", {"source", "target", "weights"}), ("beam", {"found", "branches"})):
        picture = tmp_path / f"{command}.png"
        found = run_command("inspect", command, reverser.folder, "--row", 2, "--json", "--out", picture)
        assert found.exit_code == 0, found.output
        assert set(json.loads(found.stdout)) == fields
        assert picture.stat().st_size > 1000
        for wrong in (tmp_path, tmp_path / "picture.xyz"):
            assert "not a picture file" in run_command("inspect", command, reverser.folder, "--out", wrong).output
    assert (
        "held-out example 4000 does not exist"
        in run_command("inspect", "beam", reverser.folder, "--row", 4000).exception.what
    )


def test_gradients_reach_back_into_the_source(reverser):
    found = json.loads(run_command("inspect", "gradients", reverser.folder, "--json").stdout)
    assert {"encoder.layers.0.h.0", "encoder.layers.0.h.0 back", "decoder.lowest.h.0"} <= set(found["norms"])
    assert all(max(sizes) > 0 for sizes in found["norms"].values())


def test_an_ensemble_is_a_mixture(reverser):
    """Of a model with itself: the same answers."""
    from seqlab.models.mixture import Mixture

    settings = reverser.recipe.model
    sizes = reverser.task.sizes
    both = Mixture(Mixture.Settings(kind="mixture", parts=[settings, settings]), **sizes)
    for part in both.parts:
        part.load_state_dict(reverser.model.state_dict())
    source = reverser.task.prompts(["one two", "six five four"]).source
    alone, together = (reverser.task.searched(model.eval(), source) for model in (reverser.model, both))
    for a, b in zip(alone, together, strict=True):
        assert a[0].tokens == b[0].tokens
        assert a[0].log_probability == pytest.approx(
            b[0].log_probability, abs=len(a[0].tokens) * rounding(SMALL_NET, 10)
        )


# ---------------------------------------------------------------------- what a source is made of


def conditioned():
    return [
        {"tone": ("loud", "quiet")[n % 2], "sizes": f"{n % 5} {n / 10}", "source": "one two", "target": "six"}
        for n in range(100)
    ]


def test_labels_and_numbers_stand_beside_words(tmp_path):
    conditions = {"tone": "label", "sizes": "numbers", "source": "text"}
    prepared = prepare(recipe(tmp_path, conditioned(), conditions), torch.device("cpu"), Silence())
    task = prepared.task
    words = task.tokenizer.vocab_size
    assert task.sizes == {"vocab_size": words, "conditions": 4}
    assert task.sources.names == ["loud", "quiet", "sizes 1", "sizes 2"]
    assert task.source_lengths(prepared.valid_split) == [len("one two")] * 40
    batch = prepared.valid_split.batch(np.array([1]), Key(0, 0))
    ids = task.tokenizer.encode("one two").ids
    assert batch["source.tokens"].tolist() == [[words + 1, words + 2, words + 3, *ids, task.tokenizer.end_id]]
    values = np.array([[n % 5, n / 10] for n in range(100)])
    expected = (values[1] - values.mean(0)) / values.std(0)
    assert batch["source.values"][0, 1:3].tolist() == pytest.approx(expected.tolist(), abs=rounding(8, 10))
    assert batch["source.values"][0, [0, 3, 4, 5]].tolist() == [0.0] * 4
    loss = prepared.objective(batch)
    loss.sum.backward()
    assert prepared.objective.body.encoder.conditions.sizes.weight.grad[2:].abs().sum() > 0


def test_several_conditions_are_typed_with_tabs_between_them(tmp_path):
    rows = [{**row, "tone": tone} for row in reversals(40) for tone in ("loud", "soft")]
    settings = recipe(tmp_path, rows, {"tone": "label", "source": "text"})
    run = seqlab.train(settings, out=tmp_path / "run")
    found = run_command("predict", run.folder, "--json", text="loud\tone two\nsoft\t\n")
    assert [json.loads(line)["text"] for line in found.stdout.splitlines()] == ["loud\tone two", "soft\t"]
    shown = json.loads(run_command("inspect", "attention", run.folder, "--text", "soft\tone two", "--json").stdout)
    assert shown["source"] == ["<soft>", "one", "two", "<end>"]
    assert "expected 2 fields" in run_command("inspect", "beam", run.folder, "--text", "one").exception.what
    long = "soft\t" + "one " * 3000
    assert "the maximum of 2,048" in run_command("inspect", "beam", run.folder, "--text", long).exception.what
    for text, says in (
        ("one two\n", "expected 2 fields, found 1"),
        ("quiet\tone\n", "'quiet' is not in the training data"),
    ):
        assert says in str(run_command("predict", run.folder, text=text).exception)


def test_a_report_is_a_translation_of_numbers(tmp_path):
    rows = [{"sizes": f"{n % 7}", "target": f"it is {WORDS[n % 7]}"} for n in range(300)]
    settings = recipe(tmp_path, rows, {"sizes": "numbers"}, learning_rate=0.01)
    run = seqlab.train(settings.changed({"training.steps": 250}), out=tmp_path / "run")
    assert run.evaluate()["exact"] == 100
    assert run.task.source_lengths(run.held_out()) == [0] * 40


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sizes": "1 many"}, "'1 many' is not a row of numbers"),
        ({"sizes": "1 nan"}, "'1 nan' is not a row of numbers"),
        ({"sizes": "1 2 3"}, "3 numbers in 'sizes', but 2 in other rows"),
        ({"tone": "shrill"}, "the tone 'shrill' is not in the training data"),
    ],
)
def test_what_is_wrong_with_a_condition_is_said_with_its_place(tmp_path, change, says):
    conditions = {"tone": "label", "sizes": "numbers", "source": "text"}
    settings = recipe(tmp_path, conditioned(), conditions)
    rows = conditioned()[:40]
    rows[7] |= change
    write_pairs(tmp_path / "valid.jsonl", rows)
    with pytest.raises(SeqlabError, match=says) as told:
        prepare(settings, torch.device("cpu"), Silence())
    assert "valid.jsonl, line 8" in str(told.value)


def test_a_model_without_a_source_is_refused(tmp_path):
    settings = recipe(tmp_path, reversals(100), model={"kind": "gpt", "width": 16, "depth": 1, "heads": 2})
    with pytest.raises(SeqlabError, match="does not read a source"):
        prepare(settings, torch.device("cpu"), Silence())


def test_a_metric_that_is_none_is_said_before_the_training(tmp_path):
    settings = recipe(tmp_path, reversals(100)).changed({"task.metrics": ["blue"]})
    with pytest.raises(SeqlabError, match=r"'blue'.*bleu"):
        prepare(settings, torch.device("cpu"), Silence())


def test_cuts_are_drawn_anew_in_every_epoch(tmp_path):
    """Subword regularisation: other tokens, the same texts."""
    settings = recipe(tmp_path, reversals(300)).changed(
        {"tokenizer": {"kind": "unigram", "vocab_size": 300, "sample": 0.5}}
    )
    prepared = prepare(settings, torch.device("cpu"), Silence())
    rows, decode = np.arange(20), prepared.task.tokenizer.decode
    first, second = (prepared.train_split.batch(rows, Key(0, epoch)) for epoch in (0, 1))
    assert first["targets"].shape != second["targets"].shape or not torch.equal(first["targets"], second["targets"])
    for side in ("targets", "source.tokens"):
        texts = [[decode([t for t in row.tolist() if t]) for row in one[side]] for one in (first, second)]
        assert texts[0] == texts[1]


def test_pairs_that_are_too_long_are_not_learnt_from(tmp_path):
    settings = recipe(tmp_path, reversals(100)).changed({"task.longest": 4})
    prepared = prepare(settings, torch.device("cpu"), Silence())
    short = [row for row in reversals(100) if len(row["source"].split()) < 4]
    assert len(prepared.train_split) == len(short)
    assert len(prepared.valid_split) == 40
