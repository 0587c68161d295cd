"""Small trainings that take a second, and everything about two runs that must be equal to the bit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqlab.build import build
from seqlab.recipe import Recipe
from seqlab.runs import preparation
from seqlab.runs.launch import train
from seqlab.training.log import read_log
from seqlab.training.trainer import Silence

TEXT = "the cat sat on a mat and saw many small red birds fly over green hills to an old house"

MODELS = {
    "windows": {"kind": "gpt", "width": 16, "depth": 1, "heads": 2, "context": 16, "dropout": 0.1},
    "streams": {"kind": "recurrent", "cell": "lstm", "width": 12, "depth": 2, "dropout": 0.1},
}
READINGS = list(MODELS)


def write_text(path: Path, characters: int = 2000, seed: int = 0, words: list[str] | None = None) -> Path:
    """Words in a random order."""
    chance, words = random.Random(seed), words or TEXT.split()
    path.write_text(" ".join(chance.choice(words) for _ in range(characters))[:characters], encoding="utf-8")
    return path


def recipe(folder: Path, reading: str, model: dict[str, Any] | None = None, **training: Any) -> Recipe:
    """A dozen batches an epoch, the last one smaller; reports, evaluations, ... on grids that do not coincide."""
    text = folder / "text.txt"
    if not text.exists():
        write_text(text)
    grid = {"report_every": 3, "evaluate_every": 5, "sample_every": 4, "checkpoint_every": 2}
    return Recipe.from_dict(
        {
            "task": {"kind": "language-modelling", "reading": reading, "window": 16, "lanes": 2},
            "data": {"train": str(text), "hold_out": 0.1},
            "tokenizer": "character",
            "model": MODELS[reading] | (model or {}),
            "objective": "next-token",
            "training": {"steps": 40, "batch_size": 10, "learning_rate": 0.01, "products": "compiled"}
            | grid
            | training,
            "decoding": {"tokens": 12},
        }
    )


def write_recipe(recipe: Recipe, path: Path) -> str:
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    return str(path)


def outcome(run: Path) -> dict[str, bytes]:
    """Every file of a run but its timing."""
    files = (path for path in sorted(run.rglob("*")) if path.is_file() and path.name != "timing.jsonl")
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """The files that are not the same to the byte."""
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def step_folder(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def saved_steps(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*"))


def last_step(run: Path) -> int:
    """How far the log of a run has come, which may be training at this moment."""
    log = read_log(run / "log.jsonl")
    return int(log[-1]["step"]) if log else 0


def until(true: Callable[[], bool], child: Any, pause: float = 0.001) -> None:
    """Wait for something that a child process does."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, f"nothing happens: {child.output}"
        time.sleep(pause)


class Killed(Exception):
    """Stands for SIGKILL: nothing in seqlab catches it."""


class KillAt(Silence):
    """Ends a training in this process right after a step, before anything about it is written."""

    def __init__(self, step: int) -> None:
        self.step = step

    def stepped(self, step: int, steps: int, figures: dict[str, float]) -> None:
        if step == self.step:
            raise Killed


def train_until(recipe: Recipe, run: Path, step: int) -> None:
    """Train in this process, and be killed at a step."""
    with pytest.raises(Killed):
        train(recipe, out=run, resume=run.exists(), watcher=KillAt(step))


def exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, trainings begin with the same weights, but go on in double precision."""
    monkeypatch.setattr(preparation, "build", lambda recipe, task: build(recipe, task).double())
