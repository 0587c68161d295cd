"""Average the weights of a run's last checkpoints into a new run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch

from seqlab.build import build, load_weights
from seqlab.errors import RunError, caution
from seqlab.runs.launch import new_run, write_run
from seqlab.runs.run import Run, load, restored_task, run_recipe
from seqlab.training.checkpoint import Checkpoints, Tensors
from seqlab.training.measuring import judged


def average(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    last: int = 5,
    code: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> Run:
    """Average the weights of the newest `last` checkpoints of a run, w̄ = (w₁ + … + w_k) / k, into a new run.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 6.1. `training.keep` sets how many a run keeps.

    The two factors of a low-rank adapter are averaged one by one, as other weights are.

    >>> seqlab.average("runs/mine", out="runs/averaged", last=5).evaluate()
    """
    folder = Path(out)
    with new_run(folder):
        _average(folder, Path(run), last, code, device)
    return load(folder, code=code, device=device)


def _average(folder: Path, given: Path, last: int, code: str | os.PathLike[str] | None, device: str) -> None:
    recipe = run_recipe(given, code).changed({"training.device": device})
    task = restored_task(given, recipe)
    found = [(int(one.facts["step"]), one.model) for one in islice(Checkpoints(given, warn=caution).whole(), last)]
    if len(found) < last:
        hint = f"train with training.keep={last}, or set a smaller --last"
        raise RunError(f"has {len(found)} of the {last} intact checkpoints needed", where=str(given), hint=hint)
    objective = build(recipe, task)
    load_weights(objective, _mean([model for _, model in found]), str(given))
    about = f"the mean of {last} checkpoints of {recipe.name or given.name}"
    averaged = Run(folder, recipe.changed({"about": about}), task, objective, 1)
    figures = averaged.evaluate(metrics=())
    valid = {name: value for name, value in figures.items() if name not in ("step", "notes", "signature")}
    if task.metric not in valid:
        valid[task.metric] = judged(objective, task, averaged.held_out(), recipe.training.batch_size, averaged.device)
    write_run(averaged, {"averaged": sorted(step for step, _ in found), "valid": valid}, best=valid[task.metric])


def _mean(models: Sequence[Tensors]) -> Tensors:
    """Average all weights; integer tensors, which are not weights, are those of the newest, which comes first."""
    return {
        name: torch.stack([model[name] for model in models]).mean(0) if own.is_floating_point() else own
        for name, own in models[0].items()
    }
