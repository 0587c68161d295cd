"""Classification losses: −log p(class) of whole texts, and of all nodes of trees.

B rows · T positions · C classes
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch
from seqlab.models.encoder import Encoded, Encoder
from seqlab.models.language_model import State
from seqlab.nn.summary import ClassHead, NodeHead
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings


class Classes(Objective):
    """−Σ log softmax(logits)[class]; if `labels` (B, C) says yes or no to each class, −Σ log σ(± logits)."""

    class Settings(PartSettings):
        pass

    body_type = Encoder
    head_type = ClassHead
    body: Encoder

    def __init__(self, settings: Settings, body: Encoder, head: ClassHead) -> None:
        super().__init__()
        self.body, self.head = body, head

    def logits(self, batch: Batch) -> Tensor:
        """(B, C)"""
        encoded: Encoded = self.body(batch)
        logits: Tensor = self.head(encoded.states, encoded.mask)
        return logits

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        logits, labels = self.logits(batch), batch["labels"]
        if labels.dim() == 2:
            total = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
            given, found = labels.bool(), logits > 0
        else:
            total = F.cross_entropy(logits, labels, reduction="sum")
            given, found = (F.one_hot(which, logits.shape[-1]).bool() for which in (labels, logits.argmax(-1)))
        parts = {} if self.training else _counted(given, found)
        return Loss(total, torch.tensor(len(labels), device=labels.device), parts)


def _counted(given: Tensor, found: Tensor) -> dict[str, Tensor]:
    """Count the rows (B, C) that are right in all classes, and for each class the rows given, found, and both."""
    sums = {"given": given, "found": found, "hit": given & found}
    parts = {f"{name}.{number}": one for name, of in sums.items() for number, one in enumerate(of.sum(0).unbind())}
    return {"right": (given == found).all(-1).sum(), **parts}


class NodeClasses(Objective):
    """−Σ_trees Σ_nodes log softmax(W h_node + b)[label]: every node of a tree is a phrase with its own label.

    Socher et al. 2013, https://aclanthology.org/D13-1170. The root is the last node. With an odd number of ordered
    classes (0 worst … 4 best), `polar` counts the roots that are not of the middle class, and `polar_right` those of
    them whose side has the greater probability.
    """

    class Settings(PartSettings):
        pass

    body_type = Encoder
    head_type = NodeHead
    body: Encoder

    def __init__(self, settings: Settings, body: Encoder, head: NodeHead) -> None:
        super().__init__()
        self.body, self.head = body, head

    def logits(self, batch: Batch) -> Tensor:
        """(B, T, C); values at padding are arbitrary."""
        logits: Tensor = self.head(self.body(batch).states)
        return logits

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        logits, labels, mask = self.logits(batch), batch["labels"], batch["mask"]
        total = F.cross_entropy(logits[mask], labels[mask], reduction="sum")
        parts = {} if self.training else self._counted(logits, labels, mask)
        return Loss(total, mask.sum(), parts)

    def _counted(self, logits: Tensor, labels: Tensor, mask: Tensor) -> dict[str, Tensor]:
        right = (logits.argmax(-1) == labels) & mask
        rows, root = torch.arange(len(mask), device=mask.device), mask.sum(1) - 1
        parts = {"roots": mask[:, 0].sum(), "right": right[rows, root].sum(), "nodes_right": right.sum()}
        middle, odd = divmod(logits.shape[-1], 2)
        if odd:
            label, p = labels[rows, root], logits[rows, root].softmax(-1)
            above, polar = p[:, middle + 1 :].sum(-1) > p[:, :middle].sum(-1), label != middle
            parts |= {"polar": polar.sum(), "polar_right": (polar & (above == (label > middle))).sum()}
        return parts
