"""Judging as a whole: several metrics at once, resamples, and what cannot be judged."""

import random
import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab import registry
from seqlab.errors import SeqlabError
from seqlab.metrics import Judged, Metric, judge
from seqlab.metrics.edits import WER
from seqlab.metrics.resampling import interval, p_value, resampled_sums
from seqlab.metrics.rouge import longest_common
from seqlab.recipe import PartSettings


def test_several_metrics_at_once_are_each_by_itself():
    draw = random.Random(0)
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat"]
    hypotheses, references = ([" ".join(draw.choices(words, k=8)) for _ in range(30)] for _ in range(2))
    those = [[one] for one in references]
    names = ["bleu", "rouge", "meteor", "wer"]
    together = judge(names, hypotheses, those, resamples=50, seed=3)
    assert list(together) == ["bleu", "rouge-1", "rouge-2", "rouge-l", "meteor", "wer"]
    for name, figure in together.items():
        alone = judge([name], hypotheses, those, resamples=50, seed=3)[name]
        assert alone.value == figure.value
        assert alone.interval == pytest.approx(figure.interval)
    assert judge(names, hypotheses, those)["bleu"].interval is None
    assert judge(["wer"], hypotheses, those, resamples=50, seed=4)["wer"].interval != together["wer"].interval


def test_an_interval_holds_what_it_says():
    """The share of 400 texts of 60 lines whose 95 % interval holds the chance of a line to be right, 0.3."""
    draw = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        lines = ["yes" if right else "no" for right in draw.random(60) < 0.3]
        low, high = judge(["exact"], lines, [["yes"]] * 60, resamples=200)["exact"].interval
        held += low <= 30 <= high
    assert 0.90 <= held / 400 <= 0.98


def test_resampled_sums_are_sums_of_drawn_rows():
    table = np.arange(12.0).reshape(4, 3) ** 2
    drawn = np.random.default_rng(5).choice(4, size=(6, 4), replace=True)  # all at once, as sacreBLEU does
    assert np.array_equal(resampled_sums(table, 6, 5), table[drawn].sum(axis=1))
    assert interval(np.arange(1000.0)) == (25, 974)
    assert interval(np.array([7.0])) == (7, 7)


def test_p_value_by_hand():
    assert p_value(0.5, np.array([0.0, 0.0, 0.0, 4.0])) == 2 / 5  # sizes less their mean: −1, −1, −1, 3
    assert p_value(3.0, np.array([0.0, 0.0, 0.0, 4.0])) == 1 / 5
    assert p_value(0.0, np.zeros(4)) == 1


def test_the_best_reference_is_chosen_line_by_line():
    found = judge(["wer"], ["a b c", "x y"], [["a b d", "q"], ["z", "x y z w"]])["wer"]
    assert found.parts == {"hits": 4, "substitutions": 1, "deletions": 2, "insertions": 0}
    assert found.value == pytest.approx(100 * 3 / 7)


@given(st.lists(st.sampled_from("abc"), max_size=7), st.lists(st.sampled_from("abc"), max_size=7))
def test_longest_common_subsequences(one, other):
    def subsequences(text):
        return {picked for size in range(len(text) + 1) for picked in combinations(text, size)}

    assert longest_common(one, other) == max(map(len, subsequences(one) & subsequences(other)))


@pytest.mark.parametrize(
    ("names", "hypotheses", "references", "said"),
    [
        (["blue"], ["a"], [["a"]], "unknown metric 'blue'; did you mean 'bleu'"),
        ([], ["a"], [["a"]], "no metric"),
        (["bleu", "bleu"], ["a"], [["a"]], "'bleu' is listed twice"),
        (["rouge", "rouge-l"], ["a"], [["a"]], "'rouge-l' is listed twice"),
        (["bleu"], ["a", "b"], [["a"]], "2 lines, but references for 1"),
        (["bleu"], [], [], "no lines"),
        (["bleu"], ["a", "b"], [["a"], []], "line 2: has no list of references"),
        (["bleu"], ["a"], ["a"], "line 1: has no list of references"),
    ],
)
def test_what_cannot_be_judged_is_said(names, hypotheses, references, said):
    with pytest.raises(SeqlabError) as error:
        judge(names, hypotheses, references)
    assert said in str(error.value)


