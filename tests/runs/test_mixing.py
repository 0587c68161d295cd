"""Mixed runs: weights by expectation maximisation, a run like any other, and clear refusals."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from tolerance import SMALL_NET, close, rounding

import seqlab
from seqlab.errors import Caution, RecipeError, RunError
from seqlab.models.mixture import fit_weights
from seqlab.runs.conversion import export_arpa, import_arpa

TEXT = " ".join(f"the {animal} {verb} the {thing}." for animal in ("cat", "dog") for verb in ("saw", "ate", "hid")
                for thing in ("mouse", "house", "bone"))  # fmt: skip


LOSS = rounding(SMALL_NET, 5)
"""By how much the loss of a token may differ: nets of width 12 and logits below 5."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("mixing")
    text = folder / "text.txt"
    text.write_text(TEXT * 4, encoding="utf-8")
    same = {"data.train": str(text), "data.hold_out": 0.2, "tokenizer": "character", "decoding.tokens": 10}
    small = {"model.width": 12, "training.steps": 60, "training.batch_size": 4, "task.window": 16}
    seqlab.train("lm/ngram", {**same, "model.order": 2}, out=folder / "ngram")
    seqlab.train("lm/lstm", {**same, **small}, out=folder / "lstm")
    gpt = {**small, "model.context": 16, "model.heads": 2, "model.depth": 1}
    seqlab.train("lm/gpt", {**same, **gpt}, out=folder / "gpt")
    short = {**gpt, "model.context": 8, "task.window": 8, "training.steps": 2}
    seqlab.train("lm/gpt", {**same, **short}, out=folder / "short-gpt")
    seqlab.train("lm/ngram", {**same, "data.hold_out": 0.4}, out=folder / "less")
    seqlab.train("lm/ngram", {**same, "tokenizer": "byte"}, out=folder / "bytes")
    strange = folder / "strange.txt"
    strange.write_text("zzz yyy. xxx " * 40, encoding="utf-8")
    seqlab.train("lm/ngram", {**same, "data.valid": str(strange), "model.smoothing": "counts"}, out=folder / "vain")
    for smoothing in ("counts", "stupid-backoff"):
        seqlab.train("lm/ngram", {**same, "model.smoothing": smoothing}, out=folder / smoothing)
    return {path.name: path for path in folder.iterdir() if path.is_dir()}


def test_fitted_weights_are_the_best():
    torch.manual_seed(0)
    scores = torch.randn(2, 500) - 2
    fitted = fit_weights(scores)
    assert fitted.sum() == pytest.approx(1)

    def likelihood(weight: float) -> float:
        return float((scores + torch.tensor([[weight], [1 - weight]]).log()).logsumexp(0).sum())

    best = max((likelihood(w / 1000), w / 1000) for w in range(1, 1000))[1]
    assert float(fitted[0]) == pytest.approx(best, abs=0.002)


def test_fitting_goes_on_until_it_is_done():
    """Two parts that hardly differ: a hundred rounds of expectation maximisation are far from the best weights."""
    p = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.52, 0.52, 0.52, 0.45]])
    likelihoods = [(w * p[0] + (1 - w) * p[1]).log().mean() for w in torch.linspace(0, 1, 10_001)]
    fitted = fit_weights(p.log().repeat(1, 10))
    assert (fitted.float() @ p).log().mean() == pytest.approx(float(max(likelihoods)), abs=1e-6 + rounding(8))


def test_tokens_that_no_part_expects_are_left_out():
    torch.manual_seed(0)
    scores = torch.randn(3, 50) - 2
    scores[0, :20] = -torch.inf
    nothing = torch.full((3, 7), -torch.inf)
    close(fit_weights(torch.cat([scores, nothing], 1)), fit_weights(scores))
    assert fit_weights(scores).isfinite().all()


def test_fitting_needs_no_double_precision_on_the_device():
    class OnMPS(torch.Tensor):
        def double(self) -> torch.Tensor:
            raise TypeError("MPS has no float64")

        def cpu(self) -> torch.Tensor:
            return self.as_subclass(torch.Tensor)

    scores = torch.randn(2, 9)
    assert torch.equal(fit_weights(scores.as_subclass(OnMPS)), fit_weights(scores))


@pytest.mark.parametrize("names", [("lstm", "ngram"), ("ngram", "gpt"), ("lstm", "gpt", "ngram")])
def test_a_mixture_is_at_least_as_good_as_its_parts(names: tuple[str, ...], runs: dict[str, Path], tmp_path: Path):
    mixed = seqlab.mix([runs[name] for name in names], out=tmp_path / "mixed")
    assert sum(mixed.model.weights.tolist()) == pytest.approx(1)
    # each part, read as the mixture reads: windows where there is a limited context
    alone = []
    for number in range(len(names)):
        weights = [1e-9] * len(names)
        weights[number] = 1.0
        alone.append(
            seqlab.mix([runs[name] for name in names], out=tmp_path / f"only-{number}", weights=weights).evaluate()
        )
    assert mixed.evaluate()["loss"] <= min(one["loss"] for one in alone) + 1e-6 + LOSS
    assert mixed.generate("the ", tokens=5, seed=1) == mixed.generate("the ", tokens=5, seed=1)
    assert mixed.score(["the cat"])[0].log_probability < 0
    assert seqlab.load(tmp_path / "mixed").evaluate() == mixed.evaluate()


