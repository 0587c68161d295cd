"""Forecasting from end to end, on series whose future is known."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tolerance import SMALL_NET, rounding

import seqlab
from seqlab.cli import group
from seqlab.data.batching.series_windows import places
from seqlab.data.randomness import Key
from seqlab.errors import Caution, SeqlabError
from seqlab.recipe import Recipe
from seqlab.runs.checkup import check
from seqlab.tasks.forecasting import Forecasting
from seqlab.training.manifest import accept
from seqlab.training.trainer import Silence


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two turning columns, far from zero and of different spread: the next step is a linear map of the last two."""
    path = tmp_path_factory.mktemp("series") / "turning.csv"
    t = np.arange(400)
    rows = zip(t, 100 + 5 * np.sin(0.3 * t), -3 + 0.1 * np.cos(0.2 * t), strict=True)
    path.write_text("day,a,b\n" + "".join(f"d{t},{a:.9f},{b:.9f}\n" for t, a, b in rows))
    return path


def recipe(train, model="series-dense", steps=300, data=None, **task):
    return Recipe.from_dict(
        {
            "task": {"kind": "forecasting", **task},
            "data": {"train": str(train), **(data or {})},
            "model": {"kind": model} if isinstance(model, str) else model,
            "objective": "forecast",
            "training": {"steps": steps, "learning_rate": 0.02, "optimizer": "adam"},
        }
    )


def prepared(train, **settings):
    made = recipe(train, **settings)
    return Forecasting.prepare(made), made.data


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    return seqlab.train(recipe(table, window=6, horizon=2), out=tmp_path_factory.mktemp("runs") / "run")


def test_it_learns_in_the_units_of_the_data(run, table):
    found = run.evaluate()
    assert found["scaled_mse"] < 0.02 * found["scaled_naive_mse"]
    values = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    starts = np.arange(320, 399)  # the last fifth
    naive = np.concatenate([values[starts + ahead] - values[starts - 1] for ahead in (0, 1)])
    for place, name in enumerate("ab"):
        assert found[f"naive_mse.{name}"] == pytest.approx((naive[:, place] ** 2).mean(), rel=rounding(8, 100))
    assert found["numbers"] == 79 * 2 * 2


def test_columns_of_different_size_are_pooled_without_their_units(run, table, tmp_path):
    """The larger column must not drown the other: figures of each, and pooled ones that no unit changes."""
    found = run.evaluate()
    assert not {"mse", "mae", "naive_mse"} & set(found)
    spread = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))[:320].std(0)
    for name, power in {"mse": 2, "mae": 1, "naive_mse": 2}.items():
        each = [found[f"{name}.{column}"] / unit**power for column, unit in zip("ab", spread, strict=True)]
        assert found[f"scaled_{name}"] == pytest.approx(np.mean(each), rel=1e-6)
    rows = [line.split(",") for line in table.read_text().splitlines()[1:]]
    (tmp_path / "b.csv").write_text("day,a,b\n" + "".join(f"{d},{a},{1e6 * float(b)!r}\n" for d, a, b in rows))
    other = seqlab.train(recipe(tmp_path / "b.csv", window=6, horizon=2), out=tmp_path / "run").evaluate()
    assert other["scaled_naive_mse"] == pytest.approx(found["scaled_naive_mse"], rel=1e-4)
    assert other["naive_mse.b"] == pytest.approx(1e12 * found["naive_mse.b"], rel=1e-4)


def test_one_column_has_plain_figures(table, tmp_path):
    one = seqlab.train(recipe(table, window=6, columns=["a"], steps=5), out=tmp_path / "one").evaluate()
    assert {"loss", "mse", "mae", "naive_mse", "numbers"} <= set(one)
    assert not [name for name in one if "." in name or name.startswith("scaled")]


def test_evaluate_prints_the_figures_of_each_column(run):
    said = CliRunner().invoke(group, ["evaluate", str(run.folder)])
    assert said.exit_code == 0, said.output
    lines = [line.split() for line in said.output.splitlines() if line.strip()]
    assert ["column", "mse", "mae", "naive", "mse"] in lines
    assert [line[0] for line in lines if len(line) == 4 and line[0] in "ab"] == ["a", "b"]
    assert "scaled mse" in said.output


