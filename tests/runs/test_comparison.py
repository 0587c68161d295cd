"""A comparison: what it ranks by, quality by length, cost; and what it says where figures do not compare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from seqlab.cli.compare import _flop, report
from seqlab.cli.compare import compare as command
from seqlab.errors import RecipeError
from seqlab.recipe import Recipe
from seqlab.runs.comparison import Result, by_length, cautions, compare, rows, unit
from seqlab.runs.run import Run


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"word{n % 40} follows word{n % 7}\n" for n in range(300)), encoding="utf-8")
    return str(path)


def race(out: Path, text: str, **recipes: dict[str, Any]) -> list[Result]:
    ngram = Recipe.load("lm/ngram")
    named = [ngram.changed({"name": name, "data.train": text, **changes}) for name, changes in recipes.items()]
    return compare(named, out=out)


def test_unknown_tokens_are_shown(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words, letters = {"tokenizer": {"kind": "word", "vocab_size": 4}}, {"tokenizer": {"kind": "character"}}
    results = race(tmp_path / "race", text, words=words, letters=letters)
    shares = {row.name: row.unknown for row in rows(results)}
    assert shares["words"] > 0.3
    assert shares["letters"] == 0
    report(results, tmp_path, as_json=False)
    said = capsys.readouterr().out
    assert "unknown %" in said
    assert f"{100 * shares['words']:.2f}" in said
    assert "not comparable" in said
    report(results, tmp_path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["unknown"] for row in found["table"]} == shares
    assert len(found["cautions"]) == 1


def test_tokenizers_that_drop_part_of_the_text_are_named(text: str, tmp_path: Path):
    """What they drop need not be predicted. Where the text has nothing to drop, nothing is said."""
    words, letters = {"tokenizer": {"kind": "word"}}, {"tokenizer": {"kind": "character"}}
    (caution,) = cautions(race(tmp_path / "blanks", text, words=words, letters=letters))
    assert caution.startswith("the tokenizers of words (100% of the lines) drop case, spaces or line ends")
    words["data.documents"] = letters["data.documents"] = "line"
    assert cautions(race(tmp_path / "lines", text, words=words, letters=letters)) == []
    lower = {**words, "tokenizer.lowercase": True}
    assert cautions(race(tmp_path / "case", text, words=lower, letters=letters)) == []  # it has no capitals


def test_tokenizers_that_drop_different_parts_are_named(tmp_path: Path):
    """All of them drop something from every line, but not the same."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"Word{n % 40} follows  Word{n % 7}\n" for n in range(300)), encoding="utf-8")
    words, lower = {"tokenizer": {"kind": "word"}}, {"tokenizer": {"kind": "word", "lowercase": True}}
    (caution,) = cautions(race(tmp_path / "race", str(text), words=words, lower=lower))
    assert re.fullmatch(
        r"the tokenizers of words \(\d+\.\d % white space\), lower \(\d+\.\d % capitals, \d+\.\d % white space\) drop "
        "different parts of the text, which then need not be predicted: their bits per character are not comparable",
        caution,
    )
    longer = {**lower, "model.order": 2}
    assert cautions(race(tmp_path / "same", str(text), lower=lower, longer=longer)) == []


def test_steps_in_place_of_a_budget(text: str, tmp_path: Path):
    small = {"data.train": text, "tokenizer": "character", "model.width": 8, "model.embedding": 8}
    (result,) = compare(["lm/lstm"], {**small, "training.steps": 3}, budget=None, out=tmp_path)
    assert result.metrics["step"] == 3
    for steps in ({"training.steps": 3}, {"training": {"steps": 3}}, {"training": {"budget": "1s"}}):
        with pytest.raises(RecipeError, match="both a budget"):
            compare(["lm/lstm"], steps, out=tmp_path)
    ended = CliRunner().invoke(command, ["lm/lstm", "training={steps: 3}", "--budget", "2s"])
    assert "give either --budget or training.steps" in ended.output


