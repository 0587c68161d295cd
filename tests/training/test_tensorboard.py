"""Event files, read back with TensorBoard's own reader: what the logs say, every step once."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from small_runs import differences, outcome, recipe, train_until
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqlab.errors import RecipeError
from seqlab.runs.launch import train
from seqlab.training.log import read_log


def events(run: Path) -> EventAccumulator:
    found = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def scalars(found: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in found.Scalars(tag)]


def logged(run: Path, name: str, file: str = "log") -> list[tuple[int, float]]:
    return [(entry["step"], entry[name]) for entry in read_log(run / f"{file}.jsonl") if name in entry]


def same(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-6)


def check_all(run: Path) -> None:
    """Everything in the logs is there, once, and nothing else."""
    found = events(run)
    for name in ("loss", "learning_rate", "gradient_norm"):
        same(scalars(found, f"train/{name}"), logged(run, name))
    valid = logged(run, "valid")
    for name in valid[0][1]:
        same(scalars(found, f"valid/{name}"), [(step, metrics[name]) for step, metrics in valid])
    texts = [(event.step, event.tensor_proto.string_val[0].decode()) for event in found.Tensors("sample/text_summary")]
    samples = logged(run, "text", "samples")
    assert [step for step, _ in texts] == [step for step, _ in samples]
    for (_, shown), (_, text) in zip(texts, samples, strict=True):
        assert "".join(line.removeprefix("    ") for line in shown.splitlines()) == text.replace("\n", "")


def test_a_run_that_is_never_stopped(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(recipe(tmp_path, "streams", tensorboard=True), out=run)
    check_all(run)
    same(scalars(events(run), "train/tokens_per_second"), logged(run, "tokens_per_second", "timing"))
    assert len(list((run / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize("reading", ["windows", "streams"])
def test_killed_and_resumed_no_step_is_there_twice(reading: str, tmp_path: Path) -> None:
    """Killed before the first checkpoint, after one, and twice at the same place."""
    plan, run = recipe(tmp_path, reading, tensorboard=True, checkpoint_every=10), tmp_path / "run"
    for step in (4, 19, 19, 33):
        train_until(plan, run, step)
    train(plan, out=run, resume=True)
    check_all(run)
    steps = [step for step, _ in scalars(events(run), "train/tokens_per_second")]
    assert steps == sorted(set(steps))
    assert len(list((run / "tensorboard").iterdir())) == 2  # what was kept, and what came after


def test_killed_while_it_cuts(tmp_path: Path) -> None:
    """The one file is there, the old ones too: at the next try nothing is there twice."""
    plan, run = recipe(tmp_path, "streams", tensorboard=True, checkpoint_every=10), tmp_path / "run"
    train_until(plan, run, 19)
    (old,) = (run / "tensorboard").iterdir()
    (run / "tensorboard" / "events.out.tfevents.0").write_bytes(old.read_bytes())
    train(plan, out=run, resume=True)
    check_all(run)


def test_nothing_else_of_a_run_changes_and_it_may_begin_at_any_time(tmp_path: Path) -> None:
    plain, run = recipe(tmp_path, "streams"), tmp_path / "run"
    train(plain, out=tmp_path / "plain")
    train_until(plain, run, 20)
    assert not (run / "tensorboard").exists()
    train(recipe(tmp_path, "streams", tensorboard=True), out=run, resume=True)
    assert min(step for step, _ in scalars(events(run), "train/loss")) > 15
    found = {name: data for name, data in outcome(run).items() if not name.startswith("tensorboard")}
    assert differences(outcome(tmp_path / "plain"), found) == []


def test_a_model_that_counts(tmp_path: Path) -> None:
    ngram = {"kind": "ngram", "order": 3}
    plan = recipe(tmp_path, "streams").to_dict()
    plan |= {"model": ngram, "training": {"tensorboard": True}}
    run = tmp_path / "run"
    train(type(recipe(tmp_path, "streams")).from_dict(plan), out=run)
    found = events(run)
    ((step, value),) = scalars(found, "valid/perplexity")
    assert (step, value) == (1, pytest.approx(logged(run, "valid")[0][1]["perplexity"], rel=1e-6))
    assert scalars(found, "train/tokens_per_second")
    assert found.Tensors("sample/text_summary")


def test_without_tensorboard_nothing_is_begun(tmp_path: Path, monkeypatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboard" else real(name, *rest)
    )
    with pytest.raises(RecipeError, match=r"training.tensorboard: .* install it: pip install 'seqlab\[tensorboard"):
        train(recipe(tmp_path, "streams", tensorboard=True), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