@pytest.mark.parametrize("name", ["lstm", "ngram", "gpt"])
def test_a_run_mixed_with_itself_is_itself(name: str, runs: dict[str, Path], tmp_path: Path):
    """Over several pieces: the parts go on from where they were."""
    long = tmp_path / "long.txt"
    long.write_text(TEXT * 20, encoding="utf-8")
    alone, mixed = seqlab.load(runs[name]), seqlab.mix([runs[name]] * 2, out=tmp_path / "mixed")
    assert mixed.evaluate(str(long))["loss"] == pytest.approx(alone.evaluate(str(long))["loss"], abs=LOSS)
    one, other = mixed.score([TEXT * 8])[0], alone.score([TEXT * 8])[0]
    assert one.log_probability == pytest.approx(other.log_probability, abs=other.tokens * LOSS)


def test_what_cannot_be_mixed(runs: dict[str, Path], tmp_path: Path):
    with pytest.raises(RunError, match="tokenizer differs"):
        seqlab.mix([runs["lstm"], runs["bytes"]], out=tmp_path / "new")
    with pytest.raises(RunError, match="2 runs need 2 weights"):
        seqlab.mix([runs["lstm"], runs["ngram"]], out=tmp_path / "new", weights=[1.0])
    for weights in ([math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [1e308, 1e308], [0.0, 1.0]):
        with pytest.raises(RunError, match="finite and above 0"):
            seqlab.mix([runs["lstm"], runs["ngram"]], out=tmp_path / "new", weights=weights)
    with pytest.raises(RunError, match="every held-out token a probability of zero"):
        seqlab.mix([runs["vain"], runs["vain"]], out=tmp_path / "new")
    with pytest.raises(RunError, match="no runs"):
        seqlab.mix([], out=tmp_path / "new")
    with pytest.raises(RunError, match="not probabilities"):
        seqlab.mix([runs["lstm"], runs["stupid-backoff"]], out=tmp_path / "new")
    with pytest.raises(RunError, match="already holds a run"):
        seqlab.mix([runs["lstm"], runs["ngram"]], out=runs["gpt"])
    assert not (tmp_path / "new").exists()
    model = {"model": {"kind": "mixture", "parts": ["ngram"]}}
    with pytest.raises(RecipeError, match="nothing to train"):
        seqlab.train("lm/lstm", {**model, "data.train": str(runs["lstm"].parent / "text.txt")}, out=tmp_path / "new")


def test_runs_that_hold_out_other_data_need_data(runs: dict[str, Path], tmp_path: Path):
    """What the one holds out, the other has seen: weights fitted there would all go to it."""
    pair = [runs["less"], runs["lstm"]]
    for weights in (None, [1.0, 1.0]):
        with pytest.raises(RunError, match=r"does not hold out the data .*--data"):
            seqlab.mix(pair, out=tmp_path / "new", weights=weights)
    assert not (tmp_path / "new").exists()
    other = tmp_path / "other.txt"
    other.write_text("the mouse saw the cat. the bone hid the dog. " * 9, encoding="utf-8")
    mixed = seqlab.mix(pair, out=tmp_path / "new", data=str(other))
    assert mixed.evaluate() == mixed.evaluate(str(other))
    assert mixed.log[0]["valid"]["loss"] == pytest.approx(mixed.evaluate()["loss"])
    alone = [seqlab.load(run).evaluate(str(other))["loss"] for run in pair]
    assert mixed.evaluate()["loss"] <= min(alone) + 1e-3


def test_other_training_data_but_the_same_held_out(runs: dict[str, Path], tmp_path: Path):
    text, valid = runs["lstm"].parent / "text.txt", tmp_path / "valid.txt"
    valid.write_text("the dog hid the mouse. " * 9, encoding="utf-8")
    more = tmp_path / "more.txt"
    more.write_text("the house ate the dog. " * 50, encoding="utf-8")
    tokenizer = {"kind": "byte"}
    for name, train in {"one": [str(text)], "both": [str(text), str(more)]}.items():
        keys = {"data.train": train, "data.valid": str(valid), "tokenizer": tokenizer}
        seqlab.train("lm/ngram", keys, out=tmp_path / name)
    mixed = seqlab.mix([tmp_path / "one", tmp_path / "both"], out=tmp_path / "mixed")
    alone = [seqlab.load(tmp_path / name).evaluate()["loss"] for name in ("one", "both")]
    assert mixed.evaluate()["loss"] <= min(alone) + 1e-6 + LOSS
    assert mixed.evaluate() == mixed.evaluate(str(valid))


def test_imported_runs_need_data(tmp_path: Path):
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat saw\nthe dog ate\n" * 20, encoding="utf-8")
    keys = {"data.train": str(lines), "data.documents": "line", "tokenizer": "word", "model.order": 2}
    seqlab.train("lm/ngram", keys, out=tmp_path / "words")
    export_arpa(seqlab.load(tmp_path / "words"), tmp_path / "words.arpa")
    imported = import_arpa(tmp_path / "words.arpa", tmp_path / "imported")
    pair = [tmp_path / "imported"] * 2
    with pytest.raises(RunError, match=r"holds out no data.*--data"):
        seqlab.mix(pair, out=tmp_path / "mixed")
    mixed = seqlab.mix(pair, out=tmp_path / "mixed", data=[str(lines)])
    assert mixed.evaluate()["loss"] == pytest.approx(imported.evaluate(str(lines))["loss"], abs=LOSS)


def test_the_smallest_context_decides_how_texts_are_read(runs: dict[str, Path], tmp_path: Path):
    names = ("gpt", "lstm", "short-gpt")
    found = []
    for order in itertools.permutations(names):
        weights = [1.0 + names.index(name) for name in order]
        mixed = seqlab.mix([runs[name] for name in order], out=tmp_path / "-".join(order), weights=weights)
        assert mixed.evaluate()["signature"]["window"] == mixed.model.context == 8
        found.append(mixed.evaluate()["loss"])
    assert found == pytest.approx([found[0]] * len(found), abs=LOSS)


def test_parameters_are_those_of_all_parts(runs: dict[str, Path], tmp_path: Path):
    inner = seqlab.mix([runs["lstm"], runs["ngram"]], out=tmp_path / "inner")
    lstm, ngram = seqlab.load(runs["lstm"]).parameters, seqlab.load(runs["ngram"]).parameters
    assert inner.parameters == lstm + ngram
    outer = seqlab.mix([tmp_path / "inner", runs["ngram"]], out=tmp_path / "outer")
    assert outer.parameters == lstm + 2 * ngram


def test_a_part_that_expects_nothing_leaves_it_to_the_other(runs: dict[str, Path], tmp_path: Path):
    mixed = seqlab.mix([runs["counts"], runs["lstm"]], out=tmp_path / "mixed")
    tokens = torch.tensor(mixed.tokenizer.encode_batch(["bbbbb"]))  # counted nowhere
    states = mixed.model(tokens).states[0, -1:]
    counts, lstm = mixed.model.parts
    assert counts.logits(counts(tokens).states[0, -1:]).isneginf().all()
    own = lstm.logits(lstm(tokens).states[0, -1:]).log_softmax(-1)
    logits = mixed.model.logits(states)
    close(logits, own + mixed.model.weights[1].log(), steps=8)
    targets = torch.arange(mixed.model.vocab_size)
    close(-mixed.model.losses(states.expand(len(targets), -1), targets), logits[0], steps=SMALL_NET)
    assert len(mixed.generate("bbbbb", tokens=5, temperature=0)[0]) == 5


def test_scores_that_are_no_probabilities_are_called_so(runs: dict[str, Path]):
    with pytest.warns(Caution, match="its scores do not sum to one"):
        found = seqlab.load(runs["stupid-backoff"]).evaluate()
    assert found["notes"] == [found["signature"]["scores"]]
    assert "scores" not in seqlab.load(runs["ngram"]).evaluate()["signature"]


def test_the_order_of_the_parts_does_not_matter(runs: dict[str, Path], tmp_path: Path):
    one = seqlab.mix([runs["ngram"], runs["lstm"]], out=tmp_path / "one", weights=[1, 3])
    other = seqlab.mix([runs["lstm"], runs["ngram"]], out=tmp_path / "other", weights=[3, 1])
    assert one.score(["the dog ate"])[0].log_probability == pytest.approx(
        other.score(["the dog ate"])[0].log_probability, abs=len("the dog ate") * LOSS
    )


def test_what_the_parts_were_trained_on_is_said_again(tmp_path: Path) -> None:
    """Of the data that the weights were fitted on, and of any other; the recipe names only what the first part read."""
    texts = {name: tmp_path / f"{name}.txt" for name in ("one", "two", "valid")}
    for first, path in enumerate(texts.values()):
        path.write_text("\n".join(f"{first}{n} {TEXT[n : n + 40]}{first}{n * n}" for n in range(60)))
    keys = {"tokenizer": "byte", "model.order": 2, "data.valid": str(texts["valid"])}
    runs = [tmp_path / "runs" / name for name in ("one", "two")]
    for name, run in zip(texts, runs, strict=False):
        seqlab.train("lm/ngram", {**keys, "data.train": str(texts[name])}, out=run)
    said = f"60 of 60 held-out lines (100 % of the text) are also in the training data of {runs[1]}"
    mixed = seqlab.mix(runs, out=tmp_path / "unfitted")
    assert "notes" not in mixed.evaluate()
    with pytest.warns(Caution, match=re.escape(said)):
        assert mixed.evaluate(str(texts["two"]))["notes"] == [said]
    with pytest.warns(Caution, match=re.escape(said)):
        fitted = seqlab.mix(runs, out=tmp_path / "fitted", data=str(texts["two"]))
    with pytest.warns(Caution, match=re.escape(said)):
        assert fitted.evaluate()["notes"] == fitted.log[0]["notes"] == [said]
