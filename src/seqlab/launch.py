"""From a recipe to a run: look at everything that can be wrong first, then write the folder, then train."""

from __future__ import annotations

import copy
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import yaml

import seqlab
from seqlab import registry
from seqlab.build import build, choose_device
from seqlab.data.batches import Split
from seqlab.data.readers import fingerprint
from seqlab.decoding.choose import Sample
from seqlab.decoding.generate import generate
from seqlab.decoding.logits import Temperature
from seqlab.errors import RecipeError, RunError
from seqlab.models.language_model import LanguageModel
from seqlab.objectives.objective import Objective
from seqlab.recipe import Recipe, flatten, seconds
from seqlab.run import Run, load, restored_task, run_recipe, use_code
from seqlab.tasks.task import Task
from seqlab.training.checkpoint import Checkpoints, Snapshot
from seqlab.training.distributed import Ranks
from seqlab.training.evaluation import evaluate
from seqlab.training.log import Log
from seqlab.training.trainer import Silence, Trainer, Watcher


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
    watcher = watcher or Silence()
    remembered = use_code(code) if code is not None else {}
    recipe = _recipe(recipe, overrides)
    folder = Path(out) if out is not None else _free_folder(recipe, resume)
    device = choose_device(recipe.training.device)
    ranks = Ranks.join(device)
    try:
        existing = _existing(folder, recipe, resume, ranks, code)
        if existing is not None:
            recipe = existing
            watcher.said(_standing(folder, recipe))
            torch.set_num_threads(int(recipe.environment["threads"]))
        prepared = prepare(recipe, device, watcher, load_from=folder if existing is not None else None)
        if existing is None:
            recipe = _filled(prepared.budgeted(ranks, watcher), ranks, remembered)
        fit = prepared.fitting(recipe, folder, watcher, ranks)
        if existing is None and ranks.first:
            _create(folder, recipe, prepared)
        ranks.wait()
        fit()
        ranks.wait()
    finally:
        ranks.leave()
    return load(folder, code=code, warn=watcher.said)


@dataclass
class Prepared:
    """Everything a training needs, made and checked, before anything is written."""

    recipe: Recipe
    task: Task
    objective: Objective
    train_split: Split
    valid_split: Split

    def trainer(
        self, recipe: Recipe, folder: Path, watcher: Watcher, ranks: Ranks, objective: Objective | None = None
    ) -> Trainer:
        objective = objective or self.objective
        splits = self.train_split, self.valid_split
        sample = self._sampler(recipe, objective)
        return Trainer(objective, self.task, splits, recipe.training, folder, watcher, sample, ranks)

    def fitting(self, recipe: Recipe, folder: Path, watcher: Watcher, ranks: Ranks) -> Callable[[], None]:
        """What will train with the optimizer, made and ready; or count, for models that have no weights."""
        if self.counts:
            return lambda: self._count(recipe, folder, watcher, ranks)
        return self.trainer(recipe, folder, watcher, ranks).run

    @property
    def counts(self) -> bool:
        """Whether the model learns by counting, all at once."""
        return hasattr(self.objective.body, "fit")

    def _count(self, recipe: Recipe, folder: Path, watcher: Watcher, ranks: Ranks) -> None:
        checkpoints = Checkpoints(folder, warn=watcher.said)
        if checkpoints.newest() is not None or not ranks.first:
            return
        start = time.perf_counter()
        tokens = cast(Any, self.train_split).tokens
        cast(Any, self.objective.body).fit(tokens)
        took = time.perf_counter() - start
        device = choose_device(recipe.training.device)
        self.objective.to(device)
        totals = evaluate(self.objective, self.valid_split, recipe.training.batch_size, device)
        metrics = self.task.metrics(totals, self.valid_split)
        for name in ("log.jsonl", "timing.jsonl", "samples.jsonl"):
            Log(folder / name).cut(0)
        Log(folder / "log.jsonl").write({"step": 1, "tokens": len(tokens), "valid": metrics})
        speed = {"tokens_per_second": round(len(tokens) / took, 1), "seconds": round(took, 4)}
        Log(folder / "timing.jsonl").write({"step": 1, **speed})
        sample = self._sampler(recipe, self.objective)
        for text in sample() if sample is not None else []:
            Log(folder / "samples.jsonl").write({"step": 1, "text": text})
        watcher.evaluated(1, metrics)
        best = {"step": 1, "value": metrics[self.task.metric]}
        facts = {"step": 1, "best": best, "finished": True, "tokens": len(tokens)}
        checkpoints.save(Snapshot(dict(self.objective.state_dict()), {}, {}, facts))

    def _sampler(self, recipe: Recipe, objective: Objective) -> Callable[[], list[str]] | None:
        """What the model writes at set steps; the same noise each time, so that one can watch it learn."""
        body, tokenizer, decoding = objective.body, self.task.tokenizer, recipe.decoding
        if not isinstance(body, LanguageModel) or set(self.task.sizes) != {"vocab_size"}:
            return None
        prompt = [tokenizer.end_id, *tokenizer.encode(decoding.prompt).ids]
        if body.context is not None and len(prompt) > body.context:
            what = f"a prompt of {len(prompt)} tokens is longer than 'model.context' {body.context}"
            raise RecipeError(what, where="decoding.prompt", hint="shorten it")
        choose = Sample(Temperature(decoding.temperature or 1.0), seed=recipe.training.seed)
        length = min(decoding.tokens, 200)

        def sample() -> list[str]:
            steps = generate(body, [prompt], choose, length, frozenset({tokenizer.end_id}))
            return [tokenizer.decode([token.id for (token,) in steps])]

        return sample

    def budgeted(self, ranks: Ranks, watcher: Watcher) -> Recipe:
        """The recipe with a number of steps: as given, or as many as a measurement says fit into the budget."""
        recipe = self.recipe
        if recipe.training.steps is not None or self.counts:
            return recipe
        if recipe.training.budget is None:
            raise RecipeError("neither 'training.steps' nor 'training.budget' is set", hint="add one of them")
        budget = seconds(recipe.training.budget)
        watcher.said(f"measuring how many steps fit into {recipe.training.budget}")
        steps = self._measure(budget, ranks)
        shared = ranks.sum([float(steps)], next(self.objective.parameters()).device)[0] / ranks.world
        return _steps(recipe, max(1, int(shared)))

    def _measure(self, budget: float, ranks: Ranks) -> int:
        """Time steps, an evaluation and a sample on throwaway copies, for a twentieth of the budget or so."""
        recipe = _steps(self.recipe, 1_000_000)
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
            trial = self.trainer(recipe, Path(folder), Silence(), ranks, copy.deepcopy(self.objective))
            trial.objective.train()
            batches = trial.order.walk()
            times: list[float] = []
            end = time.perf_counter() + max(1.0, budget / 20)
            while len(times) < 5 or (time.perf_counter() < end and len(times) < 500):
                start = time.perf_counter()
                trial.learn(*next(batches))
                times.append(time.perf_counter() - start)
            start = time.perf_counter()
            evaluate(trial.objective, self.valid_split, recipe.training.batch_size, trial.device, ranks)
            if trial.sample is not None:
                trial.objective.eval()
                trial.sample()
            pause = time.perf_counter() - start
        own = times[2:]  # the first steps also warm up
        pauses = 8  # the default grid
        left = budget - max(1.0, budget / 20) - pauses * pause
        return max(1, int(max(left, budget / 4) / (sum(own) / len(own))))


