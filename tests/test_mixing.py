"""Mixed runs: weights by expectation maximisation, a run like any other, and clear refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import seqlab
from seqlab.errors import RecipeError, RunError
from seqlab.models.mixture import fit_weights

TEXT = " ".join(f"the {animal} {verb} the {thing}." for animal in ("cat", "dog") for verb in ("saw", "ate", "hid")
                for thing in ("mouse", "house", "bone"))  # fmt: skip


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
    seqlab.train("lm/ngram", {**same, "tokenizer": "byte"}, out=folder / "bytes")
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
    assert mixed.evaluate()["loss"] <= min(one["loss"] for one in alone) + 1e-6
    assert mixed.generate("the ", tokens=5, seed=1) == mixed.generate("the ", tokens=5, seed=1)
    assert mixed.score(["the cat"])[0].log_probability < 0
    assert seqlab.load(tmp_path / "mixed").evaluate() == mixed.evaluate()


@pytest.mark.parametrize("name", ["lstm", "ngram", "gpt"])
def test_a_run_mixed_with_itself_is_itself(name: str, runs: dict[str, Path], tmp_path: Path):
    """Over several pieces: the parts go on from where they were."""
    long = tmp_path / "long.txt"
    long.write_text(TEXT * 20, encoding="utf-8")
    alone, mixed = seqlab.load(runs[name]), seqlab.mix([runs[name]] * 2, out=tmp_path / "mixed")
    assert mixed.evaluate(str(long))["loss"] == pytest.approx(alone.evaluate(str(long))["loss"], abs=1e-5)
    one, other = mixed.score([TEXT * 8])[0], alone.score([TEXT * 8])[0]
    assert one.log_probability == pytest.approx(other.log_probability, rel=1e-5)


def test_what_cannot_be_mixed(runs: dict[str, Path], tmp_path: Path):
    with pytest.raises(RunError, match="tokenizer differs"):
        seqlab.mix([runs["lstm"], runs["bytes"]], out=tmp_path / "new")
    with pytest.raises(RunError, match="2 runs need 2 weights"):
        seqlab.mix([runs["lstm"], runs["ngram"]], out=tmp_path / "new", weights=[1.0])
    with pytest.raises(RunError, match="no probabilities"):
        seqlab.mix([runs["lstm"], runs["stupid-backoff"]], out=tmp_path / "new")
    with pytest.raises(RunError, match="a run here already"):
        seqlab.mix([runs["lstm"], runs["ngram"]], out=runs["gpt"])
    assert not (tmp_path / "new").exists()
    model = {"model": {"kind": "mixture", "parts": ["ngram"]}}
    with pytest.raises(RecipeError, match="nothing to train"):
        seqlab.train("lm/lstm", {**model, "data.train": str(runs["lstm"].parent / "text.txt")}, out=tmp_path / "new")


def test_a_part_that_expects_nothing_leaves_it_to_the_other(runs: dict[str, Path], tmp_path: Path):
    mixed = seqlab.mix([runs["counts"], runs["lstm"]], out=tmp_path / "mixed")
    tokens = torch.tensor(mixed.tokenizer.encode_batch(["bbbbb"]))  # counted nowhere
    states = mixed.model(tokens).states[0, -1:]
    counts, lstm = mixed.model.parts
    assert counts.logits(counts(tokens).states[0, -1:]).isneginf().all()
    own = lstm.logits(lstm(tokens).states[0, -1:]).log_softmax(-1)
    logits = mixed.model.logits(states)
    torch.testing.assert_close(logits, own + mixed.model.weights[1].log())
    targets = torch.arange(mixed.model.vocab_size)
    torch.testing.assert_close(-mixed.model.losses(states.expand(len(targets), -1), targets), logits[0])
    assert len(mixed.generate("bbbbb", tokens=5, temperature=0)[0]) == 5


def test_scores_that_are_no_probabilities_are_called_so(runs: dict[str, Path]):
    assert "none" in seqlab.load(runs["stupid-backoff"]).evaluate()["signature"]["scores"]
    assert "scores" not in seqlab.load(runs["ngram"]).evaluate()["signature"]


def test_the_order_of_the_parts_does_not_matter(runs: dict[str, Path], tmp_path: Path):
    one = seqlab.mix([runs["ngram"], runs["lstm"]], out=tmp_path / "one", weights=[1, 3])
    other = seqlab.mix([runs["lstm"], runs["ngram"]], out=tmp_path / "other", weights=[3, 1])
    assert one.score(["the dog ate"])[0].log_probability == pytest.approx(
        other.score(["the dog ate"])[0].log_probability, abs=1e-4
    )
