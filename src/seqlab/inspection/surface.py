"""The loss around a model's weights, along two directions: cliffs, and where a step leads with and without clipping.

Pascanu, Mikolov & Bengio 2013, https://arxiv.org/abs/1211.5063; Li et al. 2018, https://arxiv.org/abs/1712.09913
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.data.batches import Batch
from seqlab.objectives.objective import Objective


@dataclass(frozen=True)
class Surface:
    """`losses[row][column]` at weights + along[column] · u + across[row] · v: u is down the gradient, v random."""

    along: list[float]
    across: list[float]
    losses: list[list[float]]
    gradient_norm: float
    step: float
    """How far a plain step of the learning rate would go along u."""
    clipped: float
    """How far it goes with the gradient clipped."""


def surface(
    objective: Objective,
    batch: Batch,
    *,
    rate: float,
    clip_norm: float,
    points: int = 21,
    span: float | None = None,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> Surface:
    """A grid of points × points that reaches `span` far on each side, a tenth of the weights' length by default."""
    weights: list[Tensor] = [weight for weight in objective.parameters() if weight.requires_grad]
    was_training = objective.training
    objective.eval()
    objective.zero_grad()
    loss = objective(batch)
    (loss.sum / loss.count).backward()
    down = [-(weight.grad if weight.grad is not None else torch.zeros_like(weight)) for weight in weights]
    objective.zero_grad()
    norm = _length(down)
    u = [one / max(norm, 1e-30) for one in down]
    v = _across(weights, u, seed)
    reach = span if span is not None else 0.1 * _length([weight.detach() for weight in weights])
    places = torch.linspace(-reach, reach, points).tolist()
    start = [weight.detach().clone() for weight in weights]
    losses: list[list[float]] = []
    try:
        with torch.no_grad():
            for number, across in enumerate(places):
                losses.append([_at(objective, batch, weights, start, (u, along), (v, across)) for along in places])
                progress(number + 1)
    finally:
        with torch.no_grad():
            for weight, old in zip(weights, start, strict=True):
                weight.copy_(old)
        objective.train(was_training)
    return Surface(places, places, losses, norm, rate * norm, rate * min(norm, clip_norm))


Direction = tuple[list[Tensor], float]


def _at(
    objective: Objective, batch: Batch, weights: list[Tensor], start: list[Tensor], one: Direction, two: Direction
) -> float:
    for weight, old, a, b in zip(weights, start, one[0], two[0], strict=True):
        weight.copy_(old + one[1] * a + two[1] * b)
    loss = objective(batch)
    return float(loss.sum / loss.count)


def _across(weights: list[Tensor], u: list[Tensor], seed: int) -> list[Tensor]:
    """A random direction at right angles to u, in each tensor as long as the tensor itself is."""
    generator = torch.Generator().manual_seed(seed)
    noise = [torch.randn(weight.shape, generator=generator).to(weight) for weight in weights]
    scaled = [
        one * weight.detach().norm() / one.norm().clamp_min(1e-30) for one, weight in zip(noise, weights, strict=True)
    ]
    overlap = sum(float((a * b).sum()) for a, b in zip(scaled, u, strict=True))
    apart = [a - overlap * b for a, b in zip(scaled, u, strict=True)]
    size = max(_length(apart), 1e-30)
    return [one / size for one in apart]


def _length(tensors: list[Tensor]) -> float:
    return float(torch.sqrt(sum((one.double().square().sum() for one in tensors), torch.zeros((), dtype=torch.double))))
