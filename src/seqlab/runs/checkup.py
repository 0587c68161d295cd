"""Check a training before it starts: is it set up to succeed, and what will it cost?"""

from __future__ import annotations

import copy
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from seqlab.build import choose_device
from seqlab.data.batching.order import Cursor, Indices
from seqlab.data.checks.leaks import MUCH, overlap
from seqlab.models.language_model import LanguageModel
from seqlab.recipe import Recipe, seconds
from seqlab.runs.ancestry import reads
from seqlab.runs.preparation import Prepared, memory_for_steps, prepare
from seqlab.training.distributed import Ranks
from seqlab.training.evaluation import evaluate
from seqlab.training.measuring import figures
from seqlab.training.trainer import Silence, Trainer

BY_HEART = 60
"""Steps within which the loss of one batch must halve."""

MOST_SPREAD = 3.0
"""Largest standard deviation of logits before the first step. Shipped translators start at up to 2.4 and learn well."""


@dataclass(frozen=True)
class CheckupLine:
    name: str
    value: str
    note: str
    ok: bool = True


def check(recipe: Recipe) -> list[CheckupLine]:
    """Check a recipe with its own batches, on copies of its model. Nothing is written."""
    device = choose_device(recipe.training.device)
    prepared = prepare(recipe, device, Silence())
    findings = [*_data(prepared), *_held_out(prepared)]
    if prepared.counts:
        return [*findings, CheckupLine("training", "counts", "this model is trained by counting, without steps")]
    with tempfile.TemporaryDirectory() as folder, memory_for_steps():
        constant = {"training.steps": 10_000_000, "training.schedule": "constant"}
        trial_recipe = prepared.recipe.changed(constant)
        objective = copy.deepcopy(prepared.objective)
        trial = prepared.trainer(trial_recipe, Path(folder), Silence(), Ranks(), objective)
        trial.objective.train()
        first_batch = next(trial.order.walk())
        return [
            *findings,
            _first_loss(prepared, trial),
            _by_heart(trial, first_batch),
            _cost(prepared, trial),
        ]


def _data(prepared: Prepared) -> list[CheckupLine]:
    weights = sum(p.numel() for p in prepared.objective.parameters())
    sizes = ", ".join(f"{name} {value:,}" for name, value in prepared.task.sizes.items())
    examples = f"{len(prepared.train_split):,} training examples" if not prepared.counts else "counted in one pass"
    return [
        CheckupLine("model and data", f"{weights:,} weights, {sizes}", examples),
        *(CheckupLine("data", "incomplete", note) for note in prepared.left_out),
    ]


def _held_out(prepared: Prepared) -> list[CheckupLine]:
    notes = prepared.notes
    found = (
        [CheckupLine("held out", notes["held_out"], "the data that metrics are computed on")]
        if "held_out" in notes
        else []
    )
    if "overlap" in notes:
        asked = reads(prepared.recipe)
        common = None if asked is None else overlap(asked, asked)
        share = 0.0 if common is None else common.share
        value = f"{share:.0%} of it in training" if share else "some of it in earlier training"
        found.append(CheckupLine("held out", value, notes["overlap"], 0 < share < MUCH))
    return found


def _first_loss(prepared: Prepared, trial: Trainer) -> CheckupLine:
    """Compare the first loss with ln V, that of a model that gives each of V tokens the probability 1 / V.

    Logits that start with a standard deviation of σ add σ² / 2 nats to it, which a few steps undo. A loss far below
    ln V means that the model sees its targets.
    """
    totals = evaluate(trial.objective, prepared.valid_split, trial.settings.batch_size, trial.device)
    loss = totals["sum"] / totals["count"]
    figures(prepared.task, totals, prepared.valid_split)  # a mistake in the task's metrics is found here
    vocabulary = prepared.task.sizes.get("vocab_size")
    if vocabulary is None or not isinstance(prepared.objective.body, LanguageModel):
        return CheckupLine("first loss", f"{loss:.3f}", "before any step", math.isfinite(loss))
    expected = math.log(vocabulary)
    near = 0.85 * expected < loss < expected + MOST_SPREAD**2 / 2
    advice = "as expected" if near else "too high: check the initialisation and the scale of the weights"
    if loss <= 0.85 * expected:
        advice = "too low: can the model see its targets?"
    return CheckupLine("first loss", f"{loss:.3f}", f"ln V = {expected:.3f}: {advice}", near)


def _by_heart(trial: Trainer, batch: tuple[Cursor, Indices]) -> CheckupLine:
    """Check that the model overfits one batch, which any model that can learn does."""
    losses = [trial.learn(*batch)["loss"] for _ in range(BY_HEART)]
    halved = losses[-1] < 0.5 * losses[0]
    advice = "it can learn" if halved else "too slow: check training.learning_rate and the targets"
    return CheckupLine(
        "overfit one batch", f"{losses[0]:.3f} → {losses[-1]:.3f}", f"{BY_HEART} steps: {advice}", halved
    )


def _cost(prepared: Prepared, trial: Trainer) -> CheckupLine:
    batches = trial.order.walk()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        trial.learn(*next(batches))
        times.append(time.perf_counter() - start)
    step = sorted(times)[len(times) // 2]
    training = prepared.recipe.training
    ahead = step * training.steps if training.steps else seconds(training.budget or "1s")
    memory = ""
    if torch.cuda.is_available():
        memory = f", {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the device"
    return CheckupLine("training time", f"{ahead / 60:.1f} minutes", f"{step * 1000:.0f} ms per step{memory}")
