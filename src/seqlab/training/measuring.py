"""The figures of a model on held-out data, including the one that chooses the best checkpoint."""

from __future__ import annotations

import torch

from seqlab.data.batching.batches import Split
from seqlab.objectives.objective import Objective
from seqlab.tasks.abilities import Writes
from seqlab.tasks.task import Task
from seqlab.training.distributed import ALONE, Ranks
from seqlab.training.evaluation import evaluate


def measured(
    objective: Objective, task: Task, split: Split, rows: int, device: torch.device, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Return the task's metrics; if `task.metric` needs answers, the first rank scores them."""
    metrics = task.metrics(evaluate(objective, split, rows, device, ranks), split)
    if task.metric not in metrics:
        metrics[task.metric] = judged(objective, task, split, rows, device, ranks)
    return metrics


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