def test_largest_residuals_name_the_step(run, tmp_path):
    arguments = ["evaluate", str(run.folder), "--errors", "--worst", "1", "--out", str(tmp_path / "errors.svg")]
    (row,) = json.loads(CliRunner().invoke(group, [*arguments, "--json"]).output.splitlines()[0])["errors"]["largest"]
    said = CliRunner().invoke(group, arguments)
    assert said.exit_code == 0, said.output
    assert f"turning.csv, step {row['step']}" in " ".join(said.output.split())


def test_a_run_has_no_tokenizer_and_says_so(run):
    assert not (run.folder / "tokenizer").exists()
    loaded = seqlab.load(run.folder)
    assert loaded.evaluate() == run.evaluate()
    for use in (lambda: loaded.tokenizer, lambda: loaded.score(["text"])):
        with pytest.raises(SeqlabError, match="no tokenizer"):
            use()
    with pytest.raises(SeqlabError, match="does not read text"):
        loaded.generate("text")


def test_it_goes_on_from_the_end_of_a_series(run, table):
    [one] = run.predict(str(table))
    assert set(one["forecast"]) == {"a", "b"}
    assert one["forecast"]["a"] == pytest.approx(100 + 5 * np.sin(0.3 * np.array([400, 401])), abs=0.6)
    assert [part.split(": ")[0] for part in one["answer"].split(", ")] == ["a", "b"]
    [far] = run.predict(str(table), steps=7)
    assert len(far["forecast"]["a"]) == 7
    assert far["forecast"]["a"][:2] == one["forecast"]["a"]


def test_forecasts_that_are_read_are_those_of_a_longer_series(run, table, tmp_path):
    """Two steps at once, then the two after them, are what a file with the first two in it gives."""
    [far] = run.predict(str(table), steps=4)
    longer = tmp_path / "longer.csv"
    added = zip(far["forecast"]["a"][:2], far["forecast"]["b"][:2], strict=True)
    longer.write_text(table.read_text() + "".join(f"x,{a!r},{b!r}\n" for a, b in added))
    [after] = run.predict(str(longer))
    assert far["forecast"]["a"][2:] == pytest.approx(after["forecast"]["a"], rel=rounding(SMALL_NET))


def test_the_command_line(run, table):
    said = CliRunner().invoke(group, ["predict", str(run.folder), str(table), "--steps", "3", "--json"])
    assert said.exit_code == 0, said.output
    assert len(json.loads(said.output)["forecast"]["b"]) == 3


def test_printed_forecasts_name_their_columns(run, table, tmp_path):
    said = CliRunner().invoke(group, ["predict", str(run.folder), str(table)])
    assert re.fullmatch(r"a: \S+ \S+, b: \S+ \S+\n", said.output)
    alone = seqlab.train(recipe(table, window=6, targets=["b"], steps=2), out=tmp_path / "alone")
    said = CliRunner().invoke(group, ["predict", str(alone.folder), str(table)])
    assert re.fullmatch(r"\S+\n", said.output)


def test_typed_lines_are_series(tmp_path):
    made = recipe("waves:12:100", window=8, steps=2, model="series-linear")
    run = seqlab.train(made, out=tmp_path / "run")
    said = CliRunner().invoke(group, ["predict", str(run.folder)], input="1 2 3 4 5 6 7 8 9\n1 2 3\n")
    assert said.exit_code == 0, said.output
    assert len(said.output.splitlines()) == 2


# ---------------------------------------------------------------------- columns that are left out


class Notes(Silence):
    """Keeps what is said."""

    def __init__(self):
        self.notes = []

    def said(self, message):
        self.notes.append(message)


def test_columns_that_are_left_out_are_said(tmp_path):
    rows = [f"1981-01-{day % 28 + 1:02d},{1700 + day},shop,{np.sin(day):.5f}\n" for day in range(60)]
    (tmp_path / "a.csv").write_text("date,year,kind,sales\n" + "".join(rows))
    notes = Notes()
    run = seqlab.train(recipe(tmp_path / "a.csv", window=4, steps=2), out=tmp_path / "run", watcher=notes)
    assert run.task.columns == ["sales"]
    [note] = [note for note in notes.notes if "left out" in note]
    for part in ("'date' (no numbers)", "'kind' (no numbers)", "'year' (counts time)", "task.columns"):
        assert part in note
    assert "\n" not in note
    accept(run.folder)
    loaded = seqlab.load(run.folder)
    assert loaded.evaluate() == run.evaluate()
    assert set(next(loaded.predict(str(tmp_path / "a.csv")))["forecast"]) == {"sales"}


