"""The figures of a model on held-out data, including the one that chooses the best checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

import torch

from seqlab.data.batching.batches import Split
from seqlab.errors import SeqlabError
from seqlab.objectives.objective import Objective
from seqlab.tasks.abilities import Writes
from seqlab.tasks.task import Task, Totals
from seqlab.training.distributed import ALONE, Ranks
from seqlab.training.evaluation import evaluate


def measured(
    objective: Objective, task: Task, split: Split, rows: int, device: torch.device, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Return the task's metrics; if `task.metric` needs answers, the first rank scores them."""
    metrics = figures(task, evaluate(objective, split, rows, device, ranks), split)
    if task.metric not in metrics:
        metrics[task.metric] = judged(objective, task, split, rows, device, ranks)
    return metrics


def figures(task: Task, totals: Totals, split: Split) -> dict[str, float]:
    """Return the metrics of a task, or raise an error if one that is needed is missing."""
    found, name = _numbers(task.metrics(totals, split), task), type(task).__name__
    needed = ["loss"] if isinstance(task, Writes) else ["loss", task.metric]
    if missing := [one for one in needed if one not in found]:
        hint = f"add it; there are {', '.join(map(repr, found))}"
        raise SeqlabError(f"metrics() does not return {missing[0]!r}", where=name, hint=hint)
    return found


def _numbers(found: object, task: Task) -> dict[str, float]:
    """Return metrics as numbers of Python, which can be logged."""
    where = type(task).__name__
    if not isinstance(found, Mapping):
        hint = "return a dict of numbers: {'loss': ...}"
        raise SeqlabError(f"metrics() returned {type(found).__name__}", where=where, hint=hint)
    for name, value in found.items():
        if not isinstance(value, Real):
            what = f"metrics() returned {value!r:.40} ({type(value).__name__}) as {name!r}"
            raise SeqlabError(what, where=where, hint="return a number, such as float(...)")
    return {name: value if isinstance(value, int | float) else float(value) for name, value in found.items()}


@torch.no_grad()
def judged(
    objective: Objective, task: Task, split: Split, rows: int, device: torch.device, ranks: Ranks = ALONE
) -> float:
    was_training = objective.training
    objective.eval()
    assert isinstance(task, Writes)  # the metric of any other task comes from its sums
    value = task.judged(objective, split, rows) if ranks.first else 0.0
    objective.train(was_training)
    return ranks.sum([value], device)[0]
