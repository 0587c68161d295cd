"""Output recurrence: each tag is fed back into the choice of the next.

B rows · T positions · D width · N tags
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqlab.models.encoder import Encoder
from seqlab.objectives.forcing import Forcing, forced
from seqlab.objectives.tags import EachAlone, TagHead, Tags, TagScores, TagsSettings


class FeedbackHead(TagHead):
    """The weights W and b in `scores`, and U in `feedback`."""

    def __init__(self, scores: TagScores, width: int) -> None:
        super().__init__(scores, EachAlone())
        self.feedback = nn.Embedding(len(scores.names) + 1, width)
        nn.init.normal_(self.feedback.weight, std=width**-0.5)


class FedBackTags(Tags):
    """s_t = W tanh(h_t + U[y_{t−1}]) + b, p(y | h) = Π_t softmax(s_t)(y_t)

    In training y_{t−1} is the true tag (or, with `forcing`, partly the model's own), so all positions are computed at
    once; in use it is the tag chosen before, one position after the other. If each h_t depends on a single word
    (`model.depth: 0`), this is the only recurrence. In an evaluation the loss is computed with the true tags fed back;
    all other figures are computed with the model's own. Jordan 1986, Serial order: a parallel distributed processing
    approach.
    """

    class Settings(TagsSettings):
        forcing: Forcing = Forcing()
        """The tags that are fed back in training: the true ones, or the model's own."""

    settings: Settings
    head: FeedbackHead

    def __init__(self, settings: Settings, body: Encoder, head: TagScores) -> None:
        super().__init__(settings, body, head)
        self.head = FeedbackHead(head, body.width)
        self.begin = len(head.names)
        """The id that is fed back before the first tag."""

    def pace(self, progress: float) -> float:
        return self.settings.forcing.share(progress)

    def scores(self, states: Tensor, tags: Tensor) -> Tensor:
        before, forcing = self._before(tags), self.settings.forcing
        if self.training and forcing.own > 0:
            chosen = torch.rand(before.shape, device=before.device) < self.pace(self.progress)
            chosen[:, 0] = False
            before = forced(before, chosen, forcing, lambda tags: self._score(states, tags))
        return self._score(states, before)

    def choose(self, states: Tensor, mask: Tensor) -> Tensor:
        """Choose tags one after the other, each from the tag chosen before it."""
        tags = [torch.full((len(states),), self.begin, device=states.device)]
        for state in states.unbind(1):
            tags.append(self._score(state, tags[-1]).argmax(-1))
        return torch.stack(tags[1:], 1).masked_fill(~mask, 0)

    def _before(self, tags: Tensor) -> Tensor:
        """Return the tag before each position; an unknown tag is treated like the beginning."""
        before = torch.cat([torch.full_like(tags[:, :1], self.begin), tags[:, :-1]], 1)
        return before.where(before >= 0, self.begin)

    def _score(self, states: Tensor, before: Tensor) -> Tensor:
        scores: Tensor = self.head.scores(torch.tanh(states + self.head.feedback(before)))
        return scores
