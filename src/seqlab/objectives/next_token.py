"""The next token's negative log-probability: what language models, translators and captioners minimise."""

from __future__ import annotations

import torch
from torch import nn

from seqlab.data.batches import Batch
from seqlab.models.language_model import LanguageModel, State
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings


class NextToken(Objective):
    """−Σ_t log p(w_t | w_{<t} [, source]) over the positions that are scored."""

    class Settings(PartSettings):
        accuracy: bool = False
        """Count the right guesses of evaluations too, as the part `right`; it takes all logits."""

    body: LanguageModel

    def __init__(self, settings: Settings, body: LanguageModel, head: nn.Module | None = None) -> None:
        super().__init__()
        self.settings, self.body = settings, body

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        source = batch.part("source")
        if source is not None:
            state = self.body.start(source, len(batch["tokens"]))
        mask = batch.get("mask")
        output = self.body(batch["tokens"], state, mask)
        scored = batch.get("scored", mask)
        states, targets = output.states, batch["targets"]
        if scored is None:
            states, targets = states.flatten(0, 1), targets.flatten()
        else:
            states, targets = states[scored], targets[scored]
        losses = self.body.losses(states, targets)
        parts = {}
        if self.settings.accuracy and not self.training:
            parts["right"] = (self.body.logits(states).argmax(-1) == targets).sum()
        return Loss(losses.sum(), torch.tensor(len(targets), device=targets.device), parts, output.state)
