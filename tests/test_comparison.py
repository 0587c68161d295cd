"""What a comparison says about itself: unknown tokens, and scores that are no probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqlab.cli.compare import report
from seqlab.comparison import Result, cautions, compare, rows
from seqlab.recipe import Recipe


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
    assert "do not compare" in said
    report(results, tmp_path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["unknown"] for row in found["table"]} == shares
    assert len(found["cautions"]) == 1


def test_one_tokenizer_needs_no_caution(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    few, none = {"kind": "word", "vocab_size": 4}, {"kind": "word"}
    for number, tokenizer in enumerate((few, none)):
        keys = {"tokenizer": tokenizer}
        results = race(tmp_path / str(number), text, two={**keys, "model.order": 2}, three={**keys, "model.order": 3})
        assert cautions(results) == []
        report(results, tmp_path, as_json=False)
        said = capsys.readouterr().out
        assert "do not compare" not in said
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
