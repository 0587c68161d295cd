"""Masked tokens of unlabelled text: what an encoder learns before it is given a task of its own.

One token in five, and at least one, is hidden by `<end>`, which stands nowhere else: noise of the example.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.reading.readers import read
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings
from seqlab.registry import register
from seqlab.tasks.task import Task
from seqlab.tokenizers.fitted import fitted


class FillIn(Objective):
    Settings = PartSettings

    def __init__(self, settings, body, head):
        super().__init__()
        self.body = body

    def forward(self, batch, state=None):
        hidden = batch["hidden"]
        logits, targets = self.body.embedding.logits(self.body(batch).states[hidden]), batch["targets"][hidden]
        right = (logits.argmax(-1) == targets).sum()
        return Loss(F.cross_entropy(logits, targets, reduction="sum"), hidden.sum(), {"right": right})


class Hidden(Examples):
    def __init__(self, texts, blank, training):
        super().__init__([len(text) for text in texts], training)
        self.texts, self.blank = texts, blank

    def batch(self, indices, key):
        targets, mask = padded([self.texts[index] for index in indices])
        hidden = torch.zeros_like(mask)
        for row, index in enumerate(indices):
            noise = key.generator(int(index)).random(len(self.texts[index]))
            hidden[row, : len(noise)] = torch.from_numpy((noise < 0.2) | (noise == noise.min()))
        return Batch(tokens=targets.masked_fill(hidden, self.blank), targets=targets, mask=mask, hidden=hidden)


class MaskedText(Task):
    Settings = PartSettings

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    @property
    def sizes(self):
        return {"vocab_size": self.tokenizer.vocab_size}

    @classmethod
    def prepare(cls, recipe, tokenizer=None):
        return cls(tokenizer or fitted(recipe.tokenizer, recipe.data))

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer)

    def split(self, data, which, training):
        texts = [record.fields["text"] for record in read(data, which, ("text",))]
        return Hidden(self.tokenizer.encode_batch(texts), self.tokenizer.end_id, training)

    def metrics(self, totals, split):
        return {"loss": totals["sum"] / totals["count"], "accuracy": totals["right"] / totals["count"]}


register("objective", "fill-in", FillIn)
register("task", "masked-text", MaskedText)
