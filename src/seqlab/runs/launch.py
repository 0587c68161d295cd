"""From a recipe to a run: first check everything that can be wrong, then write the folder, then train."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import yaml

import seqlab
from seqlab import registry
from seqlab.build import choose_device
from seqlab.data.reading.readers import both_fingerprints
from seqlab.errors import RunError
from seqlab.models.of_run import OfRun
from seqlab.recipe import Recipe, flatten, models_in
from seqlab.recipe_tree import RecipeTree, to_yaml
from seqlab.runs.preparation import memory_for_steps, prepare
from seqlab.runs.run import Run, load, run_recipe, use_code
from seqlab.tasks.task import Task, is_task
from seqlab.training.checkpoint import Checkpoints, Snapshot
from seqlab.training.counting import Counting
from seqlab.training.distributed import Ranks, is_first
from seqlab.training.lock import FILE as LOCK
from seqlab.training.lock import Locked, RunLock
from seqlab.training.log import Log
from seqlab.training.manifest import FILE as MANIFEST
from seqlab.training.manifest import Manifest, name_of, replace_recipe, settle, write_whole
from seqlab.training.trainer import Diverged, Silence, Trainer, Watcher, is_over


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
    if code is not None:
        use_code(code)
    recipe = _recipe(recipe, overrides)
    device = choose_device(recipe.training.device)
    ranks = Ranks.join(device)
    try:
        with _claimed(recipe, out, resume, ranks, watcher) as folder:
            recipe = _fit(folder, recipe, resume, ranks, watcher, code)
            ranks.wait()
    finally:
        ranks.leave()
    return load(folder, code=code, device=recipe.training.device, warn=watcher.said)


def _fit(
    folder: Path,
    recipe: Recipe,
    resume: bool,
    ranks: Ranks,
    watcher: Watcher,
    code: str | os.PathLike[str] | None,
) -> Recipe:
    """Train into a locked folder, and return the recipe with everything filled in."""
    device = choose_device(recipe.training.device)
    existing = _existing(folder, recipe, resume, ranks, code)
    ranks.wait()  # before the first rank writes anything
    if existing is None:
        prepared = prepare(recipe, device, watcher, ranks=ranks)
        recipe = prepared.budgeted(ranks, watcher)  # models of other runs are written out by now
        sections = recipe.model_dump(mode="json", exclude={"name", "about", "environment"})
        remembered = {} if code is None or not _names_own_classes(sections) else use_code(code)
        recipe = filled(recipe, ranks, {**remembered, **prepared.notes})
    else:
        recipe = _with_board(_prolonged(existing, recipe.training.steps), recipe.training.tensorboard)
        torch.set_num_threads(int(recipe.environment.get("threads", torch.get_num_threads())))
        prepared = prepare(recipe, device, watcher, load_from=folder)
    with memory_for_steps():
        fitting = prepared.fitting(recipe, folder, watcher, ranks)
    if existing is not None:
        _prolong(folder, fitting, existing.training.steps, recipe.training.steps, ranks)
        watcher.said(_standing(folder, recipe))
    opened = _begun(folder, recipe, prepared.task) if existing is None and ranks.first else nullcontext()
    with opened, memory_for_steps():
        ranks.wait()
        fitting.run()
    return recipe


def _names_own_classes(value: Any) -> bool:
    """Whether a recipe, or a part of one, names a class that was registered from outside."""
    if isinstance(value, Mapping):
        return any(map(_names_own_classes, value.values()))
    return any(map(_names_own_classes, value)) if isinstance(value, list) else registry.own(value)


def _recipe(recipe: str | os.PathLike[str] | Recipe, overrides: Iterable[str] | Mapping[str, Any]) -> Recipe:
    return recipe.changed(overrides) if isinstance(recipe, Recipe) else Recipe.load(recipe, overrides)


def _with_board(recipe: Recipe, on: bool) -> Recipe:
    """Set training.tensorboard, which does not affect results and may change when a run is resumed."""
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"tensorboard": on})})


def filled(recipe: Recipe, ranks: Ranks, remembered: Mapping[str, Any]) -> Recipe:
    """Fill in the defaults that depend on the number of steps, and record what the run depends on beside the recipe."""
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


UNBEGUN = {LOCK, "tokenizer", "model.yaml", MANIFEST, f".draft-{MANIFEST}", ".draft-recipe.yaml", ".draft-recipe"}
"""What a folder may contain without being a run (the last name is from earlier versions)."""


def create_run(folder: Path, recipe: Recipe, task: Task) -> None:
    """Create the run folder. The recipe is written last: a folder without it is not a run."""
    learnt = {name: _plain(getattr(task, name), task, name) for name in ("sizes", "memory")}
    if registry.is_own(type(task)):  # what cannot be restored is better known before a training than after it
        is_task(type(task).restore(recipe, task.tokenizer, learnt["memory"]), type(task), "restore")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clear(folder, UNBEGUN)
        if task.tokenizer is not None:
            task.tokenizer.save(folder / "tokenizer")
        alone = {
            "model": recipe.to_dict()["model"],
            **learnt,
            "tokenizer": None if task.tokenizer is None else task.tokenizer.fingerprint,
        }
        (folder / "model.yaml").write_text(yaml.safe_dump(alone, sort_keys=False), encoding="utf-8")
        text = recipe.to_yaml().encode()
        Manifest.of(folder, name_of(recipe.to_dict(), folder), **{"recipe.yaml": text}).write(folder)
        write_whole(folder / "recipe.yaml", text)
    except OSError as error:
        clear(folder)
        what = f"cannot write here ({error.strerror})"
        raise RunError(what, where=str(folder), hint="choose another --out, or free disk space") from None


def _plain(given: Any, task: Task, name: str) -> Any:
    """Return what a task must keep in a run folder, or raise an error if YAML cannot hold it."""
    given = given() if callable(given) else given
    try:
        yaml.safe_dump(given)
    except yaml.YAMLError as error:
        what = f"{name} holds what YAML cannot: {error.args[-1]!r:.60}"
        hint = "return numbers, texts, lists and dicts of Python"
        raise RunError(what, where=type(task).__name__, hint=hint) from None
    return given


def clear(folder: Path, names: Collection[str] | None = None) -> None:
    """Remove the contents of a folder, or only the named ones, except for the lock."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name == LOCK or (names is not None and path.name not in names):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def _begun(folder: Path, recipe: Recipe, task: Task) -> Iterator[None]:
    """Create a run folder, and clear it if training fails before it has saved anything."""
    create_run(folder, recipe, task)
    try:
        yield
    except Exception as error:
        if not isinstance(error, Diverged) and not Checkpoints(folder).steps():
            clear(folder)  # what Diverged has logged is worth a look
        raise


