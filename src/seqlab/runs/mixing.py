"""Combine several trained runs into one that averages their predictions."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from seqlab.build import build
from seqlab.data.batching.batches import Batch
from seqlab.data.checks.leaks import Trained, measured_on_other
from seqlab.errors import RunError, caution
from seqlab.models.language_model import State
from seqlab.models.mixture import Mixture, fit_weights
from seqlab.objectives.next_token import NextToken, scored
from seqlab.objectives.objective import Loss
from seqlab.recipe import Recipe
from seqlab.runs.ancestry import reads, record, trained_by
from seqlab.runs.launch import filled, new_run, write_run
from seqlab.runs.run import Run, load, use_code
from seqlab.runs.transfer import without_adapters
from seqlab.training.distributed import ALONE
from seqlab.training.evaluation import evaluate
from seqlab.training.measuring import judged


def mix(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    weights: Sequence[float] | None = None,
    data: str | Sequence[str] | None = None,
    code: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> Run:
    """Mix runs into a new one, with the given weights or those that fit the held-out data best.

    The held-out data is `data`, which the new run keeps, or what all runs hold out. The rest of the recipe, including
    how texts are read, is that of the run whose model has the shortest context; the first run if none is limited. A
    `Caution` reports held-out data that has changed since training, or that is in the training data of a run.

    >>> seqlab.mix(["runs/lstm", "runs/5gram"], out="runs/mixed").evaluate()
    """
    folder = Path(out)
    with new_run(folder):
        _mix(folder, runs, weights, data, code, device)
    return load(folder, code=code, device=device)


def _mix(
    folder: Path,
    runs: Sequence[str | os.PathLike[str]],
    weights: Sequence[float] | None,
    data: str | Sequence[str] | None,
    code: str | os.PathLike[str] | None,
    device: str,
) -> None:
    parts = [load(run, code=code, device=device) for run in runs]
    _check(parts, weights)
    if data is None:
        _check_held_out(parts)
    # the model with the shortest context decides how texts are read
    base = min(parts, key=lambda part: math.inf if part.model.context is None else part.model.context)
    ancestors = trained_by({str(part.folder): part.recipe for part in parts})
    noted = _noted(parts, ancestors, data)
    remembered: dict[str, Any] = use_code(code) if code is not None else {}
    if data is None:  # the mixture was trained on what its parts were trained on
        known = base.recipe.environment
        remembered |= {key: str(known[key]) for key in ("data", "held_out") if key in known}
    remembered |= {key: "; ".join(notes) for key, notes in noted.items() if key != "changed"}
    remembered |= record(ancestors)
    recipe = filled(_recipe(base.recipe, parts, data), ALONE, remembered)
    mixed = Run(folder, recipe, base.task, build(recipe, base.task), 1)
    body = cast(Mixture, mixed.objective.body)
    for part, run in zip(body.parts, parts, strict=True):
        own = without_adapters(run.objective.state_dict(), run.recipe)
        part.load_state_dict({name.removeprefix("body."): own[name] for name in own if name.startswith("body.")})
    found = _fitted(mixed, parts) if weights is None else torch.tensor(weights, dtype=torch.float64) / sum(weights)
    body.weights.copy_(found.float())
    notes = [note for found in noted.values() for note in found]
    for note in notes:
        caution(note)
    _write(mixed, weights is None, notes)


def _check(parts: Sequence[Run], weights: Sequence[float] | None) -> None:
    if not parts:
        raise RunError("no runs to mix", hint="name at least one")
    first = parts[0]
    for part in parts:
        if part.tokenizer.fingerprint != first.tokenizer.fingerprint:
            what = f"its tokenizer differs from that of {first.folder}"
            raise RunError(what, where=str(part.folder), hint="mix runs that were trained with the same tokenizer")
        if _reading(part) != _reading(first):
            what, hint = f"its task differs from that of {first.folder}", "mix runs of the same task"
            raise RunError(what, where=str(part.folder), hint=hint)
        if not part.model.normalised:
            what, hint = "its scores are not probabilities (stupid backoff)", "choose another model.smoothing"
            raise RunError(what, where=str(part.folder), hint=hint)
    fit = weights is None or (len(weights) == len(parts) and min(weights) > 0 and math.isfinite(sum(weights)))
    if not fit:
        what = f"{len(parts)} runs need {len(parts)} weights, finite and above 0"
        raise RunError(what, hint="give one weight per run")


def _reading(run: Run) -> object:
    """Identify what a run reads: conditions in another order, or labels of other data, would be other tokens."""
    task = run.recipe.task
    return task.kind, list(getattr(task, "conditions", {}).items()), run.task.memory()


def _check_held_out(parts: Sequence[Run]) -> None:
    """Check that all runs hold out the same data: otherwise one may have been trained on what another holds out."""
    held_out = [str(part.recipe.environment.get("data", "")).rpartition("-")[2] for part in parts]
    for part, own in zip(parts, held_out, strict=True):
        if not own or own != held_out[0]:
            what = f"it does not hold out the data that {parts[0].folder} holds out" if own else "it holds out no data"
            raise RunError(what, where=str(part.folder), hint="give data that no run was trained on with --data")


def _noted(
    parts: Sequence[Run], ancestors: Sequence[Trained], data: str | Sequence[str] | None
) -> dict[str, list[str]]:
    """Return the notes about the held-out data by kind, without duplicates."""
    asked = reads(parts[0].recipe)
    if data is None or asked is None:
        found = [part.measured_on() for part in parts]
    else:
        settings = parts[0].recipe.data.model_copy(update={"valid": data if isinstance(data, str) else list(data)})
        found = [measured_on_other(replace(asked, data=settings), ancestors)]
    noted = {key: [one[key] for one in found if key in one] for key in ("changed", "overlap", "compared")}
    return {key: list(dict.fromkeys(notes)) for key, notes in noted.items() if notes}


def _recipe(base: Recipe, parts: Sequence[Run], data: str | Sequence[str] | None) -> Recipe:
    models = [part.recipe.to_dict()["model"] for part in parts]
    names = " + ".join(part.recipe.name or part.folder.name for part in parts)
    changes = {"name": "mixture", "about": f"a mixture of {names}", "model": {"kind": "mixture", "parts": models}}
    held_out = {} if data is None else {"data.valid": data if isinstance(data, str) else list(data)}
    return base.changed({**changes, **held_out, "init": None})


class _PartLosses(NextToken):
    """Collects −log p of every scored token for each part of a mixture."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__(NextToken.Settings(kind="next-token"), mixture)
        self.found: list[Tensor] = []

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        output = self.read(batch, state)
        states, targets = scored(output.states, batch)
        apart = torch.stack(cast(Mixture, self.body).losses_apart(states, targets))
        self.found.append(apart)
        return Loss(apart.sum(), torch.tensor(len(targets)), {}, output.state)


