"""Series from every format, in every layout, and what is said when a cell is no number."""

import json

import numpy as np
import pytest

from seqlab.data.formats.series import Layout, series_of
from seqlab.data.reading.series_splits import read_parts
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

DATA = DataSettings(train="unused")
TABLE = {"date": ["a", "b", "c"], "x": [1.0, 2.5, -3.0], "n": [4, 5, 6]}


def write_table(folder, format):
    path = folder / f"table.{format}"
    rows = [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)]
    if format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif format == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(TABLE), path)
    else:
        sign = "," if format == "csv" else "\t"
        path.write_text("\n".join(sign.join(map(str, row)) for row in [TABLE, *(row.values() for row in rows)]))
    return path


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "parquet"])
def test_columns_of_numbers_are_found_or_named(tmp_path, format):
    path = write_table(tmp_path, format)
    found = series_of(path, DATA, Layout())
    assert found.columns == ("x", "n")
    assert found.series[0].values.tolist() == [[1, 4], [2.5, 5], [-3, 6]]
    assert series_of(path, DATA, Layout(columns=("n",))).series[0].values.tolist() == [[4], [5], [6]]


def test_a_column_names_the_series_of_a_row(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text("shop,sales\n7,1\n8,10\n7,2\n8,20\n7,3\n")
    found = series_of(path, DATA, Layout(by="shop"))
    assert found.columns == ("sales",)
    assert [one.values[:, 0].tolist() for one in found.series] == [[1, 2, 3], [10, 20]]
    assert [one.name for one in found.series] == [f"{path}: 7", f"{path}: 8"]


def test_a_row_may_be_a_series_and_end_early(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("name,a,b,c\nx,1,2,3\ny,4,5,\n")
    found = series_of(path, DATA, Layout(row="series"))
    assert [one.values[:, 0].tolist() for one in found.series] == [[1, 2, 3], [4, 5]]


def test_lists_are_series_with_answers(tmp_path):
    path = tmp_path / "lists.jsonl"
    path.write_text('{"v": [1, 2], "m": [0, 1], "sum": 2}\n{"v": [5, 6, 7], "m": [1, 0, 0], "sum": 5}\n')
    found = series_of(path, DATA, Layout(row="series", answer="sum"))
    assert found.columns == ("v", "m")
    assert found.series[1].values.tolist() == [[5, 1], [6, 0], [7, 0]]
    assert [one.answer.tolist() for one in found.series] == [[2], [5]]


def test_plain_text_is_a_table_without_a_header(tmp_path):
    path = tmp_path / "typed.txt"
    path.write_text("1 2\n3, 4\n\n5;6\n")
    assert series_of(path, DATA, Layout()).series[0].values.tolist() == [[1, 2], [3, 4], [5, 6]]
    path.write_text("1 2 3\n4 5\n")
    lines = DATA.model_copy(update={"documents": "line"})
    found = series_of(path, lines, Layout(columns=("Temp",)))
    assert [one.values[:, 0].tolist() for one in found.series] == [[1, 2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("shape", "row", "expected"),
    [
        ((6,), "step", [(6, 1)]),
        ((3, 2), "step", [(3, 2)]),
        ((3, 2), "series", [(2, 1)] * 3),
        ((2, 3, 1), "step", [(3, 1)] * 2),
    ],
)
def test_arrays(tmp_path, shape, row, expected):
    path, array = tmp_path / "a.npy", np.arange(6, dtype=np.float32).reshape(shape)
    np.save(path, array)
    found = series_of(path, DATA, Layout(row=row))
    assert [one.values.shape for one in found.series] == expected
    assert np.concatenate([one.values.ravel() for one in found.series]).tolist() == list(range(6))


@pytest.mark.parametrize(
    ("name", "text", "layout", "expected"),
    [
        ("a.csv", "x,y\n1,2\n3,\n", {}, ["a.csv, line 3, column 'y'", "missing"]),
        ("a.csv", "x,y\n,2\n3,4\n", {}, ["a.csv, line 2, column 'x'", "missing"]),
        ("a.csv", "x\n1\nNaN\n", {}, ["a.csv, line 3, column 'x'", "missing"]),
        ("a.csv", "x\n1\n1_000\n", {}, ["line 3, column 'x'", "'1_000'"]),
        ("a.csv", "x\n1\ninf\n", {}, ["line 3, column 'x'", "'inf'"]),
        ("a.tsv", "x\ty\n1\t2\n3\tabc\n", {}, ["a.tsv, line 3, column 'y'", "not a number but 'abc'"]),
        ("a.csv", "x,y\n1,2\n3\n", {}, ["a.csv, line 3", "1 fields, but the header has 2"]),
        ("a.csv", "x\nabc\n", {}, ["a.csv", "no numeric column", "x"]),
        ("a.csv", "x\n1\n", {"columns": ("xx",)}, ["no column 'xx'", "did you mean 'x'"]),
        ("a.csv", "", {}, ["empty file"]),
        ("a.csv", "x\n", {}, ["no rows"]),
        ("a.csv", "x,y,z\n1,,3\n", {"row": "series", "columns": ("x", "y", "z")}, ["line 2, column 'y'", "missing"]),
        ("a.jsonl", '{"x": [1, 2]}\n', {}, ["column 'x' contains lists", "task.row=series"]),
        ("a.jsonl", '{"x": [1, null]}\n', {"row": "series"}, ["line 1, column 'x', element 2", "missing"]),
        ("a.jsonl", '{"x": [1, 2], "y": [1]}\n', {"row": "series"}, ["different lengths (x 2, y 1)"]),
        ("a.jsonl", '{"x": 1}\n{"x": "a"}\n', {}, ["a.jsonl, line 2, column 'x'", "'a'"]),
        ("a.txt", "1 2\n3\n", {}, ["a.txt, line 2", "1 columns, but the first row has 2"]),
    ],
)
def test_what_is_no_number_is_named_with_its_place(tmp_path, name, text, layout, expected):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as raised:
        series_of(tmp_path / name, DATA, Layout(**layout))
    for part in expected:
        assert part in str(raised.value)


def test_arrays_with_holes_name_the_place(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, 2.0], [3.0, np.nan]]))
    with pytest.raises(DataError, match=r"a.npy, series 1, step 2, column 2"):
        series_of(tmp_path / "a.npy", DATA, Layout())