@contextmanager
def new_run(folder: Path) -> Iterator[None]:
    """Lock the folder of a run that is written without training; an error if it already holds a run."""
    is_begun(folder)  # an error if this cannot be a run folder
    with RunLock(folder):
        if is_begun(folder):
            raise RunError("already holds a run", where=str(folder), hint="choose another folder")
        yield


def write_run(run: Run, log: dict[str, Any] | None = None, best: float | None = None) -> None:
    """Write a run that was not trained here, with a single checkpoint at step 1; either all of it or nothing.

    Its folder must be locked (`new_run`).
    """
    create_run(run.folder, run.recipe, run.task)
    try:
        if log is not None:
            Log(run.folder / "log.jsonl").write({"step": 1, **log})
        Checkpoints(run.folder).save(Snapshot.of_finished(run.objective.state_dict(), best=best))
    except RunError:
        clear(run.folder)  # unlike a training, this cannot be resumed
        raise


def _existing(
    folder: Path, recipe: Recipe, resume: bool, ranks: Ranks, code: str | os.PathLike[str] | None
) -> Recipe | None:
    """Return the recipe of the run to resume; None if there is none yet."""
    if not is_begun(folder):
        return None
    if not resume:
        raise RunError(
            "already holds a run",
            where=str(folder),
            hint="continue it with --resume, or choose another --out",
        )
    existing = run_recipe(folder, code)
    differences = _differences(existing, recipe, ranks)
    if differences:
        raise RunError(
            f"the run has different settings: {'; '.join(differences)}",
            where=str(folder),
            hint="use the same settings, or choose another --out",
        )
    return existing


