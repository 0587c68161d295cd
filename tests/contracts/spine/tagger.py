"""A tag for every token: a recurrent net in both directions, a head of the task's, an objective of its own."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqlab.data.batches import Batch, Examples, padded
from seqlab.data.readers import read
from seqlab.nn.cells import LSTM
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.recurrent import Recurrent
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings
from seqlab.registry import find, register
from seqlab.tasks.task import Task


class BothWays(nn.Module):
    class Settings(PartSettings):
        width: int = 24

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.width, cell = settings.width, LSTM.Settings(kind="lstm")
        self.embedding, self.dropout = TokenEmbedding(vocab_size, self.width), nn.Dropout(0.1)
        self.there, self.back = (Recurrent([LSTM(self.width, self.width, cell)]) for _ in range(2))

    def forward(self, tokens, mask):
        x = self.dropout(self.embedding(tokens))
        there, _ = self.there(x, self.there.start(len(x), x), mask)
        back, _ = self.back(x.flip(1), self.back.start(len(x), x), mask.flip(1))
        return torch.cat([there, back.flip(1)], -1)


class Tags(Objective):
    Settings = PartSettings

    def __init__(self, settings, body, head):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, batch, state=None):
        mask = batch["mask"]
        logits, tags = self.head(self.body(batch["tokens"], mask)[mask]), batch["tags"][mask]
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
    def prepare(cls, recipe):
        records = [record.fields for record in read(recipe.data, "train", ("text", "tags"))]
        tokenizer = find("tokenizer", recipe.tokenizer.kind).fit((r["text"] for r in records), recipe.tokenizer)
        return cls(tokenizer, sorted({tag for r in records for tag in r["tags"].split()}))

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer, memory["tags"])

    def memory(self):
        return {"tags": self.tags}

    def head(self, body):
        return nn.Linear(2 * body.width, len(self.tags))

    def split(self, data, which, training):
        records = [record.fields for record in read(data, which, ("text", "tags"))]
        tags = [[self.tags.index(tag) for tag in record["tags"].split()] for record in records]
        return Tagged(self.tokenizer.encode_batch([record["text"] for record in records]), tags, training)

    def metrics(self, totals, split):
        return {"loss": totals["sum"] / totals["count"], "accuracy": totals["right"] / totals["count"]}


register("model", "both-ways", BothWays)
register("objective", "step-tags", Tags)
register("task", "step-tagging", Tagging)