# ---------------------------------------------------------------------- holding out


def both(data, layout=None, **how):
    how = {"reach": 3, "whole": False, **how}
    return [read_parts(data, split, layout or Layout(), **how).parts for split in ("train", "valid")]


def test_the_end_of_a_long_series_is_held_out(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(20.0))
    [train], [valid] = both(DataSettings(train=str(tmp_path / "a.npy")))
    assert (train.series.values[:, 0].tolist(), train.first) == (list(range(16)), 0)
    assert (valid.series.values[:, 0].tolist(), valid.first) == (list(range(13, 20)), 3)  # 3 steps to look at, then 16
    [_], [valid] = both(DataSettings(train=str(tmp_path / "a.npy"), hold_out=0.5))
    assert valid.series.values[valid.first, 0] == 10


def test_of_many_series_whole_ones_are_held_out(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(120.0).reshape(40, 3))
    train, valid = both(DataSettings(train=str(tmp_path / "a.npy")), Layout(row="series"))
    firsts = [[part.series.values[0, 0] for part in parts] for parts in (train, valid)]
    assert (len(train), len(valid)) == (32, 8)
    assert sorted(firsts[0] + firsts[1]) == list(range(0, 120, 3))


def test_data_of_its_own_for_validation_is_whole(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(20.0))
    np.save(tmp_path / "b.npy", np.arange(9.0))
    [train], [valid] = both(DataSettings(train=str(tmp_path / "a.npy"), valid=str(tmp_path / "b.npy")))
    assert (len(train.series.values), len(valid.series.values), valid.first) == (20, 9, 0)


def test_all_files_have_the_columns_of_the_first(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    (tmp_path / "b.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "c.csv").write_text("y,x\n2,1\n4,3\n")
    names = [str(tmp_path / f"{name}.csv") for name in "abc"]
    with pytest.raises(DataError, match=r"a.csv, line 2: no column 'y'"):
        both(DataSettings(train=names[::-1]))
    train, _ = both(DataSettings(train=names[::-1]), Layout(columns=("x",)))
    assert [part.series.values.tolist() for part in train] == [[[1]]] * 3
    [one, other], _ = both(DataSettings(train=names[1:]))
    assert one.series.values.tolist() == other.series.values.tolist() == [[1, 2]]  # by name, not by place


def test_steps_may_be_named_where_a_row_is_a_series(tmp_path):
    (tmp_path / "a.csv").write_text("id,a,b,c\n1,2,3,4\n5,6,7,8\n")
    (tmp_path / "b.csv").write_text("id,c,b,a\n1,4,3,2\n")
    data, layout = DataSettings(train=str(tmp_path), valid="waves"), Layout(columns=("a", "b", "c"), row="series")
    train, _ = both(data, layout)
    assert [part.series.values[:, 0].tolist() for part in train] == [[2, 3, 4], [6, 7, 8], [2, 3, 4]]