def test_columns_that_only_the_second_file_has_are_said(tmp_path):
    for name, more in {"a.csv": "", "b.csv": ",price"}.items():
        rows = [f"d{day},{np.sin(day):.5f}{',' * bool(more)}{day % 7 if more else ''}\n" for day in range(60)]
        (tmp_path / name).write_text(f"date,sales{more}\n" + "".join(rows))
    both = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    notes = Notes()
    made = recipe("", window=4, steps=2, data={"train": both})
    run = seqlab.train(made, out=tmp_path / "run", watcher=notes)
    assert run.task.columns == ["sales"]
    [note] = [note for note in notes.notes if "left out" in note]
    assert "left out: 'date' (no numbers), 'price' (not in the first file) (task.columns" in note
    named = recipe("", window=4, steps=2, columns=["sales"], data={"train": both})
    seqlab.train(named, out=tmp_path / "named", watcher=(told := Notes()))
    assert not any("left out" in note for note in told.notes)


@pytest.mark.parametrize("named", [{"columns": ["year", "sales"]}, {"targets": ["year"]}])
def test_a_column_that_is_named_is_read_whatever_it_counts(tmp_path, named):
    rows = [f"{1700 + day},{np.sin(day):.5f}\n" for day in range(60)]
    (tmp_path / "a.csv").write_text("year,sales\n" + "".join(rows))
    task, _ = prepared(tmp_path / "a.csv", window=4, **named)
    assert task.columns == ["year", "sales"]


def test_a_run_that_reads_a_year_goes_on_reading_it(tmp_path):
    """As runs do that were trained before years were left out: what a run reads is in its memory."""
    rows = [f"{1700 + day},{np.sin(day):.5f}\n" for day in range(60)]
    (tmp_path / "a.csv").write_text("year,sales\n" + "".join(rows))
    run = seqlab.train(recipe(tmp_path / "a.csv", window=4, steps=2, columns=["year", "sales"]), out=tmp_path / "run")
    text = (run.folder / "recipe.yaml").read_text()
    (run.folder / "recipe.yaml").write_text(re.sub(r"columns:\n\s+- year\n\s+- sales\n", "columns: null\n", text))
    assert "- year" not in (run.folder / "recipe.yaml").read_text()
    accept(run.folder)
    loaded = seqlab.load(run.folder)
    assert loaded.evaluate() == run.evaluate()
    assert set(next(loaded.predict(str(tmp_path / "a.csv")))["forecast"]) == {"year", "sales"}


def test_a_copy_of_the_training_series_is_said(table, run, tmp_path):
    shutil.copy(table, tmp_path / "copy.csv")
    with pytest.warns(Caution, match=r"400 of 400 held-out steps \(.*\) are also in the training data"):
        seqlab.train(
            recipe(table, window=6, steps=2, data={"valid": str(tmp_path / "copy.csv")}), out=tmp_path / "run"
        ).evaluate()
    with pytest.warns(Caution, match=r"320 of 400 held-out steps \(80 %\) are also in the training data"):
        run.evaluate(str(tmp_path / "copy.csv"))


def test_windows_that_are_cut_short_are_said(tmp_path):
    lines = [json.dumps({"v": [0.1 * step for step in range(length)]}) for length in [30] * 15 + [8] * 15]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    notes = Notes()
    made = recipe(tmp_path / "a.jsonl", window=10, row="series", steps=2)
    run = seqlab.train(made, out=tmp_path / "run", watcher=notes)
    said = [note for note in notes.notes if "task.window=10" in note]
    assert len(said) == 2
    train, valid = (run.task.split(run.recipe.data, which, training=False) for which in ("train", "valid"))
    assert train.shorter + valid.shorter == 15
    assert said[0].startswith(f"{train.shorter} of {len(train)} training windows")
    assert said[1].startswith(f"{valid.shorter} of {len(valid)} held-out windows")
    assert run.evaluate()["signature"]["shorter windows"] == valid.shorter
    assert {finding.note for finding in check(made) if finding.name == "data"} == set(said)
    with pytest.warns(Caution, match="^15 of 30 series have fewer steps than task.window=10$"):
        run.predict(str(tmp_path / "a.jsonl"))


