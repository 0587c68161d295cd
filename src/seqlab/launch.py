"""From a recipe to a run: look at everything that can be wrong first, then write the folder, then train."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import yaml

import seqlab
from seqlab.build import choose_device
from seqlab.data.readers import both_fingerprints
from seqlab.errors import MemoryFull, RunError
from seqlab.preparation import memory_for_steps, prepare
from seqlab.recipe import Recipe, flatten
from seqlab.run import Run, load, run_recipe, use_code
from seqlab.tasks.task import Task
from seqlab.training.checkpoint import Checkpoints, Snapshot
from seqlab.training.distributed import Ranks, is_first
from seqlab.training.log import Log
from seqlab.training.trainer import Silence, Watcher


def train(
    recipe: str | os.PathLike[str] | Recipe,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    code: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Train a recipe (a shipped name, a YAML file or a Recipe) into a run folder, and load the result.

    >>> run = seqlab.train("lm/gpt", {"training.steps": 200}, out="runs/first")
    """
    watcher = watcher if watcher is not None and is_first() else Silence()
    remembered = use_code(code) if code is not None else {}
    recipe = _recipe(recipe, overrides)
    folder = Path(out) if out is not None else _free_folder(recipe, resume)
    device = choose_device(recipe.training.device)
    ranks = Ranks.join(device)
    try:
        existing = _existing(folder, recipe, resume, ranks, code)
        ranks.wait()  # before the first of them writes anything
        if existing is not None:
            recipe = _with_board(existing, recipe.training.tensorboard)
            watcher.said(_standing(folder, recipe))
            torch.set_num_threads(int(recipe.environment.get("threads", torch.get_num_threads())))
        prepared = prepare(recipe, device, watcher, load_from=folder if existing is not None else None)
        if existing is None:
            recipe = filled(prepared.budgeted(ranks, watcher), ranks, {**remembered, **prepared.notes})
        with memory_for_steps():
            fitting = prepared.fitting(recipe, folder, watcher, ranks)
        opened = _begun(folder, recipe, prepared.task) if existing is None and ranks.first else nullcontext()
        with opened, memory_for_steps():
            ranks.wait()
            fitting.run()
        ranks.wait()
    finally:
        ranks.leave()
    return load(folder, code=code, device=recipe.training.device, warn=watcher.said)


def _recipe(recipe: str | os.PathLike[str] | Recipe, overrides: Iterable[str] | Mapping[str, Any]) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe.changed(overrides)
    if isinstance(overrides, Mapping):
        return Recipe.load(recipe).changed(overrides)
    return Recipe.load(recipe, overrides)


def _with_board(recipe: Recipe, on: bool) -> Recipe:
    """Event files change nothing about a run: one that is resumed may begin or cease to write them."""
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"tensorboard": on})})