def _fitted(mixed: Run, parts: Sequence[Run]) -> Tensor:
    """Return the weights that make the held-out data most probable."""
    losses = _PartLosses(cast(Mixture, mixed.model))
    evaluate(losses, mixed.held_out(), mixed.recipe.training.batch_size, mixed.device)
    scores = -torch.cat(losses.found, 1)
    for part, own in zip(parts, scores, strict=True):
        if own.isnan().any():
            raise RunError("its predictions are NaN", where=str(part.folder), hint="train it again")
    if scores.isneginf().all():
        what = "all runs give every held-out token a probability of zero"
        raise RunError(what, hint="add a run with smoothing, or give each run a --weight")
    return fit_weights(scores)


def _write(mixed: Run, fitted: bool, notes: Sequence[str]) -> None:
    metrics = mixed.evaluate(metrics=())
    weights = cast(Mixture, mixed.objective.body).weights.tolist()
    figures = {name: value for name, value in metrics.items() if name not in ("step", "notes", "signature")}
    task, rows = mixed.task, mixed.recipe.training.batch_size
    if task.metric not in figures:
        figures[task.metric] = judged(mixed.objective, task, mixed.held_out(), rows, mixed.device)
    entry = {"weights": weights, "fitted": fitted, "valid": figures}
    write_run(mixed, entry | ({"notes": list(notes)} if notes else {}), best=figures[task.metric])
