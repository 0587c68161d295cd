"""Classification of parse trees: every node of a tree is a phrase with its own label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab import registry
from seqlab.data.batching.batches import Batch, Examples, Split, padded
from seqlab.data.batching.order import Indices
from seqlab.data.formats.contents import Asked
from seqlab.data.formats.trees import NO_TREE, Tree, levels, parse
from seqlab.data.randomness import Key
from seqlab.data.reading.readers import as_given, read
from seqlab.data.records import Record
from seqlab.errors import RecipeError
from seqlab.models.encoder import Encoder
from seqlab.nn.summary import NodeHead
from seqlab.objectives.classes import NodeClasses
from seqlab.objectives.objective import Objective
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.tasks.abilities import Answers
from seqlab.tasks.classification import answered, label_number, learnt_labels
from seqlab.tasks.outcomes import Classified
from seqlab.tasks.task import Task, Totals
from seqlab.tokenizers import Tokenizer


class Trees(Examples):
    """Trees with the token of each leaf (0 for inner nodes) and, if known, the class of each node."""

    def __init__(
        self,
        records: Sequence[Record],
        trees: Sequence[Tree],
        tokens: Sequence[list[int]],
        labels: Sequence[list[int]] | None,
        training: bool,
    ) -> None:
        super().__init__([len(tree) for tree in trees], training)
        self.read, self.trees, self.tokens, self.labels = records, trees, tokens, labels

    def records(self) -> Sequence[Record]:
        return self.read

    def batch(self, indices: Indices, key: Key) -> Batch:
        tokens, mask = padded([self.tokens[index] for index in indices])
        order, children, pieces = levels([self.trees[index] for index in indices])
        places = np.flatnonzero(mask.numpy())[order]
        known = {} if self.labels is None else {"labels": padded([self.labels[index] for index in indices])[0]}
        plan = {"places": places, "children": children, "pieces": pieces}
        known |= {name: torch.from_numpy(of) for name, of in plan.items()}
        return Batch(tokens=tokens, mask=mask, **known, records=[self.read[index] for index in indices])


class TreeClassification(Task, Answers):
    """Trees in brackets, one per line: "(3 (2 It) (4 good))". A leaf is one word, and therefore one token."""

    class Settings(PartSettings):
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout on the node states before the output layer."""

    tokenizer: Tokenizer
    metric = "error"

    def __init__(self, settings: Settings, tokenizer: Tokenizer, labels: Sequence[str]) -> None:
        self.settings, self.tokenizer, self.labels = settings, tokenizer, list(labels)
        if tokenizer.kind != "word" or cast(Any, tokenizer).split != "whitespace":
            what, hint = "the leaves of trees are whole words", "use tokenizer: {kind: word, split: whitespace}"
            raise RecipeError(what, where="tokenizer", hint=hint)

    @classmethod
    def prepare(cls, recipe: Recipe, tokenizer: Tokenizer | None = None) -> TreeClassification:
        if recipe.tokenizer is None:
            raise RecipeError("the leaves need a tokenizer", where="tokenizer", hint="use kind: word")
        trees = [tree for _, tree in _trees(recipe.data, "train")]
        words = (" ".join(filter(None, tree.words)) for tree in trees)
        tokenizer = tokenizer or registry.find("tokenizer", recipe.tokenizer.kind).fit(words, recipe.tokenizer)
        labels = learnt_labels((label for tree in trees for label in tree.labels), recipe.data)
        return cls.restore(recipe, tokenizer, {"labels": labels})

    @classmethod
    def restore(cls, recipe: Recipe, tokenizer: Tokenizer, memory: Mapping[str, Any]) -> TreeClassification:
        return cls(cast(TreeClassification.Settings, recipe.task), tokenizer, memory["labels"])

    @classmethod
    def reads(cls, recipe: Recipe) -> Asked:
        return Asked(_lines(recipe.data), ("text",))

    def memory(self) -> dict[str, Any]:
        return {"labels": self.labels}

    @property
    def sizes(self) -> dict[str, int]:
        """Not `vocab_size`: models of sequences cannot read trees, nor models of trees sequences."""
        return {"leaf_vocab_size": self.tokenizer.vocab_size}

    def head(self, body: nn.Module) -> NodeHead:
        return NodeHead(self.settings.dropout, cast(Encoder, body).width, len(self.labels))

    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> Trees:
        numbers = {label: number for number, label in enumerate(self.labels)}
        found = list(_trees(data.model_copy(update={"empty_lines": False}), which))
        labels = [[label_number(label, numbers, record) for label in tree.labels] for record, tree in found]
        return self._split(found, labels, training)

    def asked(self, data: DataSettings) -> Trees:
        """Accept any text where a label is expected."""
        return self._split(list(_trees(as_given(data), "valid")), None, training=False)

    def _split(self, found: list[tuple[Record, Tree]], labels: list[list[int]] | None, training: bool) -> Trees:
        records, trees = [record for record, _ in found], [tree for _, tree in found]
        words = sorted({word for tree in trees for word in tree.words if word})
        unknown = cast(int, self.tokenizer.unknown_id)
        encoded = self.tokenizer.encode_batch(words)
        ids = {word: tokens[0] if len(tokens) == 1 else unknown for word, tokens in zip(words, encoded, strict=True)}
        tokens = [[ids[word] if word else 0 for word in tree.words] for tree in trees]
        return Trees(records, trees, tokens, labels, training)

    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        """Figures are over roots unless they say nodes. If labels are numbers, `binary_accuracy` is the share of roots,
        without those of the middle class, that are on the right side of it."""
        right, nodes = totals["right"] / totals["roots"], totals["nodes_right"] / totals["count"]
        own = {"loss": totals["sum"] / totals["count"], "accuracy": right, "error": 1 - right}
        if totals.get("polar") and self.labels == [str(number) for number in range(len(self.labels))]:
            own["binary_accuracy"] = totals["polar_right"] / totals["polar"]
        return {**own, "nodes_accuracy": nodes, "examples": int(totals["roots"]), "nodes": int(totals["count"])}

    def answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        """Return the root's label and, in `tree`, the label of every phrase."""
        p = cast(NodeClasses, objective).logits(batch).softmax(-1).cpu()
        rows = zip(batch.records, batch["mask"].cpu(), p, strict=True)
        return [self._answer(record, own[real]) for record, real, own in rows]

    def _answer(self, record: Record, p: Tensor) -> dict[str, Any]:
        tree, built = parse(record), list[str]()  # phrases that are built and have no parent yet
        for best, word in zip(p.argmax(-1).tolist(), tree.words, strict=True):
            inside = word or " ".join([built.pop(-2), built.pop()])
            built.append(f"({self.labels[best]} {inside})")
        return {"text": record.fields["text"], **answered(self.labels, p[-1].tolist()), "tree": built[0]}

    def nothing(self, record: Record) -> dict[str, Any]:
        return {**super().nothing(record), "tree": ""}

    def outcomes(self, objective: Objective, batch: Batch) -> list[Classified]:
        """Return the outcomes of the roots."""
        rows, root = torch.arange(len(batch["mask"])), batch["mask"].sum(1).cpu() - 1
        logits = cast(NodeClasses, objective).logits(batch)[rows, root]
        labels = batch["labels"][rows, root]
        losses, p = F.cross_entropy(logits, labels, reduction="none").tolist(), logits.softmax(-1).tolist()
        given = [[self.labels[label]] for label in labels.tolist()]
        named = [dict(zip(self.labels, own, strict=True)) for own in p]
        each = zip(batch.records, losses, given, named, strict=True)
        return [Classified(record, record.fields["text"], *about) for record, *about in each]

    def signature(self, split: Split) -> dict[str, Any]:
        return {**super().signature(split), "classes": len(self.labels)}


def _trees(data: DataSettings, which: Literal["train", "valid"]) -> Iterator[tuple[Record, Tree]]:
    for record in read(_lines(data), which):
        yield record, parse(record) if record.fields["text"].strip() or not data.empty_lines else NO_TREE


def _lines(data: DataSettings) -> DataSettings:
    """Read one tree per line, whatever `data.documents` says."""
    return data.model_copy(update={"documents": "line"})
