"""Answers that are spans of documents longer than a window: pairs of texts, windows that overlap, offsets.

W windows · N tokens
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.reading.readers import read
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings
from seqlab.registry import register
from seqlab.tasks.task import Task
from seqlab.tokenizers.fitted import fitted
from seqlab.tokenizers.templates import Frame

ROLES, LONGEST, STRIDE = ("question", "document", "answer"), 24, 6
NOWHERE = (0, 0)
"""Where a window points that does not have the answer in it."""


class PointTo(Objective):
    """−log p(first) − log p(last), each over the tokens of a window"""

    Settings = PartSettings

    def __init__(self, settings, body, head):
        super().__init__()
        self.body, self.head = body, head

    def scores(self, batch):
        encoded = self.body(batch)
        return self.head(encoded.states).masked_fill(~encoded.mask[..., None], -torch.inf).movedim(-1, 1)  # (W, 2, N)

    def forward(self, batch, state=None):
        scores, ends = self.scores(batch), batch["ends"]
        right = (scores.argmax(-1) == ends).all(1).sum()
        sums = F.cross_entropy(scores.flatten(0, 1), ends.flatten(), reduction="sum")
        return Loss(sums, torch.tensor(len(ends), device=ends.device), {"right": right})


class Windows(Examples):
    def __init__(self, records, tokenizer, training):
        frame, self.windows, self.read, self.ends = Frame(tokenizer.template, tokenizer.special), [], [], []
        for record in records:
            question, document, answer = (record.fields[role] for role in ROLES)
            start = document.index(answer)
            for window in frame.windows(tokenizer.encode(question), tokenizer.encode(document), LONGEST, STRIDE):
                self.windows.append(window)
                self.read.append(record)
                self.ends.append(window.tokens(1, (start, start + len(answer))) or NOWHERE)
        super().__init__([len(window) for window in self.windows], training)

    def records(self):
        return self.read

    def batch(self, indices, key):
        tokens, mask = padded([self.windows[index].ids for index in indices])
        ends = torch.tensor([self.ends[index] for index in indices])
        return Batch(tokens=tokens, mask=mask, ends=ends, records=[self.read[index] for index in indices])

    def pointed(self, objective, batch):
        """The characters of the document that each window points to, None if it points nowhere, and its score."""
        best, ends = objective.scores(batch).log_softmax(-1).max(-1)
        each = zip(self.windows, map(tuple, ends.tolist()), best.sum(1).tolist(), strict=True)
        return [(None if pair == NOWHERE else window.characters(*pair), score) for window, pair, score in each]


class Spans(Task):
    Settings = PartSettings

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    @property
    def sizes(self):
        return {"vocab_size": self.tokenizer.vocab_size}

    @classmethod
    def prepare(cls, recipe, tokenizer=None):
        return cls(tokenizer or fitted(recipe.tokenizer, recipe.data, ROLES[:2], among=ROLES))

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer)

    def head(self, body):
        return nn.Linear(body.width, 2)

    def split(self, data, which, training):
        return Windows(read(data, which, ROLES), self.tokenizer, training)

    def metrics(self, totals, split):
        return {"loss": totals["sum"] / totals["count"], "windows": totals["right"] / totals["count"]}


register("objective", "point-to", PointTo)
register("task", "spans", Spans)
