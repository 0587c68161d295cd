"""A bidirectional encoder that fills in hidden tokens and names the class of its text, in one objective.

B rows · T positions · D width

Loss: −log p of every hidden token and of every class, each counted as one prediction. Which tokens are hidden is
noise of the example: a function of (seed, epoch, example).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from seqlab.data.batches import Batch, Examples, padded
from seqlab.data.readers import read
from seqlab.nn.blocks import FeedForward
from seqlab.nn.embedding import TokenEmbedding
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings
from seqlab.registry import find, register
from seqlab.tasks.task import Task


class MaskedEncoder(nn.Module):
    class Settings(PartSettings):
        width: int = 32
        longest: int = 32

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.width = settings.width
        self.embedding = TokenEmbedding(vocab_size, self.width)
        self.position = nn.Embedding(settings.longest, self.width)
        self.attend = nn.MultiheadAttention(self.width, 4, dropout=0.1, batch_first=True)
        self.feed, self.norms = FeedForward(self.width, 64), nn.ModuleList(nn.LayerNorm(self.width) for _ in range(3))

    def forward(self, tokens, mask):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        y = self.norms[0](x)
        x = x + self.attend(y, y, y, key_padding_mask=~mask, need_weights=False)[0]
        return self.norms[2](x + self.feed(self.norms[1](x)))


class FillInAndClassify(Objective):
    Settings = PartSettings

    def __init__(self, settings, body, head):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, batch, state=None):
        states, hidden, mask = self.body(batch["tokens"], batch["mask"]), batch["hidden"], batch["mask"][..., None]
        words = self.body.embedding.logits(states[hidden])
        classes = self.head((states * mask).sum(1) / mask.sum(1))
        pairs = {"words": (words, batch["targets"][hidden]), "classes": (classes, batch["label"])}
        total = sum(F.cross_entropy(logits, targets, reduction="sum") for logits, targets in pairs.values())
        parts = {name: (logits.argmax(-1) == targets).sum() for name, (logits, targets) in pairs.items()}
        parts["texts"] = torch.tensor(len(classes))
        return Loss(total, torch.tensor(len(words) + len(classes)), parts)


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
        self.tokenizer, self.labels, self.blank = tokenizer, labels, tokenizer.vocab_size

    @property
    def sizes(self):
        return {"vocab_size": self.tokenizer.vocab_size + 1}

    @classmethod
    def prepare(cls, recipe):
        records = [record.fields for record in read(recipe.data, "train", ("text", "label"))]
        tokenizer = find("tokenizer", recipe.tokenizer.kind).fit((r["text"] for r in records), recipe.tokenizer)
        return cls(tokenizer, sorted({r["label"] for r in records}))

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer, memory["labels"])

    def memory(self):
        return {"labels": self.labels}

    def head(self, body):
        return nn.Linear(body.width, len(self.labels))

    def split(self, data, which, training):
        records = [record.fields for record in read(data, which, ("text", "label"))]
        texts = self.tokenizer.encode_batch([one["text"] for one in records])
        return Labelled(texts, [self.labels.index(one["label"]) for one in records], self.blank, training)

    def metrics(self, totals, split):
        words = totals["words"] / (totals["count"] - totals["texts"])
        return {"loss": totals["sum"] / totals["count"], "words": words, "classes": totals["classes"] / totals["texts"]}


register("model", "masked-encoder", MaskedEncoder)
register("objective", "fill-in-and-classify", FillInAndClassify)
register("task", "labelled-text", LabelledText)