def is_begun(folder: Path) -> bool:
    """Whether a folder holds a run; an error if it cannot hold one."""
    try:
        if folder.exists() and not folder.is_dir():
            raise RunError("is a file, not a folder", where=str(folder), hint="choose another --out")
        if (folder / "recipe.yaml").exists():
            return True
        above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise RunError("cannot write here", where=str(above), hint="choose another --out")
        if folder.exists() and {path.name for path in folder.iterdir()} - UNBEGUN:
            raise RunError("holds other files and is not a run folder", where=str(folder), hint="choose another --out")
    except OSError as error:
        what = f"cannot be used ({error.strerror})"
        raise RunError(what, where=str(folder)[:80], hint="choose another --out") from None
    return False


def _standing(folder: Path, recipe: Recipe) -> str:
    """Describe how far the run to resume has come."""
    snapshot = Checkpoints(folder).newest()
    if snapshot is None:
        return f"{folder} has no intact checkpoint"
    step, steps = snapshot.facts["step"], recipe.training.steps
    if is_over(snapshot.facts, recipe.training):
        return f"{folder} is already finished (step {step}): nothing is left to train"
    return f"{folder} continues from step {step} of {steps}"


def _prolonged(recipe: Recipe, steps: int | None) -> Recipe:
    """Return the recipe of a run with more steps, if more are requested."""
    return recipe.changed({"training.steps": steps}) if _is_more(steps, recipe.training.steps) else recipe


def _is_more(steps: int | None, before: int | None) -> bool:
    return steps is not None and before is not None and steps > before


def _prolong(folder: Path, fitting: Trainer | Counting, before: int | None, steps: int | None, ranks: Ranks) -> None:
    """Write a higher number of steps into the recipe of a run; an error if its steps so far depend on the number."""
    if before is not None and _is_more(steps, before) and isinstance(fitting, Trainer):
        fitting.check_prolonged(before, Checkpoints(folder).newest())
    ranks.wait()  # until all ranks have checked
    if not ranks.first:
        return
    try:
        settle(folder)
        if _is_more(steps, before):
            written = RecipeTree.load(
                folder / "recipe.yaml"
            ).data  # unchanged: keys that it omits must not be filled in
            written["training"] |= {"steps": steps, "budget": None}
            replace_recipe(folder, to_yaml(written))
    except OSError as error:
        what, hint = f"cannot write recipe.yaml ({error.strerror})", "free disk space, then continue with --resume"
        raise RunError(what, where=str(folder), hint=hint) from None


