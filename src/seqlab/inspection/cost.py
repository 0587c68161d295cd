"""The cost of training in floating-point operations, counted on batches of its own data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqlab.data.batching.batches import Batch, Split
from seqlab.data.batching.order import Cursor, Indices
from seqlab.data.randomness import Key
from seqlab.nn.cells import Cell
from seqlab.nn.interventions import Replace, intervene
from seqlab.objectives.objective import Objective
from seqlab.recipe import TrainingSettings

MEASURED = 128
"""Number of batches, from the first, whose sizes are measured."""
COUNTED = 5
"""Number of these batches that are computed, from small to large."""
Shape = Sequence[int]


def training_operations(objective: Objective, split: Split, settings: TrainingSettings, steps: int) -> float:
    """Estimate the FLOPs of `steps` steps: a batch costs as much as a computed one of similar size, in proportion."""

    def batch(cursor: Cursor, indices: Indices) -> Batch:
        return split.batch(np.array_split(indices, settings.accumulate)[0], Key(settings.seed, cursor.epoch))

    places = list(islice(split.order(settings.batch_size, settings.seed).walk(), min(steps, MEASURED)))
    sizes = np.array([_size(batch(*place)) for place in places])
    total = 0.0
    for alike in np.array_split(np.argsort(sizes, kind="stable"), min(COUNTED, len(places))):
        middle = alike[len(alike) // 2]
        total += operations(objective, batch(*places[middle])) * sizes[alike].sum() / sizes[middle]
    return float(total / len(places) * settings.accumulate * steps)


def operations(objective: Objective, batch: Batch) -> int:
    """Count the FLOPs of forward and backward over a batch.

    Each multiply-add of matrix products, convolutions and attention counts as 2; elementwise operations and the
    optimizer do not count. Results that are discarded (padding, masked positions) count too. Gradients, weights and
    generators are unchanged.
    """
    was_training, device = objective.training, next(objective.parameters()).device
    weights = [weight for weight in objective.parameters() if weight.requires_grad]
    counter = FlopCounterMode(display=False, custom_mapping=KERNELS)
    recurrent = any(isinstance(part, Cell) for part in objective.modules())
    # an intervention on the state makes recurrences run step by step, since compiled ones cannot be counted
    by_step = intervene(objective, {("*", "h"): Replace(lambda state: state)} if recurrent else {})
    with torch.random.fork_rng(), torch.enable_grad(), by_step, counter:
        try:
            objective.train()
            torch.autograd.grad(objective(batch.to(device)).sum, weights, allow_unused=True)
        finally:
            objective.train(was_training)
    return counter.get_total_flops()


def _size(batch: Batch) -> int:
    return sum(tensor.numel() for tensor in batch.values())


def _product(_: Shape, a: Shape, b: Shape, **more: Any) -> int:
    return 2 * prod(a) * b[-1]


def _attended(q: Shape, k: Shape, v: Shape, *more: Any, **named: Any) -> int:
    """q kᵀ, and the product of its softmax and v."""
    return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _attended_back(_: Shape, q: Shape, k: Shape, v: Shape, *more: Any, **named: Any) -> int:
    """Twice the forward pass; recomputation of the scores inside a kernel does not count."""
    return 2 * _attended(q, k, v)


aten = torch.ops.aten
KERNELS = {
    aten.addmm_: _product,
    aten._scaled_dot_product_flash_attention_for_cpu: _attended,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attended_back,
    aten._scaled_dot_product_flash_attention_backward: _attended_back,
    aten._scaled_dot_product_efficient_attention_backward: _attended_back,
    aten._scaled_dot_product_cudnn_attention_backward: _attended_back,
}
"""Operations that PyTorch does not count, or counts differently on different devices."""
