"""Series that are made: the same always, of the size asked for, and what their definitions say of them."""

import numpy as np
import pytest

from seqlab.data.builtin.synthetic import synthetic
from seqlab.data.reading.readers import fingerprint, read
from seqlab.errors import DataError
from seqlab.recipe import DataSettings


def values(name, split="train"):
    return np.stack([one.values for one in synthetic(name, split).series])


def test_waves_have_the_sizes_and_the_statistics_of_their_formula():
    parts = [values("waves"), values("waves", "valid"), values("waves-test", "valid")]
    assert [part.shape for part in parts] == [(7000, 51, 1), (2000, 51, 1), (1000, 51, 1)]
    whole = np.concatenate(parts)
    assert np.abs(whole).max() <= 0.75
    # variances of the sines are ½ 0.5² and ½ 0.2², that of the noise is 0.1² / 12
    assert whole.var() == pytest.approx(0.125 + 0.02 + 0.01 / 12, rel=0.02)
    assert len(np.unique(whole[:, 0])) > 9990  # the parts share no series


def test_the_sum_of_the_marked_numbers_is_the_answer():
    found = synthetic("adding:30:50", "train")
    assert (len(found.series), found.columns) == (35, ("value", "mark"))
    for one in found.series:
        marked = one.values[one.values[:, 1] == 1, 0]
        assert len(marked) == 2
        assert one.answer == pytest.approx(marked.sum())
        assert one.values[:15, 1].sum() == one.values[15:, 1].sum() == 1


def test_always_answering_one_is_wrong_by_a_sixth():
    answers = np.array([one.answer for one in synthetic("adding:4", "train").series])
    assert ((answers - 1) ** 2).mean() == pytest.approx(1 / 6, rel=0.05)


def test_a_name_means_the_same_numbers_always():
    assert (values("waves:20:100") == values("waves:20:100")).all()
    assert values("waves:20:100")[0, 0, 0] == pytest.approx(FIRST, abs=1e-12)


FIRST = 0.3719055535420013
"""Of waves:20:100: other machines and versions must give the same."""


def test_what_is_asked_for_is_part_of_the_fingerprint():
    prints = {fingerprint(DataSettings(train=name), "train") for name in ("waves", "waves:60", "adding", "adding:60")}
    assert len(prints) == 4


@pytest.mark.parametrize("name", ["adding:x", "adding:1", "adding:100:5", "adding:1:2:3", "waves:-3", "waves:"])
def test_bad_sizes_are_refused(name):
    with pytest.raises(DataError, match=name.partition(":")[0]):
        synthetic(name, "train")


def test_series_are_no_text():
    with pytest.raises(DataError, match="numeric series"):
        list(read(DataSettings(train="waves"), "train"))