def prepare(recipe: Recipe, device: torch.device, watcher: Watcher, load_from: Path | None = None) -> Prepared:
    """Read the data, learn the tokenizer (or take it from a run), build the model."""
    if load_from is None:
        watcher.said(f"reading {recipe.data.train} and learning the tokenizer")
        task = cast(Task, registry.find("task", recipe.task.kind).prepare(recipe))
    else:
        task = restored_task(load_from, recipe)
    objective = build(recipe, task).to(device)
    train_split = task.split(recipe.data, "train", training=True)
    valid_split = task.split(recipe.data, "valid", training=False)
    return Prepared(recipe, task, objective, train_split, valid_split)


def _recipe(recipe: str | os.PathLike[str] | Recipe, overrides: Iterable[str] | Mapping[str, Any]) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe.changed(overrides if isinstance(overrides, Mapping) else _pairs(overrides))
    if isinstance(overrides, Mapping):
        return Recipe.load(recipe).changed(overrides)
    return Recipe.load(recipe, overrides)


def _pairs(overrides: Iterable[str]) -> dict[str, Any]:
    return {key: yaml.safe_load(value) for key, _, value in (one.partition("=") for one in overrides)}


def _steps(recipe: Recipe, steps: int) -> Recipe:
    """The recipe with so many steps, and the budget they came from still to be read."""
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"steps": steps})})


def _filled(recipe: Recipe, ranks: Ranks, remembered: dict[str, str]) -> Recipe:
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
        "data": _data_fingerprint(recipe),
        **remembered,
    }
    return recipe.model_copy(update={"training": training.model_copy(update=grid), "environment": environment})


def _create(folder: Path, recipe: Recipe, prepared: Prepared) -> None:
    """The run folder, with the recipe last: a folder without it was never begun."""
    fresh = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        prepared.task.tokenizer.save(folder / "tokenizer")
        alone = {
            "model": recipe.to_dict()["model"],
            "sizes": prepared.task.sizes,
            "memory": prepared.task.memory(),
            "tokenizer": prepared.task.tokenizer.fingerprint,
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


def _existing(
    folder: Path, recipe: Recipe, resume: bool, ranks: Ranks, code: str | os.PathLike[str] | None
) -> Recipe | None:
    """The recipe of a run that is to be resumed; None if there is nothing yet."""
    if not _is_begun(folder):
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


def _is_begun(folder: Path) -> bool:
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
    ignored = ("environment", "name", "about", "decoding.")
    open_ended = {
        "training.report_every",
        "training.evaluate_every",
        "training.sample_every",
        "training.checkpoint_every",
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
    if not found and old.environment.get("data") != _data_fingerprint(new):
        found.append(f"the contents of {new.data.train} or of the held-out data have changed")
    return found


def _data_fingerprint(recipe: Recipe) -> str:
    """Tells whether the data of a run are still the same."""
    return f"{fingerprint(recipe.data, 'train')[:16]}-{fingerprint(recipe.data, 'valid')[:16]}"


def _free_folder(recipe: Recipe, resume: bool) -> Path:
    """runs/NAME, or runs/NAME-2, … if that is taken and not to be resumed."""
    name = re.sub(r"[^\w.-]+", "-", recipe.name or "run").strip("-")
    folder, number = Path("runs") / name, 2
    while not resume and folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder
