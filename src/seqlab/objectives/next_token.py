"""Next-token loss: the negative log-probability that language models, translators and captioners minimise."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from seqlab.data.batching.batches import Batch
from seqlab.models.language_model import LanguageModel, Output, State
from seqlab.objectives.forcing import Forcing, forced
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings


class NextToken(Objective):
    """−Σ_t log p(w_t | w_{<t} [, source]) over the positions that are scored."""

    class Settings(PartSettings):
        accuracy: bool = False
        """Whether evaluations also count correct predictions, as the part `right`; this computes all logits."""
        norm_stabilizer: float = Field(default=0.0, ge=0)
        """β: training adds β Σ (‖h_t‖ − ‖h_{t−1}‖)² to the loss (Krueger & Memisevic 2016, https://arxiv.org/abs/1511.08400)."""

        smoothing: float = Field(default=0.0, ge=0, lt=1)
        """ε of label smoothing: in training, the loss is (1 − ε) (−log p(w)) + ε times the mean of −log p over all
        tokens (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567). Evaluations use −log p(w)."""

        forcing: Forcing = Forcing()
        """The inputs in training: the true tokens, or the model's own."""

    body_type = LanguageModel
    body: LanguageModel

    def __init__(self, settings: Settings, body: LanguageModel, head: nn.Module | None = None) -> None:
        super().__init__()
        self.settings, self.body = settings, body

    def pace(self, progress: float) -> float:
        return self.settings.forcing.share(progress)

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        own = self.training and self.settings.forcing.own > 0
        output = self.read(self._forced(batch, state) if own else batch, state)
        states, targets = scored(output.states, batch)
        smoothed = {"smoothing": self.settings.smoothing} if self.training and self.settings.smoothing else {}
        total, parts = self.body.losses(states, targets, **smoothed).sum(), {}
        if self.training and self.settings.norm_stabilizer:
            whole = output.states if output.undropped is None else output.undropped
            changes = norm_changes(whole, batch.get("mask"))
            parts["norm_changes"] = changes.detach()
            total = total + self.settings.norm_stabilizer * changes
        if self.settings.accuracy and not self.training:
            parts["right"] = (self.body.logits(states).argmax(-1) == targets).sum()
        return Loss(total, torch.tensor(len(targets), device=targets.device), parts, output.state)

    def _forced(self, batch: Batch, state: State | None) -> Batch:
        tokens = batch["tokens"]
        own = torch.rand(tokens.shape, device=tokens.device) < self.pace(self.progress)
        own[:, 0] = False  # the token before it was read in the previous window

        def expect(inputs: Tensor) -> Tensor:
            copy = None if state is None else state.select(torch.arange(len(tokens), device=tokens.device))
            return self.body.logits(self.read(Batch({**batch, "tokens": inputs}), copy).states)

        return Batch({**batch, "tokens": forced(tokens, own, self.settings.forcing, expect)})

    def read(self, batch: Batch, state: State | None) -> Output:
        output: Output = self.body(batch["tokens"], state, batch.get("mask"), batch.part("source"))
        return output


def scored(states: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the states (N, D) and the targets (N,) of the positions that count."""
    counts = batch.get("scored", batch.get("mask"))
    if counts is None:
        return states.flatten(0, 1), batch["targets"].flatten()
    return states[counts], batch["targets"][counts]


def norm_changes(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return Σ_t (‖h_t‖ − ‖h_{t−1}‖)² over the real positions of (B, T, D)."""
    changes: Tensor = states.norm(dim=-1).diff(dim=1).square()
    return changes.sum() if mask is None else changes[mask[:, 1:]].sum()
