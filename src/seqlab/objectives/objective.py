"""What is minimised. An objective owns its model or models, and is what the trainer and DDP wrap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from seqlab.data.batches import Batch
from seqlab.models.language_model import State
from seqlab.recipe import PartSettings


@dataclass
class Loss:
    """A sum over `count` things (tokens, sentences, ...); their ratio is the loss that people read.

    Sums and counts, not means, so that pieces of a batch and ranks add up to exactly the large batch.
    """

    sum: Tensor
    count: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Other sums for metrics, such as the number of right answers."""
    state: State | None = None
    """What a stream carries to its next window."""


class Objective(nn.Module, ABC):
    """Owns a `body`, and often a `head`: their weights are called body.* and head.* in a checkpoint."""

    Settings: ClassVar[type[PartSettings]]
    body: nn.Module
    progress: float = 0.0
    """The share of the training that is done, set by the trainer before every step; `pace` says what it is used for."""

    def pace(self, progress: float) -> float:
        """What a step depends on that changes with the share of the training that is done; nothing by default.

        A training can be prolonged if this is the same for all steps so far.
        """
        return 0.0

    @abstractmethod
    def forward(self, batch: Batch, state: State | None = None) -> Loss: ...
