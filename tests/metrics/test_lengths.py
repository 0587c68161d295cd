"""Figures by source length: every line in one bin, the bins a matter of the lengths alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.metrics import Judged, judge
from seqlab.metrics.lengths import BINS, by_length


def judged(texts: list[str], references: list[str]) -> Judged:
    return Judged(["exact", "wer"], texts, [[one] for one in references])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_every_line_is_in_one_bin(lengths: list[int]):
    bins = by_length(judged(["a"] * len(lengths), ["a"] * len(lengths)), lengths)
    assert 1 <= len(bins) <= BINS
    for own in bins:
        assert own["lines"] == sum(own["shortest"] <= length <= own["longest"] for length in lengths) > 0
    assert sum(own["lines"] for own in bins) == len(lengths)
    assert all(a["longest"] < b["shortest"] for a, b in pairwise(bins))


def test_bins_hold_about_as_many_lines_each():
    lengths = np.random.default_rng(0).permutation(1000).tolist()
    bins = by_length(judged(["a"] * 1000, ["a"] * 1000), lengths)
    assert [own["lines"] for own in bins] == [200] * 5
    assert [own["shortest"] for own in bins] == [0, 200, 400, 600, 800]


def test_figures_are_those_of_the_lines_alone():
    rng = np.random.default_rng(1)
    texts, references = ([" ".join(rng.choice(list("abc"), 3)) for _ in range(40)] for _ in range(2))
    lengths = rng.integers(1, 9, 40).tolist()
    for own in by_length(judged(texts, references), lengths):
        some = [n for n, length in enumerate(lengths) if own["shortest"] <= length <= own["longest"]]
        alone = judge(["exact", "wer"], [texts[n] for n in some], [[references[n]] for n in some])
        assert own["figures"] == pytest.approx({name: figure.value for name, figure in alone.items()})


def test_all_alike_is_one_bin():
    (own,) = by_length(judged(["a", "b"], ["a", "a"]), [7, 7])
    assert own == {"shortest": 7, "longest": 7, "lines": 2, "figures": {"exact": 50.0, "wer": 50.0}}
