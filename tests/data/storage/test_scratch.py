"""Columns in memory and in files do the same, and answers come back in the order in which rows were sent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.storage.scratch import Ranges, Scratch


@pytest.fixture(params=["memory", "disk"])
def scratch(request, tmp_path):
    with Scratch(rows=4, folder=tmp_path / "scratch" if request.param == "disk" else None) as made:
        yield made


def test_columns_are_appended_to_and_read_in_ranges(scratch):
    column = scratch.column(np.float32)
    assert column.read().tolist() == []
    for part in ([1, 2, 3], [], [4], [5, 6]):
        column.append(np.array(part))
    assert len(column) == 6
    assert column.read().dtype == np.float32
    assert column.read().tolist() == [1, 2, 3, 4, 5, 6]
    assert column.read(2, 5).tolist() == [3, 4, 5]
    assert column.read(4, 99).tolist() == [5, 6]
    column.drop()
    assert len(column) == 0
    assert column.read().tolist() == []


def test_pieces_and_bounds(scratch):
    assert list(scratch.pieces(10, start=1)) == [(1, 5), (5, 9), (9, 10)]
    assert list(scratch.pieces(0)) == []
    assert scratch.even_bounds(9).tolist() == [0, 4, 8, 9]
    assert scratch.even_bounds(0).tolist() == [0, 1]


def test_the_folder_is_removed_whatever_happens(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "left by a process that was killed").touch()
    with pytest.raises(FileNotFoundError), Scratch(rows=4, folder=folder):
        next(folder.iterdir(), folder / "nothing is left").read_bytes()
    assert not folder.exists()


@given(
    st.lists(st.lists(st.integers(0, 19), max_size=9), max_size=6),
    st.sets(st.integers(1, 19)),
    st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_answers_come_back_in_the_order_of_sending(batches, bounds, rows):
    """A table is looked up through ranges, and read back in other pieces than it was asked in."""
    table = np.arange(20) ** 2
    ranges = Ranges(Scratch(rows), np.array([0, *sorted(bounds), 20]), columns=2)
    for batch in batches:
        ids = np.array(batch, dtype=np.int64)
        ranges.send(ids, ids, -ids)
    for place, first, stop in ranges:
        for ids, negative in ranges.rows(place):
            assert len(ids) <= rows
            assert (ids == -negative).all()
            assert ((first <= ids) & (ids < stop)).all()
            ranges.answer(place, table[ids])
    ids = np.array([number for batch in batches for number in batch], dtype=np.int64)
    assert np.concatenate([ranges.collect(part) for part in np.array_split(ids, 3)]).tolist() == table[ids].tolist()