def test_a_window_longer_than_the_only_series_is_said(tmp_path):
    np.save(tmp_path / "a.npy", np.sin(np.arange(40.0)))
    notes = Notes()
    seqlab.train(recipe(tmp_path / "a.npy", window=100, steps=2), out=tmp_path / "run", watcher=notes)
    assert any(note.startswith("1 of 1 training windows are shorter than task.window=100") for note in notes.notes)


def test_whole_windows_need_no_word(table, tmp_path):
    notes = Notes()
    run = seqlab.train(recipe(table, window=6, columns=["a"], steps=2), out=tmp_path / "run", watcher=notes)
    assert not [note for note in notes.notes if "window" in note or "left out" in note]
    assert "shorter windows" not in run.evaluate()["signature"]


def test_several_answers_are_all_given(tmp_path):
    lines = [json.dumps({"v": [n, n + 1], "found": [2 * n, -n]}) for n in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    run = seqlab.train(
        recipe(tmp_path / "a.jsonl", mode="answer", row="series", answer="found", steps=2), out=tmp_path / "run"
    )
    one = next(run.predict(str(tmp_path / "a.jsonl")))
    assert list(one["forecast"]) == ["answer 1", "answer 2"]
    assert "mse.answer 2" in run.evaluate()


# ---------------------------------------------------------------------- windows


def test_windows_end_with_the_series_and_shorter_ones_are_allowed():
    assert list(places(20, 0, window=5, horizon=3, stride=4)) == [5, 9, 13, 17]
    assert list(places(20, 0, window=5, horizon=3, stride=5)) == [7, 12, 17]
    assert list(places(6, 0, window=5, horizon=3, stride=1)) == [3]
    assert list(places(20, 18, window=5, horizon=2, stride=1)) == [18]
    assert not places(3, 0, window=5, horizon=3, stride=1)


def test_inputs_and_targets_are_those_of_the_file(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(20.0))
    task, data = prepared(tmp_path / "a.npy", window=4, horizon=2, normalise=False)
    train, valid = (task.split(data, which, training=False) for which in ("train", "valid"))
    batch = train.batch(np.array([0, 1]), Key(0, 0))
    assert batch["inputs"][..., 0].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert batch["targets"][..., 0].tolist() == [[4, 5], [5, 6]]
    assert batch["naive"].tolist() == [[3], [4]]
    assert "mask" not in batch
    last = train.batch(np.array([len(train) - 1]), Key(0, 0))["targets"][0, -1, 0]
    assert last == 15  # nothing of what is held out
    first = valid.batch(np.array([0]), Key(0, 0))
    assert (first["inputs"].ravel().tolist(), first["targets"].ravel().tolist()) == ([12, 13, 14, 15], [16, 17])


def test_every_step_has_targets(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(20.0))
    own = {"mode": "every", "window": 3, "horizon": 2, "normalise": False}
    task, data = prepared(tmp_path / "a.npy", model="series-recurrent", **own)
    batch = task.split(data, "train", training=True).batch(np.array([0]), Key(0, 0))
    assert batch["inputs"].ravel().tolist() == [0, 1, 2]
    assert batch["targets"][0, ..., 0].tolist() == [[1, 2], [2, 3], [3, 4]]


def test_series_of_different_lengths_are_padded(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"v": [1, 2, 3, 4, 5, 6]}\n{"v": [7, 8, 9]}\n')
    where = str(tmp_path / "a.jsonl")
    task, data = prepared(where, window=4, row="series", normalise=False, data={"valid": "waves:9:10"})
    batch = task.split(data, "train", training=False).batch(np.array([0, 1, 2]), Key(0, 0))
    assert batch["inputs"][..., 0].tolist() == [[1, 2, 3, 4], [2, 3, 4, 5], [7, 8, 0, 0]]
    assert batch["mask"].sum(1).tolist() == [4, 4, 2]
    assert batch["targets"].ravel().tolist() == [5, 6, 9]


def test_what_is_forecast_comes_first_and_only_that(table):
    task, data = prepared(table, targets=["b"], window=5)
    assert (task.columns, task.sizes["inputs"], task.sizes["outputs"]) == (["b", "a"], 2, 1)
    batch = task.split(data, "train", training=False).batch(np.array([0]), Key(0, 0))
    assert batch["targets"].shape == (1, 1, 1)
    assert batch["spread"].tolist() == pytest.approx([0.1 / 2**0.5], rel=0.1)
    with pytest.raises(SeqlabError, match="are unknown so far ahead"):
        task.ahead(2)


def test_normalised_by_the_training_part_alone(tmp_path):
    values = np.r_[np.tile([1.0, 3.0], 40), np.full(20, 1000.0)]
    np.save(tmp_path / "a.npy", values)
    task, data = prepared(tmp_path / "a.npy", window=4)
    assert task.memory()["inputs"] == {"mean": [2.0], "spread": [1.0]}
    batch = task.split(data, "train", training=False).batch(np.array([0]), Key(0, 0))
    assert batch["inputs"].ravel().tolist() == [-1, 1, -1, 1]


# ---------------------------------------------------------------------- answers of whole series


def test_answers_of_whole_series(tmp_path):
    lines = [json.dumps({"v": [n, n + 1], "m": [1, 0], "sum": 2 * n}) for n in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    own = {"mode": "answer", "row": "series", "answer": "sum"}
    made = recipe(tmp_path / "a.jsonl", **own)
    run = seqlab.train(made, out=tmp_path / "run")
    assert run.evaluate()["mse"] < 0.01 * run.evaluate()["naive_mse"]
    (tmp_path / "asked.jsonl").write_text('{"v": [10, 11], "m": [1, 0]}\n')
    [one] = run.predict(str(tmp_path / "asked.jsonl"))
    assert one["forecast"]["answer"] == pytest.approx([20], abs=1)


def test_the_adding_problem_is_learnt(tmp_path):
    model = {"kind": "series-recurrent", "cell": "gru", "width": 16}
    run = seqlab.train(recipe("adding:8:3000", model, steps=250, mode="answer"), out=tmp_path / "run")
    found = run.evaluate()
    assert found["naive_mse"] == pytest.approx(1 / 6, rel=0.15)
    assert found["mse"] < 0.2 * found["naive_mse"]


def test_an_interrupted_run_ends_with_the_same_bits(table, tmp_path):
    class Plug(Silence):
        def stepped(self, step, steps, figures):
            if step == 7:
                raise ConnectionError

    model = {"kind": "series-recurrent", "cell": "gru", "width": 5, "dropout": 0.2, "depth": 2}
    made = recipe(table, model, steps=12, window=6, mode="every").changed({"training.checkpoint_every": 5})
    whole = seqlab.train(made, out=tmp_path / "whole")
    with pytest.raises(ConnectionError):
        seqlab.train(made, out=tmp_path / "broken", watcher=Plug())
    broken = seqlab.train(made, out=tmp_path / "broken", resume=True)
    for name, weight in whole.objective.state_dict().items():
        assert torch.equal(weight, broken.objective.state_dict()[name])
    assert whole.log == broken.log


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokenizer": "byte"}, "numbers need no tokenizer"),
        ({"task.mode": "every"}, "can only forecast what follows a whole window"),
        ({"model.kind": "recurrent-encoder"}, "needs vocab_size"),
        ({"task.targets": ["c"]}, "'c' is not among the columns"),
        ({"task.columns": ["aa"]}, "no column 'aa'"),
        ({"task.mode": "answer"}, "cannot be cut"),
        ({"task.horizon": 90}, "80 steps are too few to forecast 90"),
        ({"task.mode": "answer", "task.horizon": 2}, "an answer has no horizon"),
        ({"task.answer": "a"}, "needs mode: answer"),
        ({"data.scramble": 0.5}, "series are numbers"),
        ({"data.train": "adding", "task.mode": "answer", "model.kind": "series-linear"}, "so it cannot give an answer"),
        ({"data.train": "waves", "task.mode": "answer"}, "the series has no answer"),
        ({"task.kind": "language-modelling"}, "'tokenizer' is missing"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(table, tmp_path, changes, expected):
    with pytest.raises(SeqlabError, match=expected) as raised:
        seqlab.train(recipe(table, window=6), changes, out=tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()