def test_a_metric_of_ones_own(monkeypatch):
    """A class, a name, and it has intervals and comparisons."""

    class Lengths(Metric):
        class Settings(PartSettings):
            pass

        better = "lower"

        def __init__(self, settings):
            pass

        def statistics(self, hypothesis, references):
            return np.array([abs(len(hypothesis) - len(references[0])), 1.0])

        def figure(self, sums):
            return float(sums[0] / sums[1])

        def signature(self, references):
            return "lengths"

    monkeypatch.setattr(registry, "_given", {})
    registry.register("metric", "lengths", Lengths)
    one, other = (Judged(["lengths"], lines, [["abc"]] * 3, resamples=20) for lines in (["abc"] * 3, ["a"] * 3))
    assert one.figures()["lengths"].value == 0
    assert one.against(other)["lengths"].interval == (-2, -2)


def test_systems_that_cannot_be_compared():
    one = Judged(["wer"], ["a"], [["a"]], resamples=5)
    settings = WER.Settings(kind="wer", lowercase=True)
    for other in (
        Judged(["wer"], ["a", "b"], [["a"], ["b"]], resamples=5),
        Judged(["cer"], ["a"], [["a"]], resamples=5),
        Judged(["wer"], ["a"], [["a"]], resamples=6),
        Judged(["wer"], ["a"], [["a"]], resamples=5, seed=1),
        Judged([settings], ["a"], [["a"]], resamples=5),
        Judged(["wer"], ["a"], [["a", "b"]], resamples=5),
    ):
        with pytest.raises(SeqlabError, match="can only compare systems"):
            one.against(other)
    none = Judged(["wer"], ["a"], [["a"]])
    with pytest.raises(SeqlabError, match="can only compare systems"):
        none.against(none)


def tokenized(lines):
    return ["a text ."] * lines + ["a text."] * 5


def test_tokenized_text_is_said_as_sacrebleu_does(caplog):
    """By its own rule: 100 lines that end in " ."."""
    from sacrebleu.metrics.bleu import BLEU

    from seqlab.errors import Caution

    for lines in (99, 100):
        texts = tokenized(lines)
        caplog.clear()
        BLEU().corpus_score(texts, [texts])
        theirs = bool(caplog.records)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            judge(["bleu", "chrf"], texts, [[text] for text in texts])
        ours = [str(one.message) for one in caught if one.category is Caution]
        assert bool(ours) == theirs == (lines == 100)
    (caution,) = ours
    assert caution.startswith(
        "bleu: 100 of 105 lines end in a tokenised full stop (' .'): BLEU is meant for detokenised"
    )


def made(monkeypatch, statistics, figure=lambda self, sums: sums[0] / sums[1]):
    """A metric called `mine`."""
    cls = type("Mine", (Metric,), {"statistics": lambda self, text, those: statistics(text), "figure": figure})
    monkeypatch.setattr(registry, "_given", {("metric", "mine"): cls})


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        (lambda text: [1.0] * len(text.split()), "returned 2 numbers for line 1 and 3 for line 2; return a list"),
        (lambda text: 1.0, r"returned 1.0 \(float\) for line 1"),
        (lambda text: ["a", "b"], r"returned \['a', 'b'\] \(list\) for line 1"),
        (lambda text: None, "returned None for line 1"),
        (lambda text: [[1.0]], r"returned \[\[1.0\]\] \(list\) for line 1"),
        (lambda text: [np.nan if "sat" in text else 1.0, 1.0], "returned a number that is not finite for line 2"),
    ],
)
def test_statistics_that_cannot_be_added(monkeypatch, statistics, message):
    made(monkeypatch, statistics)
    with pytest.raises(SeqlabError, match=f"metric 'mine': statistics.. {message}"):
        judge(["mine"], ["a cat", "a cat sat"], [["a"], ["b"]])


@pytest.mark.parametrize("value", ["50 %", None, np.ones(2)])
def test_a_figure_that_is_not_a_number(monkeypatch, value):
    made(monkeypatch, lambda text: [1, 1], lambda self, sums: value)
    with pytest.raises(SeqlabError, match=r"metric 'mine': figure\(\) returned .*; return a number"):
        judge(["mine"], ["a"], [["a"]])


def test_a_figure_that_is_not_finite_is_none_and_says_so(monkeypatch):
    made(monkeypatch, lambda text: np.array([1.0, "cat" in text]))
    with pytest.warns(UserWarning, match=r"mine: no figure, because figure\(\)"):
        judged = Judged(["mine"], ["a", "b"], [["a"], ["b"]], resamples=20)
    found = judged.figures()["mine"]
    assert np.isnan([found.value, *found.interval]).all()
    assert np.isnan(judged.against(judged)["mine"].p_value)