def _differences(old: Recipe, new: Recipe, ranks: Ranks) -> list[str]:
    """List where the requested settings differ from those of a run; settings left open may have any value."""
    ignored: tuple[str, ...] = ("environment", "name", "about", "decoding.", "training.tensorboard")
    open_ended = {
        "training.report_every",
        "training.evaluate_every",
        "training.sample_every",
        "training.checkpoint_every",
        "data.hold_out_by",
        "data.hold_out_below",
    }
    taken = _borrowed(new, old.environment)
    ignored += tuple(f"{section}." for section in taken)
    if new.training.budget is not None and new.training.steps is None:
        open_ended.add("training.steps")
    if _is_more(new.training.steps, old.training.steps):
        ignored += ("training.steps", "training.budget")
    before, after = flatten(old.to_dict()), flatten(new.to_dict())
    keys = [key for key in sorted({*before, *after}) if not key.startswith(ignored) and key not in taken]
    found = [
        f"{key} was {before.get(key)}, now {after.get(key)}"
        for key in keys
        if before.get(key) != after.get(key) and not (key in open_ended and after.get(key) is None)
    ]
    if _is_more(old.training.steps, new.training.steps):
        found = [f"{one} (steps can be added, not removed)" if "training.steps" in one else one for one in found]
    if old.environment.get("ranks", 1) != ranks.world:
        found.append(f"ranks were {old.environment.get('ranks', 1)}, now {ranks.world}")
    device = choose_device(new.training.device).type
    if old.environment.get("device", device) != device:
        found.append(f"the device was {old.environment['device']}, now {device}")
    chosen = {key: getattr(old.data, key) for key in ("hold_out_by", "hold_out_below")}
    if not found and old.environment.get("data") != both_fingerprints(new.data.model_copy(update=chosen)):
        found.append(f"the contents of {new.data.train} or of the held-out data have changed")
    return found


def _borrowed(recipe: Recipe, environment: Mapping[str, Any]) -> list[str]:
    """List the sections that a recipe takes from the same runs as before, which need not exist any more."""
    models = {"model": recipe.model, **{f"objective.{name}": one for name, one in models_in(recipe.objective).items()}}
    ofs = {place: model for place, model in models.items() if isinstance(model, OfRun.Settings)}
    named = {place: model.run or (recipe.init.run if recipe.init is not None else None) for place, model in ofs.items()}
    same = [place for place, run in named.items() if run == environment.get(f"{place}.from")]
    filled_in = ["init"] if "model" in same and recipe.init is None else []
    return [*same, *filled_in, *(["tokenizer"] if recipe.init is not None or ofs else [])]


# ------------------------------------------------------------------ claiming a folder


@contextmanager
def _claimed(
    recipe: Recipe, out: str | os.PathLike[str] | None, resume: bool, ranks: Ranks, watcher: Watcher
) -> Iterator[Path]:
    """Yield the folder to train into, which the first rank locks until the training ends.

    Without `out`, it is runs/NAME, or runs/NAME-2, … if that is taken and not to be resumed.
    """
    lock, number, refused = None, 0, RunError("the first rank cannot write to the run folder")
    if ranks.first:
        try:
            number, lock = _locked(recipe, out, resume, watcher)
        except RunError as error:
            refused = error
    number = round(ranks.sum([float(number)], choose_device(recipe.training.device))[0])
    if not number:
        raise refused
    with lock or nullcontext():
        yield _folder(recipe, out, number)


def _locked(recipe: Recipe, out: str | os.PathLike[str] | None, resume: bool, watcher: Watcher) -> tuple[int, RunLock]:
    """Return the number of a folder, counted from 1, and its lock."""
    if out is not None or resume:
        folder = _folder(recipe, out, 1)
        is_begun(folder)  # an error if this cannot be a run folder
        return 1, RunLock(folder, watcher.said)
    number = 0
    while True:
        number += 1
        folder = _folder(recipe, None, number)
        if not _is_free(folder):
            continue
        is_begun(folder)
        try:
            lock = RunLock(folder, watcher.said)
        except Locked:
            continue
        if _is_free(folder):
            return number, lock
        lock.release()  # another training started and ended in the meantime


def _folder(recipe: Recipe, out: str | os.PathLike[str] | None, number: int) -> Path:
    if out is not None:
        return Path(out)
    name = re.sub(r"[^\w.-]+", "-", recipe.name or "run").strip("-")
    return Path("runs") / (name if number == 1 else f"{name}-{number}")


def _is_free(folder: Path) -> bool:
    """Whether a folder is missing or empty, apart from a lock, which another process may hold."""
    return not folder.exists() or (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK})
