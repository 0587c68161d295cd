"""A tag for every token: a recurrent net in both directions, a head of the task's, an objective of its own."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.reading.readers import read
from seqlab.models.encoder import Encoded, Encoder
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.recurrent import Stack
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings
from seqlab.registry import register
from seqlab.tasks.task import Task
from seqlab.tokenizers.fitted import fitted


class BothWays(Encoder):
    class Settings(PartSettings, Stack):
        pass

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.width, self.dropout, self.embedding = 48, nn.Dropout(0.1), TokenEmbedding(vocab_size, 24)
        self.layers = settings.built(24, 24, self.dropout, both_ways=True)

    def forward(self, batch):
        x = self.dropout(self.embedding(batch["tokens"]))
        states, _ = self.layers(x, self.layers.start(len(x), x), batch["mask"])
        return Encoded(states, batch["mask"])


class Tags(Objective):
    Settings = PartSettings

    def __init__(self, settings, body, head):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, batch, state=None):
        encoded = self.body(batch)
        logits, tags = self.head(encoded.states[encoded.mask]), batch["tags"][encoded.mask]
        right = (logits.argmax(-1) == tags).sum()
        return Loss(F.cross_entropy(logits, tags, reduction="sum"), torch.tensor(len(tags)), {"right": right})


class Tagged(Examples):
    def __init__(self, texts, tags, training):
        super().__init__([len(text) for text in texts], training)
        self.texts, self.tags = texts, tags

    def batch(self, indices, key):
        tokens, mask = padded([self.texts[index] for index in indices])
        return Batch(tokens=tokens, mask=mask, tags=padded([self.tags[index] for index in indices])[0])


class Tagging(Task):
    Settings = PartSettings

    def __init__(self, tokenizer, tags):
        self.tokenizer, self.tags = tokenizer, tags

    @property
    def sizes(self):
        return {"vocab_size": self.tokenizer.vocab_size}

    @classmethod
    def prepare(cls, recipe, tokenizer=None):
        records = read(recipe.data, "train", ("text", "tags"))
        tags = sorted({tag for one in records for tag in one.fields["tags"].split()})
        return cls(tokenizer or fitted(recipe.tokenizer, recipe.data), tags)

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer, memory["tags"])

    def memory(self):
        return {"tags": self.tags}

    def head(self, body):
        return nn.Linear(body.width, len(self.tags))

    def split(self, data, which, training):
        records = [record.fields for record in read(data, which, ("text", "tags"))]
        tags = [[self.tags.index(tag) for tag in record["tags"].split()] for record in records]
        return Tagged(self.tokenizer.encode_batch([record["text"] for record in records]), tags, training)

    def metrics(self, totals, split):
        return {"loss": totals["sum"] / totals["count"], "accuracy": totals["right"] / totals["count"]}


register("model", "both-ways", BothWays)
register("objective", "step-tags", Tags)
register("task", "step-tagging", Tagging)
