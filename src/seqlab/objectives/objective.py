"""Objectives: what training minimises. An objective owns its models; the trainer and DDP wrap the objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from torch import Tensor, nn

from seqlab.data.batching.batches import Batch
from seqlab.errors import SeqlabError
from seqlab.models.language_model import State
from seqlab.recipe import PartSettings


@dataclass
class Mean:
    """A sum over `count` things, and thereby their mean."""

    sum: Tensor
    count: Tensor


@dataclass
class Loss:
    """A sum over `count` things (tokens, sentences, ...); the ratio is the reported loss.

    These are sums and counts rather than means, so that pieces of a batch and ranks add up to exactly the large batch.
    """

    sum: Tensor
    count: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Other sums for metrics, such as the number of correct answers."""
    state: State | None = None
    """The state that a stream carries to its next window."""
    others: dict[str, Mean] = field(default_factory=dict)
    """Means over other things that are added to the loss, by name (in BERT: masked tokens, and pairs of sentences). An
    objective that uses them implements `counts`."""


def checked(loss: object, objective: nn.Module) -> Loss:
    """Return what an objective computed, or raise an error if it is not a `Loss` of tensors."""
    if isinstance(loss, Loss) and isinstance(loss.sum, Tensor) and isinstance(loss.count, Tensor):
        if loss.sum.dim() == loss.count.dim() == 0:
            return loss
        name, one = ("sum", loss.sum) if loss.sum.dim() else ("count", loss.count)
        what, hint = f"forward returned a Loss with a {name} of shape {tuple(one.shape)}", "add its numbers up: .sum()"
        raise SeqlabError(what, where=type(objective).__name__, hint=hint)
    found = f"a Loss with the count {loss.count!r}" if isinstance(loss, Loss) else type(loss).__name__
    hint = "return Loss(sum, count), both of them tensors"
    raise SeqlabError(f"forward returned {found}", where=type(objective).__name__, hint=hint)


class Objective(nn.Module, ABC):
    """Base class of objectives: owns a `body` and often a `head`, whose weights are body.* and head.* in a checkpoint.

    Constructed as `cls(settings, body, head)`: the model that the recipe names, and what `Task.head` returned, or None.
    The constructor keeps them as `self.body` and `self.head`.

    It may own more models, such as a teacher: each is a field of its `Settings` (`teacher: ModelSettings`) and is
    passed to the constructor under that name. Such a model stays in evaluation mode if all its weights are frozen.
    Checkpoints contain the objective's buffers as well as its weights.
    """

    Settings: ClassVar[type[PartSettings]]
    body_type: ClassVar[type[nn.Module]] = nn.Module
    """What the body must be; `build` refuses any other with the names of those that fit."""
    head_type: ClassVar[type[nn.Module] | None] = None
    """What the task's head must be; None if the objective accepts any, or none."""
    body: nn.Module
    progress: float = 0.0
    """The share of training that is done, set by the trainer before every step and used by `pace`."""

    def pace(self, progress: float) -> float:
        """Return the value by which a step depends on the share of training that is done; constant by default.

        Training can be prolonged if this value stays the same for all steps so far.
        """
        return 0.0

    def experience(self, batch: Batch) -> Sequence[Batch]:
        """Return the batches to learn from, one weight update each, given a batch of data; by default just that batch.

        Called without gradients or dropout, for each piece of a batch on each rank: anything stored in a buffer depends
        on how batches are cut, and the first rank's value is kept. Here a policy samples and rates texts, and a
        generator alternates with its discriminator. Random numbers must come from torch's default generator, whose
        state is part of checkpoints.
        """
        return [batch]

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the counts of a loss with `others`, and `count` itself, before anything is computed.

        With these, each mean is over the whole batch even if the batch is cut into pieces.
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
