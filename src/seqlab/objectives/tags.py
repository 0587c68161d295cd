"""Tagging losses: a tag for every word, chosen independently or jointly over a sentence.

B rows · T positions · N tags
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch
from seqlab.errors import RecipeError
from seqlab.models.encoder import Encoder
from seqlab.models.language_model import State
from seqlab.nn.crf import CRF
from seqlab.objectives.objective import Loss, Objective
from seqlab.objectives.spans import may_follow, spans
from seqlab.recipe import PartSettings


class TagScores(nn.Linear):
    """s_t = W h_t + b: a score for each tag."""

    def __init__(self, width: int, names: Sequence[str], scheme: str | None = None) -> None:
        super().__init__(width, len(names))
        self.names, self.scheme = list(names), scheme


class EachAlone(nn.Module):
    """p(y | s) = Π_t softmax(s_t)(y_t)"""

    def losses(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return −log p(tags): (B, T, N), (B, T), (B, T) → (B,)"""
        losses = F.cross_entropy(scores.mT, tags, reduction="none")
        return losses.masked_fill(~mask, 0.0).sum(1)

    def best(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable tags (B, T); 0 at padding."""
        return scores.argmax(-1).masked_fill(~mask, 0)

    def possible(self, tags: Tensor, mask: Tensor) -> Tensor:
        """Return which rows (B,) have a probability: all of them."""
        return torch.ones_like(mask[:, 0])


class TagHead(nn.Module):
    """The scores of tags, and the model that turns them into the probability of a sentence."""

    def __init__(self, scores: TagScores, sentence: CRF | EachAlone) -> None:
        super().__init__()
        self.scores, self.sentence = scores, sentence


class TagsSettings(PartSettings):
    first: int | None = None
    """Index of the first word of each sentence whose tag is learnt and counted: from 0, or from the end (-1)."""
    last: int | None = None
    """Index of the last such word. By default all words are learnt and counted."""


class Examined(NamedTuple):
    """The tags of the sentences of a batch, with their probabilities."""

    found: Tensor
    """(B, T), the predicted tags."""
    probabilities: Tensor
    """(B, T), the marginal probability of each predicted tag."""
    losses: Tensor
    """(B,), −log p of the true tags; ∞ if they break the rules."""
    counted: Tensor
    """(B, T), which words count."""


class Tags(Objective):
    """−Σ log p(tags of a sentence | its words)

    In evaluations a sentence without a probability (one of its tags is not in the training data or breaks the rules) is
    left out of the loss, but counts in all other figures.
    """

    class Settings(TagsSettings):
        crf: bool = False
        """Whether tags depend on neighbouring tags (a conditional random field); otherwise each is chosen by itself."""
        rules: bool = False
        """With a CRF, whether sequences that the tagging scheme of the training data (BIO, IOB1 or IOBES) forbids, such
        as I-PER after O, have probability 0."""

        @model_validator(mode="after")
        def _rules_need_neighbours(self) -> Self:
            if self.rules and not self.crf:
                raise ValueError("'rules' needs crf: true, since only a CRF looks at neighbouring tags")
            return self

        @model_validator(mode="after")
        def _a_chain_is_whole(self) -> Self:
            if self.crf and (self.first is not None or self.last is not None):
                raise ValueError("'first' and 'last' need crf: false, since a CRF scores whole sentences")
            return self

    body_type = Encoder
    head_type = TagScores
    body: Encoder
    settings: TagsSettings

    def __init__(self, settings: TagsSettings, body: Encoder, head: TagScores) -> None:
        super().__init__()
        self.settings, self.body = settings, body
        self.head = TagHead(head, sentence_model(settings, head))

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        (states, mask, _), tags = self.body(batch), batch["tags"]
        scores = self.scores(states, tags)
        sentence, counted = self.head.sentence, self._counted(mask)
        if self.training:
            return Loss(sentence.losses(scores, tags, counted).sum(), counted.sum())
        best = self.choose(states, mask)
        parts = {"right": ((best == tags) & counted).sum(), "words": counted.sum()}
        if "spans" in batch:
            parts |= self._span_counts(best, batch, counted)
        known, tags = ((tags >= 0) | ~counted).all(1), tags.clamp(min=0)
        likely = known & sentence.possible(tags, counted)
        losses = sentence.losses(scores[likely], tags[likely], counted[likely])
        return Loss(losses.sum(), counted[likely].sum(), parts)

    def best(self, batch: Batch) -> list[list[str]]:
        """Return the predicted tags of each sentence."""
        states, mask, _ = self.body(batch)
        return self._named(self.choose(states, mask), mask)

    def examined(self, batch: Batch) -> Examined:
        """Return the predicted tags with their probabilities, and the losses of the true ones."""
        (states, mask, _), tags = self.body(batch), batch["tags"]
        counted, found, sentence = self._counted(mask), self.choose(states, mask), self.head.sentence
        losses = sentence.losses(self.scores(states, tags), tags, counted)
        losses = losses.masked_fill(~sentence.possible(tags, counted), torch.inf)
        return Examined(found, self._marginals(self.scores(states, found), found, mask), losses, counted)

    def _marginals(self, scores: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """Return p(y_t = tag | s), (B, T), which is ∂ log Z / ∂ s_t(tag): 1 + the gradient of −log p(tags)."""
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.head.sentence.losses(scores, tags, mask).sum(), scores)
        return 1 + gradient.gather(-1, tags[..., None])[..., 0]

    def scores(self, states: Tensor, tags: Tensor) -> Tensor:
        """Score each tag for each word, (B, T, N); some subclasses look at the previous true tag (B, T)."""
        scores: Tensor = self.head.scores(states)
        return scores

    def choose(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the predicted tags (B, T)."""
        return self.head.sentence.best(self.head.scores(states), mask)

    def _counted(self, mask: Tensor) -> Tensor:
        """Return which words (B, T) lie between `first` and `last` in their sentences."""
        place, lengths = torch.arange(mask.shape[1], device=mask.device), mask.sum(1, keepdim=True)
        first, last = self.settings.first or 0, -1 if self.settings.last is None else self.settings.last
        low, high = (end if end >= 0 else lengths + end for end in (first, last))
        return mask & (place >= low) & (place <= high)

    def _named(self, best: Tensor, mask: Tensor) -> list[list[str]]:
        names, lengths = self.head.scores.names, mask.sum(1).tolist()
        return [[names[tag] for tag in row[:length]] for row, length in zip(best.tolist(), lengths, strict=True)]

    def _span_counts(self, best: Tensor, batch: Batch, counted: Tensor) -> dict[str, Tensor]:
        """Count the true spans, the predicted spans, and the predicted spans whose type, start and stop are right.

        Only spans whose words are all counted are included.
        """
        types = {name: number for number, name in enumerate(span_types(self.head.scores.names))}
        found = {
            (row, types[span.type], span.start, span.stop)
            for row, tags in enumerate(self._named(best, batch["mask"]))
            for span in spans(tags)
        }
        gold = {tuple(span) for span in batch["spans"].tolist()}
        inside = counted.tolist()
        found, gold = ({one for one in each if all(inside[one[0]][one[2] : one[3]])} for each in (found, gold))
        counts = {"spans": len(gold), "found": len(found), "hits": len(found & gold)}
        return {name: torch.tensor(count, device=best.device) for name, count in counts.items()}


def span_types(names: Sequence[str]) -> list[str]:
    """Return the types of spans, in the order of their numbers."""
    return sorted({name.partition("-")[2] for name in names})


def sentence_model(settings: TagsSettings, head: TagScores) -> CRF | EachAlone:
    if not isinstance(settings, Tags.Settings) or not settings.crf:
        return EachAlone()
    return CRF(len(head.names), allowed_by(head) if settings.rules else None)


def allowed_by(head: TagScores) -> Tensor:
    """Return which tag may follow which (N + 1, N + 1); the last row is the beginning, the last column the end."""
    if head.scheme is None:
        what = "the tags of the training data follow none of the schemes BIO, IOB1 and IOBES"
        raise RecipeError(what, where="objective.rules", hint="set objective.rules=false")
    ends: list[str | None] = [*head.names, None]
    return torch.tensor([[may_follow(head.scheme, before, tag) for tag in ends] for before in ends])
