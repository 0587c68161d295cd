"""Look before you leap: is this training set up to succeed, and what will it cost?"""

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
from seqlab.runs.preparation import Prepared, memory_for_steps, prepare
from seqlab.training.distributed import Ranks
from seqlab.training.evaluation import evaluate
from seqlab.training.trainer import Silence, Trainer

BY_HEART = 60
"""Steps in which one batch must be half learned."""

MOST_SPREAD = 3.0
"""Standard deviation of logits before the first step: shipped translators begin with up to 2.4, and learn well."""


@dataclass(frozen=True)
class CheckupLine:
    name: str
    value: str
    note: str
    ok: bool = True


def check(recipe: Recipe) -> list[CheckupLine]:
    """Nothing is written; the recipe's own batches, on copies of its model."""
    device = choose_device(recipe.training.device)
    prepared = prepare(recipe, device, Silence())
    findings = [*_data(prepared), *_held_out(prepared)]
    if prepared.counts:
        return [*findings, CheckupLine("training", "counts", "this model counts and has no steps")]
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
        *(CheckupLine("data", "not all of it", note) for note in prepared.left_out),
    ]


def _held_out(prepared: Prepared) -> list[CheckupLine]:
    notes = prepared.notes
    found = (
        [CheckupLine("held out", notes["held_out"], "what the figures are measured on")] if "held_out" in notes else []
    )
    asked = prepared.task.reads(prepared.recipe)
    common = overlap(asked, asked) if asked is not None and "overlap" in notes else None
    if common is not None:
        found.append(CheckupLine("held out", f"{common.share:.0%} of it trained on", str(common), common.share < MUCH))
    return found


def _first_loss(prepared: Prepared, trial: Trainer) -> CheckupLine:
    """A model that knows nothing gives each of V tokens 1 / V: a loss of ln V.

    Logits that begin with a standard deviation of σ add σ² / 2 nats to it, which a few steps undo. A loss far below
    ln V means that the model sees what it is to predict.
    """
    totals = evaluate(trial.objective, prepared.valid_split, trial.settings.batch_size, trial.device)
    loss = totals["sum"] / totals["count"]
    vocabulary = prepared.task.sizes.get("vocab_size")
    if vocabulary is None or not isinstance(prepared.objective.body, LanguageModel):
        return CheckupLine("first loss", f"{loss:.3f}", "before any step", math.isfinite(loss))
    expected = math.log(vocabulary)
    near = 0.85 * expected < loss < expected + MOST_SPREAD**2 / 2
    advice = "as it should be" if near else "too high: look at the initialisation, the scale of the weights"
    if loss <= 0.85 * expected:
        advice = "too low: can the model see what it is to predict?"
    return CheckupLine("first loss", f"{loss:.3f}", f"ln V = {expected:.3f}: {advice}", near)


def _by_heart(trial: Trainer, batch: tuple[Cursor, Indices]) -> CheckupLine:
    """A model that can learn at all can learn one batch by heart."""
    losses = [trial.learn(*batch)["loss"] for _ in range(BY_HEART)]
    halved = losses[-1] < 0.5 * losses[0]
    advice = "it can learn" if halved else "too slow: look at training.learning_rate and the targets"
    return CheckupLine(
        "one batch by heart", f"{losses[0]:.3f} → {losses[-1]:.3f}", f"{BY_HEART} steps: {advice}", halved
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
    return CheckupLine("time ahead", f"{ahead / 60:.1f} minutes", f"{step * 1000:.0f} ms a step{memory}")
