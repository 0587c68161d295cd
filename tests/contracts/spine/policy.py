"""A language model that is rewarded for what it writes, and stays near the one it was: two updates for each batch.

−min(r A, clip(r, 1 ± 0.2) A) + β (log p − log q), where r = p / p_old of a token, A is the reward less its running
mean, and q is the reference. Schulman et al. 2017, https://arxiv.org/abs/1707.06347
"""

from __future__ import annotations

import torch

from seqlab.data.batching.batches import Batch
from seqlab.decoding.choose import Sample
from seqlab.decoding.generate import generate
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import ModelSettings, PartSettings
from seqlab.registry import register


class Policy(Objective):
    class Settings(PartSettings):
        reference: ModelSettings
        rewarded: int = 3
        """The token that is worth 1 wherever it is written."""
        length: int = 8
        near: float = 0.02

    def __init__(self, settings, body, head, reference):
        super().__init__()
        self.settings, self.body, self.reference = settings, body, reference.requires_grad_(False)
        self.register_buffer("mean", torch.zeros(()))  # of the rewards so far: it goes into checkpoints

    def experience(self, batch):
        texts, rewards = self.written(batch, seed=int(torch.randint(2**31, ())))
        self.mean.lerp_(rewards.mean(), 0.1)
        old, near = (self.chances(model, texts) for model in (self.body, self.reference))
        return [Batch(texts=texts, old=old, near=near, gain=rewards - self.mean)] * 2

    def written(self, batch, seed):
        """Texts that go on from the first tokens of each row, and what they are worth"""
        prompts = batch["tokens"][:, :4]
        steps = generate(self.body, prompts.tolist(), Sample(seed=seed), self.settings.length)
        new = torch.tensor([[token.id for token in step] for step in steps]).T.to(prompts.device)
        return torch.cat([prompts, new], 1), (new == self.settings.rewarded).float().mean(1)

    def chances(self, model, texts):
        """log p of each token that was written"""
        logits = model.logits(model(texts[:, :-1]).states[:, -self.settings.length :])
        return logits.log_softmax(-1).gather(-1, texts[:, -self.settings.length :, None])[..., 0]

    def forward(self, batch, state=None):
        if not self.training:
            rewards = self.written(batch, seed=0)[1]
            return Loss(-rewards.sum(), torch.tensor(len(rewards)))
        chances, gain = self.chances(self.body, batch["texts"]), batch["gain"][:, None]
        ratio = (chances - batch["old"]).exp()
        gained = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
        loss = self.settings.near * (chances - batch["near"]) - gained
        return Loss(loss.sum(), torch.tensor(chances.numel()))


register("objective", "policy", Policy)