def test_a_few_unknown_tokens_need_no_caution():
    def result(name: str, unknown: int) -> Result:
        metrics = {"bits_per_character": 2.0, "unknown": unknown, "tokens": 163_122}
        return Result(name, 0, "", metrics, 1, 1.0, 1.0, "a-b", [])

    assert cautions([result("none", 0), result("few", 5)]) == []
    assert cautions([result("none", 0), result("many", 500)])


def test_one_tokenizer_needs_no_caution(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    few, none = {"kind": "word", "vocab_size": 4}, {"kind": "word"}
    for number, tokenizer in enumerate((few, none)):
        keys = {"tokenizer": tokenizer}
        results = race(tmp_path / str(number), text, two={**keys, "model.order": 2}, three={**keys, "model.order": 3})
        assert cautions(results) == []
        report(results, tmp_path, as_json=False)
        said = capsys.readouterr().out
        assert "not comparable" not in said
        assert ("unknown %" in said) == (tokenizer is few)


def test_scores_that_are_no_probabilities(text: str, tmp_path: Path):
    keys = {"tokenizer": {"kind": "character"}}
    results = race(tmp_path, text, stupid={**keys, "model.smoothing": "stupid-backoff"}, good=keys)
    (caution,) = cautions(results)
    assert "stupid" in caution
    assert "good" not in caution


def test_forecasts_have_no_perplexity(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recipe = Recipe.load("forecasting/dense", ["data.train=waves:51:60"])
    results = compare([recipe], budget="1s", out=tmp_path)
    assert rows(results)[0].perplexity is None
    report(results, tmp_path, as_json=False)
    assert "perplexity" not in capsys.readouterr().out


# ------------------------------------------------------------------ texts that are written


def result(name: str, seed: int = 0, data: str = "train-valid", tokenizer: str = "bpe", **metrics: Any) -> Result:
    figures = {"loss": 1.0, "perplexity": 2.7, **metrics, "signature": {"tokenizer": tokenizer}}
    return Result(name, seed, "folder", figures, 10, 100.0, 1.0, data, [])


def bins(*figures: float) -> list[dict[str, Any]]:
    return [
        {"shortest": 10 * n, "longest": 10 * n + 9, "lines": 5, "figures": {"bleu": figure}}
        for n, figure in enumerate(figures)
    ]


def test_written_texts_rank_and_not_the_loss():
    results = [result("a", loss=1.0, bleu=20.0, ter=70.0), result("b", loss=2.0, bleu=30.0, ter=60.0)]
    assert unit(results) == "bleu"
    assert [row.name for row in rows(results)] == ["b", "a"]
    assert rows(results)[0].written == {"bleu": 30.0, "ter": 60.0}


def test_lower_is_better_where_a_metric_says_so():
    results = [result("a", ter=70.0), result("b", ter=60.0, bleu=5.0)]
    assert unit(results) == "ter"
    assert [row.name for row in rows(results)] == ["b", "a"]
    assert unit([result("a", bleu=5.0), result("b", ter=5.0)]) == "loss"


def test_lengths_are_means_over_seeds():
    own = [result("a", seed, bleu=10.0, by_length=bins(seed, 4.0)) for seed in (1, 3)]
    short, long = by_length([*own, result("b", bleu=1.0, by_length=bins(7.0, 8.0))])
    assert short["figures"] == {"a": 2.0, "b": 7.0}
    assert long["figures"] == {"a": 4.0, "b": 8.0}
    assert (long["shortest"], long["longest"], long["lines"]) == (10, 19, 5)


def test_lengths_of_other_data_are_left_out():
    usual = [result(name, bleu=1.0, by_length=bins(1.0, 2.0)) for name in "ab"]
    for data, table in (("train-test", bins(1.0, 2.0)), ("train-valid", bins(1.0, 2.0, 3.0))):
        other = result("c", data=data, bleu=1.0, by_length=table)
        assert [list(own["figures"]) for own in by_length([other, *usual])] == [["a", "b"]] * 2
    assert by_length([result("a", bleu=1.0, by_length=bins(1.0))]) == []
    assert by_length([result("a")]) == []
    assert by_length([result("a", bleu=1.0, by_length=bins(1.0, 2.0)), result("b", ter=1.0)]) == []


def test_other_data_is_said():
    assert cautions([result("a"), result("b")]) == []
    (trained,) = cautions([result("a"), result("b"), result("c", data="more-valid")])
    assert trained.startswith("c: trained on different data")
    (measured,) = cautions([result("a"), result("b"), result("c", data="train-test")])
    assert measured.startswith("c: measured on different data")
    assert "not comparable" in measured


def test_notes_of_the_evaluations_are_repeated(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    valid = tmp_path / "valid.txt"
    valid.write_text(Path(text).read_text())
    keys = {"data.valid": str(valid), "tokenizer": "character"}
    results = race(tmp_path / "race", text, two={**keys, "model.order": 2}, three={**keys, "model.order": 3})
    notes = [f"{one.name}: {one.metrics['notes'][0]}" for one in results]
    assert all("are also in the training data" in note for note in notes)
    report(results, tmp_path, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert all(note in said for note in notes)
    report(results, tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out)["cautions"] == notes
    assert cautions([result("a", notes=["x"]), result("a", notes=["x"]), result("b")]) == ["a: x"]


def test_losses_of_other_tokens_are_said():
    (caution,) = cautions([result("a"), result("b", tokenizer="words")])
    assert "tokenizers differ" in caution
    units = [result("a", bits_per_character=1.0), result("b", tokenizer="words", bits_per_character=1.0)]
    assert cautions(units) == []


def test_a_translator(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Texts are written once, and are judged as a whole and by length."""
    words = ["one", "two", "three", "four"]
    texts = [" ".join(words[(n + k) % 4] for k in range(1 + n % 9)) for n in range(120)]
    pairs = "".join(f"{text}\t{text.upper()}\n" for text in texts)
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + pairs, encoding="utf-8")
    keys = ["tokenizer={kind: character}", "model.width=16", "decoding.beam=1", "data.hold_out=0.3"]
    recipe = Recipe.load("translation/transformer", [f"data.train={tmp_path / 'pairs.tsv'}", *keys])
    answers, times = Run.answers, []
    monkeypatch.setattr(Run, "answers", lambda *given: times.append(1) or answers(*given))
    results = compare([recipe], budget="1s", out=tmp_path / "runs")
    assert times == [1]
    report(results, tmp_path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["unit"] == "exact"
    assert found["cautions"] == []
    assert set(found["table"][0]["written"]) == {"exact", "bleu", "chrf"}
    assert found["table"][0]["flops"] == found["runs"][0]["flops"] > 1e6
    assert [list(own["figures"]) for own in found["by_length"]] == [[recipe.name]] * 5
    assert Path(found["plot_by_length"]) == tmp_path / "by_length.png"
    assert (tmp_path / "by_length.png").stat().st_size > 1000
    report(results, tmp_path, as_json=False)
    said = capsys.readouterr().out
    assert "held-out exact" in said
    assert "FLOP" in said
    assert "exact by source length" in said


def test_counting_costs_no_gradients(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    results = race(tmp_path, text, counted={"tokenizer": {"kind": "character"}})
    assert rows(results)[0].flops is None
    report(results, tmp_path, as_json=False)
    assert "FLOP" not in capsys.readouterr().out
    assert not (tmp_path / "by_length.png").exists()


def test_operations_are_readable():
    assert [_flop(count) for count in (12, 999, 1234.0, 999_900, 3.14e12)] == [
        "12 FLOP",
        "999 FLOP",
        "1.23 kFLOP",
        "1 MFLOP",
        "3.14 TFLOP",
    ]
