"""Any encoder fills in hidden tokens and names the class of its text, in one objective.

Loss: the mean of −log p of the hidden tokens, and that of the classes. Which tokens are hidden is noise of the example:
a function of (seed, epoch, example).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.reading.readers import read
from seqlab.objectives.objective import Loss, Mean, Objective
from seqlab.recipe import PartSettings
from seqlab.registry import register
from seqlab.tasks.task import Task
from seqlab.tokenizers.fitted import fitted


class FillInAndClassify(Objective):
    Settings = PartSettings

    def __init__(self, settings, body, head):
        super().__init__()
        self.body, self.head = body, head

    def counts(self, batch):
        return {"count": batch["hidden"].sum(), "classes": torch.tensor(len(batch["label"]))}

    def forward(self, batch, state=None):
        encoded, hidden, counts = self.body(batch), batch["hidden"], self.counts(batch)
        states, mask = encoded.states, encoded.mask[..., None]
        words, classes = self.body.embedding.logits(states[hidden]), self.head((states * mask).sum(1) / mask.sum(1))
        pairs = {"words": (words, batch["targets"][hidden]), "classes": (classes, batch["label"])}
        loss, other = (F.cross_entropy(*pair, reduction="sum") for pair in pairs.values())
        parts = {name: (logits.argmax(-1) == targets).sum() for name, (logits, targets) in pairs.items()}
        return Loss(loss, counts["count"], parts, others={"classes": Mean(other, counts["classes"])})


class Labelled(Examples):
    def __init__(self, texts, labels, blank, training):
        super().__init__([len(text) for text in texts], training)
        self.texts, self.labels, self.blank = texts, labels, blank

    def batch(self, indices, key):
        targets, mask = padded([self.texts[index] for index in indices])
        hidden = torch.zeros_like(mask)
        for row, index in enumerate(indices):  # one token in five, and at least one
            noise = key.generator(int(index)).random(len(self.texts[index]))
            hidden[row, : len(noise)] = torch.from_numpy((noise < 0.2) | (noise == noise.min()))
        tokens, label = targets.masked_fill(hidden, self.blank), torch.tensor([self.labels[i] for i in indices])
        return Batch(tokens=tokens, targets=targets, mask=mask, hidden=hidden, label=label)


class LabelledText(Task):
    Settings = PartSettings

    def __init__(self, tokenizer, labels):
        self.tokenizer, self.labels = tokenizer, labels

    @property
    def sizes(self):
        return {"vocab_size": self.tokenizer.vocab_size + 1}

    @classmethod
    def prepare(cls, recipe, tokenizer=None):
        records = read(recipe.data, "train", ("text", "label"))
        labels = sorted({one.fields["label"] for one in records})
        return cls(tokenizer or fitted(recipe.tokenizer, recipe.data), labels)

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer, memory["labels"])

    def memory(self):
        return {"labels": self.labels}

    def head(self, body):
        return nn.Linear(body.width, len(self.labels))

    def split(self, data, which, training):
        records = [record.fields for record in read(data, which, ("text", "label"))]
        texts, labels = ([one[role] for one in records] for role in ("text", "label"))
        blank = self.tokenizer.vocab_size
        return Labelled(self.tokenizer.encode_batch(texts), list(map(self.labels.index, labels)), blank, training)

    def metrics(self, totals, split):
        shares = {"words": totals["words"] / totals["count"], "classes": totals["classes"] / len(split)}
        return {"loss": totals["sum"] / totals["count"], **shares}


register("objective", "fill-in-and-classify", FillInAndClassify)
register("task", "labelled-text", LabelledText)
