"""An attention encoder-decoder and the task of translating pairs, against public interfaces only.

B rows · S sources · T target positions · N source positions · D width

keys = W [→h; ←h] over the source, held once per source; states = tanh(V [h_t; Σ softmax(h_t · keys) keys])
"""

from __future__ import annotations

import torch
from torch import nn

from seqlab.data.batches import Batch, Examples, padded
from seqlab.data.readers import read
from seqlab.models.language_model import LanguageModel, Output, State, real_lengths
from seqlab.nn.cells import LSTM
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.recurrent import Recurrent
from seqlab.recipe import PartSettings
from seqlab.registry import find, register
from seqlab.tasks.task import Prompts, Task


class AttentionTranslator(LanguageModel):
    class Settings(PartSettings):
        width: int = 48

    def __init__(self, settings: Settings, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size, width, cell = vocab_size, settings.width, LSTM.Settings(kind="lstm")
        self.embedding = TokenEmbedding(vocab_size, width)
        self.there, self.back, self.decoder = (Recurrent([LSTM(width, width, cell)]) for _ in range(3))
        self.keys, self.mix = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.output = nn.Linear(width, vocab_size)

    def start(self, source=None, rows=1):
        if source is None:  # an empty one
            source = {"tokens": torch.zeros(1, 1).long(), "mask": torch.ones(1, 1).bool()}
        x, mask = self.embedding(source["tokens"]), source["mask"]
        there, _ = self.there(x, self.there.start(len(x), x), mask)
        back, _ = self.back(x.flip(1), self.back.start(len(x), x), mask.flip(1))
        shared = {"keys": self.keys(torch.cat([there, back.flip(1)], -1)), "mask": mask}
        (h, c), owner = self.decoder.start(rows, x)[0], torch.arange(rows, device=x.device) * len(x) // rows
        return State({"h": h, "c": c}, torch.zeros_like(owner), shared=shared, owner=owner)

    def forward(self, tokens, state=None, mask=None, source=None):
        state = (state or self.start(source, rows=len(tokens))).consume()
        keys, real = (state.shared[name].index_select(0, state.owner) for name in ("keys", "mask"))
        h, [after] = self.decoder(self.embedding(tokens), [(state.rows["h"], state.rows["c"])], mask)
        scores = (h @ keys.mT).masked_fill(~real[:, None], -torch.inf)  # (B, T, N)
        states = torch.tanh(self.mix(torch.cat([h, scores.softmax(-1) @ keys], -1)))
        state.rows, state.lengths = dict(zip("hc", after, strict=True)), state.lengths + real_lengths(tokens, mask)
        return Output(states, state)

    def logits(self, states):
        return self.output(states)


class Pairs(Examples):
    def __init__(self, pairs, training):
        super().__init__([len(target) for _, target in pairs], training)
        self.pairs = pairs

    def batch(self, indices, key):
        sources, targets = zip(*(self.pairs[index] for index in indices), strict=True)
        tokens, mask = padded([[0, *target] for target in targets])
        expected, _ = padded([[*target, 0] for target in targets])
        return Batch({"tokens": tokens, "targets": expected, "mask": mask} | named(sources, "source."))


def named(sources, prefix=""):
    tokens, mask = padded([[*source, 0] for source in sources])
    return Batch({f"{prefix}tokens": tokens, f"{prefix}mask": mask})


class PairTranslation(Task):
    Settings = PartSettings

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    @property
    def sizes(self):
        return {"vocab_size": self.tokenizer.vocab_size}

    @classmethod
    def prepare(cls, recipe):
        texts = (" ".join(r.fields.values()) for r in read(recipe.data, "train", ("source", "target")))
        return cls(find("tokenizer", recipe.tokenizer.kind).fit(texts, recipe.tokenizer))

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer)

    def split(self, data, which, training):
        records = [record.fields for record in read(data, which, ("source", "target"))]
        columns = [self.tokenizer.encode_batch([one[role] for one in records]) for role in ("source", "target")]
        return Pairs(list(zip(*columns, strict=True)), training)

    def metrics(self, totals, split):
        return {"loss": totals["sum"] / totals["count"], "accuracy": totals["right"] / totals["count"]}

    def prompts(self, texts):
        return Prompts([[self.tokenizer.end_id] for _ in texts], named(self.tokenizer.encode_batch(texts)))


register("model", "attention-translator", AttentionTranslator)
register("task", "pair-translation", PairTranslation)
