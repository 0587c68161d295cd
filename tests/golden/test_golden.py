"""Runs made by earlier versions go on loading to the same answers, and those that were stopped can be finished.

A folder `format-N` holds runs of that format of run folders; `make.py` says how they were made.
"""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch

import seqlab
from seqlab.training.log import read_log

HERE = Path(__file__).parent
spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

FORMATS = sorted(HERE.glob("format-*"))
FINISHED = [path for folder in FORMATS for path in sorted((folder / "finished").iterdir())]
HALF = [path for folder in FORMATS for path in sorted((folder / "half").iterdir())]

FIGURES = 1e-5
"""Relative: what another processor's float32 sums and exponentials differ by, over at most 513 positions."""
TRAINED = 1e-3
"""Relative: after 27 steps of an optimizer that divides each gradient by its own size, rounding included."""


def name_of(path):
    return f"{path.parents[1].name}-{path.name}"


@pytest.fixture
def golden(tmp_path, monkeypatch):
    """A copy of a format's folder that may be written, and the place where its data are found."""

    def copied(path):
        shutil.copytree(path.parents[1] / "data", tmp_path / "data")
        shutil.copytree(path, tmp_path / path.parent.name / path.name)
        monkeypatch.chdir(tmp_path)
        return Path(path.parent.name) / path.name

    return copied


def assert_alike(found, expected, where=""):
    """Whatever is expected is found; there may be more. How a question is repeated beside its answer may change."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            if key == "text":
                continue
            assert key in found, f"{where}.{key} is gone"
            assert_alike(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_alike(one, other, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=FIGURES, abs=FIGURES), where
    else:
        assert found == expected, where


def comparable(expected):
    """Without what is told in other words now: errors of forecasts pooled over columns of different units, and the line
    that a forecast is printed as."""
    forecasts = "numbers" in expected["figures"]
    figures = {k: v for k, v in expected["figures"].items() if not (forecasts and k in ("mse", "mae", "naive_mse"))}
    answers = [
        {k: v for k, v in one.items() if k != "answer"} if forecasts else one for one in expected.get("answers", [])
    ]
    return {**expected, "figures": figures, **({"answers": answers} if answers else {})}


def test_every_family_of_models_has_a_golden_run():
    kinds = {make.FAMILIES[name]["model"]["kind"] for name in make.FAMILIES} | {"mixture"}
    assert kinds == set(seqlab.registry.MODELS) - {"run"}  # that is the model of another run


@pytest.mark.parametrize("path", FINISHED, ids=name_of)
def test_golden_runs_load_to_the_same_answers(path, golden):
    run = seqlab.load(golden(path))
    expected = json.loads((path.parents[1] / "expected.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(make.answers_of(run, Path("."))))
    assert_alike(found, comparable(expected[path.name]), path.name)


@pytest.mark.parametrize("path", HALF, ids=name_of)
def test_half_finished_golden_runs_can_be_finished(path, golden):
    torch.set_num_threads(1)
    folder = golden(path)
    run = seqlab.train(seqlab.Recipe.from_dict(make.recipe_of(path.name)), out=folder, resume=True)
    finished = read_log(path.parents[1] / "finished" / path.name / "log.jsonl")
    assert [entry["step"] for entry in run.log] == [entry["step"] for entry in finished]
    assert run.log[-1]["step"] == make.STEPS
    losses, expected = ([entry.get("valid", entry)["loss"] for entry in log] for log in (run.log, finished))
    assert losses == pytest.approx(expected, rel=TRAINED)
