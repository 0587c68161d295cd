"""The loss around a model's weights in two directions: cliffs, and where a step leads with and without clipping.

Pascanu, Mikolov & Bengio 2013, https://arxiv.org/abs/1211.5063; Li et al. 2018, https://arxiv.org/abs/1712.09913
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.data.batching.batches import Batch
from seqlab.data.progress import work
from seqlab.inspection.gradients import cells
from seqlab.nn.products import products
from seqlab.objectives.objective import Objective


@dataclass(frozen=True)
class Surface:
    """`losses[row][column]` at weights + along[column] · u + across[row] · v, where u points down the gradient."""

    direction: str
    """Description of v."""
    along: list[float]
    across: list[float]
    losses: list[list[float]]
    gradient_norm: float
    step: float
    """Length along u of a step without clipping."""
    clipped: float
    """Length along u of a step with the gradient clipped."""


def surface(
    objective: Objective,
    batch: Batch,
    *,
    rate: float,
    clip_norm: float,
    points: int = 21,
    span: float | None = None,
    seed: int = 0,
) -> Surface:
    """Compute a grid of points × points. `span` is its reach along u; by default a few steps, with a minimum.

    In a recurrent model v scales the recurrent matrices, which cause the cliffs: at across = −1 they are zero, at 1
    they are doubled. In other models v is random, and each part of it is as long as the weight it is added to.
    """
    weights: list[Tensor] = [weight for weight in objective.parameters() if weight.requires_grad]
    was_training = objective.training
    objective.eval()
    objective.zero_grad()
    loss = objective(batch)
    (loss.sum / loss.count).backward()
    down = [-(weight.grad if weight.grad is not None else torch.zeros_like(weight)) for weight in weights]
    objective.zero_grad()
    norm, size = _length(down), _length([weight.detach() for weight in weights])
    u = [one / max(norm, 1e-30) for one in down]
    direction, v = _across(objective, weights, seed)
    reach = span if span is not None else max(3 * rate * norm, 0.02 * size)
    along, across = torch.linspace(-reach, reach, points).tolist(), torch.linspace(-1, 1, points).tolist()
    start = [weight.detach().clone() for weight in weights]
    losses: list[list[float]] = []
    try:
        with torch.no_grad(), work("computing the loss, row by row", points) as progress:
            for number, high in enumerate(across, 1):
                losses.append([_at(objective, batch, weights, start, (u, far), (v, high)) for far in along])
                progress(number)
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, start, strict=True):
                weight.copy_(old)
        objective.train(was_training)
    return Surface(direction, along, across, losses, norm, rate * norm, rate * min(norm, clip_norm))


Direction = tuple[list[Tensor], float]


def _at(
    objective: Objective, batch: Batch, weights: list[Tensor], start: list[Tensor], one: Direction, two: Direction
) -> float:
    for weight, old, a, b in zip(weights, start, one[0], two[0], strict=True):
        weight.copy_(old + one[1] * a + two[1] * b)
    loss = objective(batch)
    return float(loss.sum / loss.count)


def _across(objective: Objective, weights: list[Tensor], seed: int) -> tuple[str, list[Tensor]]:
    recurrent = {id(weight) for _, cell in cells(objective) for weight, _ in products(cell)}
    if any(id(weight) in recurrent for weight in weights):
        return "recurrent matrices", [weight.detach() * (id(weight) in recurrent) for weight in weights]
    generator = torch.Generator().manual_seed(seed)
    noise = [torch.randn(weight.shape, generator=generator).to(weight) for weight in weights]
    lengths = [weight.detach().norm() / one.norm().clamp_min(1e-30) for one, weight in zip(noise, weights, strict=True)]
    return "a random direction", [one * length for one, length in zip(noise, lengths, strict=True)]


def _length(tensors: list[Tensor]) -> float:
    return float(torch.sqrt(sum((one.double().square().sum() for one in tensors), torch.zeros((), dtype=torch.double))))
