"""A student learns what a teacher expects: KL(teacher ‖ student) at every position, beside −log p of the text itself.

Hinton et al. 2015, https://arxiv.org/abs/1503.02531
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from seqlab.objectives.next_token import scored
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import ModelSettings, PartSettings
from seqlab.registry import register


class Distillation(Objective):
    class Settings(PartSettings):
        teacher: ModelSettings
        share: float = 0.5
        """Of the teacher's word in the loss."""

    def __init__(self, settings, body, head, teacher):
        super().__init__()
        self.body, self.teacher, self.share = body, teacher.requires_grad_(False), settings.share

    def forward(self, batch, state=None):
        states, targets = scored(self.body(batch["tokens"], mask=batch.get("mask")).states, batch)
        student, count = self.body.logits(states), torch.tensor(len(targets))
        loss = F.cross_entropy(student, targets, reduction="sum")
        if not self.training:
            return Loss(loss, count)
        with torch.no_grad():
            teacher = self.teacher.logits(scored(self.teacher(batch["tokens"]).states, batch)[0])
        student, teacher = student.log_softmax(-1), teacher.log_softmax(-1)
        distance = F.kl_div(student, teacher, reduction="sum", log_target=True)
        return Loss((1 - self.share) * loss + self.share * distance, count)


register("objective", "distillation", Distillation)
