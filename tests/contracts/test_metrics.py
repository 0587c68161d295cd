"""Every metric: one contract."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab import registry
from seqlab.metrics import Judged, judge

every_metric = pytest.mark.parametrize("name", registry.METRICS)
UNBOUNDED = {"ter", "wer", "cer"}
"""Rates of errors: a hypothesis may have more of them than its reference has words."""

TEXTS = [
    "The cat sat on the mat, and the dog ran.",
    "Nothing was said about the older houses.",
    "Two of three students were reading a letter!",
    "She walked to the river with her friends.",
]
lines = st.lists(st.text(alphabet="abcde .,É東\t", max_size=20), min_size=1, max_size=5)


def metric(name):
    cls = registry.find("metric", name)
    return cls(cls.Settings(kind=name))


def value(name, hypotheses, references):
    return judge([name], hypotheses, [[one] for one in references])[name].value


@every_metric
def test_identical_texts_have_the_best_figure(name):
    same = value(name, TEXTS, TEXTS)
    # METEOR takes something off even for one chunk: 1 − 0.5 / m³
    assert same == (0 if name in UNBOUNDED else pytest.approx(100, abs=0.2 if name == "meteor" else 1e-9))
    worse = value(name, ["A cat sat on the mats, and", *TEXTS[1:]], TEXTS)
    assert (worse > same) == (metric(name).better == "lower")
    assert worse != same


@every_metric
def test_a_reference_more_cannot_hurt(name):
    hypotheses = [text.replace("the", "a") for text in TEXTS]
    one = value(name, hypotheses, TEXTS)
    both = judge([name], hypotheses, list(zip(TEXTS, hypotheses, strict=True)))[name]
    assert both.value <= one if both.better == "lower" else both.value >= one
    assert "nrefs:2" in both.signature


@every_metric
def test_statistics_add_up_to_the_figure_of_the_text(name):
    own, hypotheses = metric(name), [text.replace("the", "a") for text in TEXTS]
    table = np.stack([own.statistics(*pair) for pair in zip(hypotheses, ([text] for text in TEXTS), strict=True)])
    assert table.dtype == np.float64
    assert table.ndim == 2
    found = judge([name], hypotheses, [[text] for text in TEXTS])[name]
    assert found.value == own.figure(table.sum(axis=0))
    assert found.parts == own.parts(table.sum(axis=0))
    assert own.figure(3 * table.sum(axis=0)) == pytest.approx(found.value)  # thrice the same lines


@every_metric
def test_order_of_lines_does_not_matter(name):
    hypotheses = [*TEXTS[1:], "The dog sat on the cat, and the mat ran."]
    pairs = list(zip(hypotheses, TEXTS, strict=True))
    random.Random(0).shuffle(pairs)
    assert value(name, *zip(*pairs, strict=True)) == pytest.approx(value(name, hypotheses, TEXTS))


@every_metric
@pytest.mark.parametrize(("hypothesis", "reference"), [("", "a b c d"), ("a b c d", ""), ("", ""), (" ", "\t")])
def test_empty_lines_have_answers(name, hypothesis, reference):
    found = judge([name], [hypothesis], [[reference]], resamples=3)[name]
    blank = not hypothesis.strip() and not reference.strip()
    if name in UNBOUNDED:
        assert found.value == (0 if blank else 100)
    else:
        assert found.value == (100 if blank and name == "exact" else 0)
    assert found.interval == (found.value, found.value)


@every_metric
@settings(deadline=None, max_examples=30)
@given(hypotheses=lines, references=lines)
def test_bounds_and_intervals(name, hypotheses, references):
    both = min(len(hypotheses), len(references))
    judged = Judged([name], hypotheses[:both], [[text] for text in references[:both]], resamples=20)
    (found,) = judged.figures().values()
    assert found.lines == both
    for figure in (found.value, *found.interval):
        assert np.isfinite(figure)
        assert 0 <= figure <= (np.inf if name in UNBOUNDED else 100 + 1e-9)
    assert found.interval[0] <= found.interval[1]
    difference = judged.against(judged)[name]
    assert (difference.value, difference.interval, difference.p_value, difference.better_in) == (0, (0, 0), 1, 0)


@every_metric
def test_differences_change_their_sign_with_their_order(name):
    one, other = (
        Judged([name], system, [[text] for text in TEXTS * 5], resamples=200)
        for system in (TEXTS * 5, [*TEXTS[:2], "The two.", "She ran to the river."] * 5)
    )
    here, back = one.against(other)[name], other.against(one)[name]
    assert (here.value > 0) == (metric(name).better == "higher")
    assert here.value == -back.value
    assert here.interval == tuple(-end for end in reversed(back.interval))
    assert here.interval[0] <= here.value <= here.interval[1]
    assert here.p_value == back.p_value < 0.05
    assert here.better_in == pytest.approx(1, abs=0.01)


@every_metric
def test_signatures_name_the_metric_and_a_version(name):
    signature = metric(name).signature(None)
    assert signature.lower().startswith(name.split("+")[0])
    assert "nrefs:var" in signature
    assert "version:" in signature
