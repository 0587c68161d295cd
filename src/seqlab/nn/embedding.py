"""Token embeddings, which may also be the output layer (tied weights)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class TokenEmbedding(nn.Embedding):
    """E[w], and with tied weights also the logits E h (Press & Wolf 2017, https://arxiv.org/abs/1608.05859)."""

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.weight)
