"""What is minimised. An objective owns its model or models, and is what the trainer and DDP wrap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from torch import Tensor, nn

from seqlab.data.batching.batches import Batch
from seqlab.models.language_model import State
from seqlab.recipe import PartSettings


@dataclass
class Mean:
    """A sum over `count` things, from which their mean is made."""

    sum: Tensor
    count: Tensor


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
    others: dict[str, Mean] = field(default_factory=dict)
    """Means over other things that are added to it (of BERT: masked tokens, and pairs of sentences), by name. An
    objective that has some says in `counts` how many things there are."""


class Objective(nn.Module, ABC):
    """Owns a `body`, and often a `head`: their weights are called body.* and head.* in a checkpoint.

    It may own more models, such as a teacher: each is a field of its `Settings` (`teacher: ModelSettings`), and is
    passed to the constructor under that name. One of them that has nothing to train never drops anything out.
    Buffers of its own are in checkpoints as its weights are.
    """

    Settings: ClassVar[type[PartSettings]]
    body: nn.Module
    progress: float = 0.0
    """The share of the training that is done, set by the trainer before every step; `pace` says what it is used for."""

    def pace(self, progress: float) -> float:
        """What a step depends on that changes with the share of the training that is done; nothing by default.

        A training can be prolonged if this is the same for all steps so far.
        """
        return 0.0

    def experience(self, batch: Batch) -> Sequence[Batch]:
        """What is learnt from a batch of the data: an update of the weights for each of these; mostly the batch itself.

        Called without gradients or dropout, for each piece of a batch on each rank: what is remembered in a buffer
        depends on how a batch is cut, and is that of the first rank. A policy samples texts here and rates them, and a
        generator takes turns with its discriminator. Whatever is random draws from torch's own generator, which is in
        checkpoints.
        """
        return [batch]

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Where a loss has `others`: how many things they are means of, and `count` itself, before any is computed.

        So that a batch can be cut into pieces: each mean is over the whole batch.
        """
        return {}

    @abstractmethod
    def forward(self, batch: Batch, state: State | None = None) -> Loss: ...

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for name, model in self.named_children():
            if name not in ("body", "head") and not any(weight.requires_grad for weight in model.parameters()):
                model.eval()
        return self
