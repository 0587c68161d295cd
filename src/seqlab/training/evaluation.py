"""One pass over a split: every example counts exactly once, for any batch size and number of ranks."""

from __future__ import annotations

import numpy as np
import torch

from seqlab.data.batching.batches import Split
from seqlab.data.randomness import Key
from seqlab.objectives.objective import Objective, checked
from seqlab.training.distributed import ALONE, Ranks


@torch.no_grad()
def evaluate(
    objective: Objective, split: Split, batch_size: int, device: torch.device, ranks: Ranks = ALONE
) -> dict[str, float]:
    """Return the sums of an objective over a split: `sum` and `count`, whose ratio is the loss, and its parts.

    The other means of a loss are in `name.sum` and `name.count`; `sum` / `count` includes all of them.
    """
    was_training = objective.training
    objective.eval()
    order = split.order(batch_size, seed=0)
    totals: dict[str, float] = {"sum": 0.0, "count": 0.0}
    carried = None
    for cursor, indices in order.once():
        own = np.array_split(indices, ranks.world)[ranks.rank]
        weight = 1.0 if len(own) else 0.0  # a rank without rows reads one that does not count
        batch = split.batch(own if len(own) else indices[:1], Key(0, 0)).to(device)
        loss = checked(objective(batch, carried if order.carries and cursor.batch else None), objective)
        carried = loss.state if order.carries else None
        sums = {"sum": loss.sum, "count": loss.count, **loss.parts}
        for name, mean in loss.others.items():
            sums |= {f"{name}.sum": mean.sum, f"{name}.count": mean.count}
        for name, value in sums.items():
            totals[name] = totals.get(name, 0.0) + weight * float(value)
    objective.train(was_training)
    names = sorted(totals)
    totals = dict(zip(names, ranks.sum([totals[name] for name in names], device), strict=True))
    for name in loss.others:
        totals["sum"] += totals[f"{name}.sum"] * totals["count"] / max(totals[f"{name}.count"], 1.0)
    return totals