def filled(recipe: Recipe, ranks: Ranks, remembered: dict[str, str]) -> Recipe:
    """Defaults that depend on the number of steps, and what the run depends on outside of the recipe."""
    training = recipe.training
    steps = training.steps or 1
    evaluate_every = training.evaluate_every or -(-steps // 8)
    grid = {
        "report_every": training.report_every or max(1, steps // 200),
        "evaluate_every": evaluate_every,
        "sample_every": training.sample_every or evaluate_every,
        "checkpoint_every": training.checkpoint_every or evaluate_every,
    }
    environment = {
        "seqlab": seqlab.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "ranks": ranks.world,
        "device": choose_device(recipe.training.device).type,
        "data": both_fingerprints(recipe.data),
        **remembered,
    }
    return recipe.model_copy(update={"training": training.model_copy(update=grid), "environment": environment})


def create_run(folder: Path, recipe: Recipe, task: Task) -> None:
    """The run folder, with the recipe last: a folder without it was never begun."""
    fresh = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if task.tokenizer is not None:
            task.tokenizer.save(folder / "tokenizer")
        alone = {
            "model": recipe.to_dict()["model"],
            "sizes": task.sizes,
            "memory": task.memory(),
            "tokenizer": None if task.tokenizer is None else task.tokenizer.fingerprint,
        }
        (folder / "model.yaml").write_text(yaml.safe_dump(alone, sort_keys=False), encoding="utf-8")
        draft = folder / ".draft-recipe"
        draft.write_text(recipe.to_yaml(), encoding="utf-8")
        draft.replace(folder / "recipe.yaml")
    except OSError as error:
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        what = f"cannot write here ({error.strerror})"
        raise RunError(what, where=str(folder), hint="choose another --out, or make room") from None


@contextmanager
def _begun(folder: Path, recipe: Recipe, task: Task) -> Iterator[None]:
    """A new run folder. Of a training that ran out of memory before it had saved anything, nothing is left."""
    fresh = not folder.exists()
    create_run(folder, recipe, task)
    try:
        yield
    except MemoryFull:
        if not Checkpoints(folder).steps():
            shutil.rmtree(folder, ignore_errors=True)
            if not fresh:
                folder.mkdir(exist_ok=True)
        raise


def write_run(run: Run, log: dict[str, Any] | None = None, best: float | None = None) -> None:
    """A run that was not trained here: its only checkpoint is that of step 1. All of it is written, or nothing."""
    create_run(run.folder, run.recipe, run.task)
    try:
        if log is not None:
            Log(run.folder / "log.jsonl").write({"step": 1, **log})
        Checkpoints(run.folder).save(Snapshot.of_finished(run.objective.state_dict(), best=best))
    except RunError:
        shutil.rmtree(run.folder, ignore_errors=True)  # unlike a training, this cannot be resumed
        raise


def _existing(
    folder: Path, recipe: Recipe, resume: bool, ranks: Ranks, code: str | os.PathLike[str] | None
) -> Recipe | None:
    """The recipe of a run that is to be resumed; None if there is nothing yet."""
    if not is_begun(folder):
        return None
    if not resume:
        raise RunError(
            "there is a run here already",
            where=str(folder),
            hint="go on with --resume, or choose another --out",
        )
    existing = run_recipe(folder, code)
    differences = _differences(existing, recipe, ranks)
    if differences:
        raise RunError(
            f"the run has other settings: {'; '.join(differences)}",
            where=str(folder),
            hint="use the same, or another --out",
        )
    return existing


def is_begun(folder: Path) -> bool:
    """Whether there is a run in a folder; or an error where none can be."""
    try:
        if folder.exists() and not folder.is_dir():
            raise RunError("is a file, not a folder", where=str(folder), hint="choose another --out")
        if (folder / "recipe.yaml").exists():
            return True
        above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise RunError("cannot write here", where=str(above), hint="choose another --out")
        ours = {"tokenizer", "model.yaml", ".draft-recipe"}
        if folder.exists() and {path.name for path in folder.iterdir()} - ours:
            raise RunError("holds other files and is not a run", where=str(folder), hint="choose another --out")
    except OSError as error:
        what = f"cannot be used ({error.strerror})"
        raise RunError(what, where=str(folder)[:80], hint="choose another --out") from None
    return False


def _standing(folder: Path, recipe: Recipe) -> str:
    """Where a run that is to be resumed stands, in words."""
    snapshot = Checkpoints(folder).newest()
    if snapshot is None:
        return f"{folder} has no whole checkpoint"
    step, steps = snapshot.facts["step"], recipe.training.steps
    if snapshot.facts["finished"]:
        return f"{folder} is finished already (step {step}): nothing is left to train"
    return f"{folder} goes on from step {step} of {steps}"


def _differences(old: Recipe, new: Recipe, ranks: Ranks) -> list[str]:
    """Where the settings asked for differ from those of a run; what was left open may be anything."""
    ignored = ("environment", "name", "about", "decoding.", "training.tensorboard")
    open_ended = {
        "training.report_every",
        "training.evaluate_every",
        "training.sample_every",
        "training.checkpoint_every",
        "data.hold_out_by",
        "data.hold_out_below",
    }
    if new.training.budget is not None and new.training.steps is None:
        open_ended.add("training.steps")
    before, after = flatten(old.to_dict()), flatten(new.to_dict())
    keys = [key for key in sorted({*before, *after}) if not key.startswith(ignored)]
    found = [
        f"{key} was {before.get(key)}, now {after.get(key)}"
        for key in keys
        if before.get(key) != after.get(key) and not (key in open_ended and after.get(key) is None)
    ]
    if old.environment.get("ranks", 1) != ranks.world:
        found.append(f"ranks were {old.environment.get('ranks', 1)}, now {ranks.world}")
    device = choose_device(new.training.device).type
    if old.environment.get("device", device) != device:
        found.append(f"the device was {old.environment['device']}, now {device}")
    chosen = {key: getattr(old.data, key) for key in ("hold_out_by", "hold_out_below")}
    if not found and old.environment.get("data") != both_fingerprints(new.data.model_copy(update=chosen)):
        found.append(f"the contents of {new.data.train} or of the held-out data have changed")
    return found


def _free_folder(recipe: Recipe, resume: bool) -> Path:
    """runs/NAME, or runs/NAME-2, … if that is taken and not to be resumed."""
    name = re.sub(r"[^\w.-]+", "-", recipe.name or "run").strip("-")
    folder, number = Path("runs") / name, 2
    while not resume and folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder
