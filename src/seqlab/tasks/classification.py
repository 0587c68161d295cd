"""Classification: one or several labels for a text (sentiment, topic, spam, author, ...)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch, Examples, Split, padded
from seqlab.data.batching.order import Indices
from seqlab.data.formats.contents import Asked
from seqlab.data.randomness import Key
from seqlab.data.reading.readers import as_given, described, read
from seqlab.data.records import Record
from seqlab.data.storage.store import encoded
from seqlab.errors import DataError, RecipeError
from seqlab.models.encoder import Encoder
from seqlab.nn.summary import ClassHead, SummaryKind, summary
from seqlab.objectives.classes import Classes
from seqlab.objectives.objective import Objective
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.tasks.abilities import Answers
from seqlab.tasks.outcomes import Classified
from seqlab.tasks.task import Task, Totals, reads_symbols
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.fitted import fitted
from seqlab.tokenizers.templates import Frame, ModelInput


class LabelledTexts(Examples):
    """Texts as tokens, with their labels: one class number per text, or a yes or no for each class.

    For pairs, `segments` says which of the two texts a token belongs to.
    """

    def __init__(
        self,
        texts: Sequence[Sequence[int]],
        labels: Tensor | None,
        records: Sequence[Record],
        training: bool = False,
        segments: Sequence[Sequence[int]] | None = None,
    ) -> None:
        super().__init__([len(text) for text in texts], training)
        self.texts, self.labels, self.read, self.segments = texts, labels, records, segments

    def records(self) -> Sequence[Record]:
        return self.read

    def batch(self, indices: Indices, key: Key) -> Batch:
        tokens, mask = padded([self.texts[index] for index in indices])
        known = {} if self.labels is None else {"labels": self.labels[torch.from_numpy(indices)]}
        if self.segments is not None:
            known["segments"] = padded([self.segments[index] for index in indices])[0]
        return Batch(tokens=tokens, mask=mask, **known, records=[self.read[index] for index in indices])


class Classification(Task, Answers):
    """Text classification. The labels come from the training data; `<end>` closes every text, so none is empty.

    A pair of texts is joined into one by the tokenizer's template.
    """

    class Settings(PartSettings):
        texts: Literal["one", "two"] = "one"
        """What is labelled: one text, or a pair of texts (columns `text` and `second`), as in entailment."""
        labels: Literal["one", "several"] = "one"
        """Labels per text: exactly one, or any number including none."""
        separator: str = Field(default=",", min_length=1)
        """The text that separates several labels."""
        summary: SummaryKind = "last"
        """How the states of a text become one vector: last of each direction, maximum over time, mean or attention."""
        dropout: float = Field(default=0.0, ge=0, lt=1)
        """Dropout on the summary vector."""
        longest: int | None = Field(default=None, gt=0)
        """Maximum number of tokens read from a text, or from a pair in total; the rest is ignored."""

    tokenizer: Tokenizer
    metric = "error"

    def __init__(self, settings: Settings, tokenizer: Tokenizer, labels: Sequence[str]) -> None:
        self.settings, self.tokenizer, self.labels = settings, tokenizer, list(labels)

    @classmethod
    def prepare(cls, recipe: Recipe, tokenizer: Tokenizer | None = None) -> Classification:
        roles = _texts(cast(Classification.Settings, recipe.task))
        task = cls.restore(recipe, tokenizer or fitted(recipe.tokenizer, recipe.data, roles), {"labels": []})
        records = task._records(recipe.data, "train")
        task.labels = learnt_labels((label for one in records for label in task._named(one)), recipe.data)
        return task

    @classmethod
    def restore(cls, recipe: Recipe, tokenizer: Tokenizer, memory: Mapping[str, Any]) -> Classification:
        return cls(cast(Classification.Settings, recipe.task), tokenizer, memory["labels"])

    @classmethod
    def reads(cls, recipe: Recipe) -> Asked:
        roles = _texts(cast(Classification.Settings, recipe.task))
        return Asked(recipe.data, (*roles, "label"), reads_symbols(recipe))

    def memory(self) -> dict[str, Any]:
        return {"labels": self.labels}

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocab_size": self.tokenizer.vocab_size}

    def check(self, body: nn.Module) -> None:
        if not isinstance(body, Encoder):
            what = "this model cannot classify: it does not read a text as a whole"
            raise RecipeError(what, where="model.kind", hint="use recurrent-encoder")

    def head(self, body: nn.Module) -> ClassHead:
        encoder = cast(Encoder, body)
        states = summary(self.settings.summary, encoder.width, encoder.directions)
        return ClassHead(states, self.settings.dropout, encoder.width, len(self.labels))

    # ------------------------------------------------------------------ examples

    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> LabelledTexts:
        records = list(self._records(data, which))
        numbers = {label: number for number, label in enumerate(self.labels)}
        known = [[label_number(label, numbers, one) for label in self._named(one)] for one in records]
        if self.settings.labels == "one":
            labels = torch.tensor([number for (number,) in known])
        else:
            labels = torch.zeros(len(known), len(self.labels), dtype=torch.bool)
            for row, several in enumerate(known):
                labels[row, several] = True
        return self._split(records, labels, training)

    def asked(self, data: DataSettings) -> LabelledTexts:
        roles = _texts(self.settings)
        records = self._records(as_given(data), "valid", roles)
        return self._split(list(_whole(records) if len(roles) == 1 else records), None, training=False)

    def _records(
        self, data: DataSettings, which: Literal["train", "valid"], roles: Sequence[str] | None = None
    ) -> Iterator[Record]:
        roles = roles or (*_texts(self.settings), "label")
        return read(data, which, roles, symbols=self.tokenizer.unit == "symbol")

    def _split(self, records: Sequence[Record], labels: Tensor | None, training: bool) -> LabelledTexts:
        if self.settings.texts == "one":
            return LabelledTexts(self._encoded(records), labels, records, training)
        pairs = self._pairs(records)
        texts, segments = [pair.ids for pair in pairs], [pair.segments for pair in pairs]
        return LabelledTexts(texts, labels, records, training, segments)

    def _pairs(self, records: Sequence[Record]) -> list[ModelInput]:
        frame, pairs = Frame(self.tokenizer.template, self.tokenizer.special), []
        for record in records:
            with record.blamed():
                first, second = (self.tokenizer.encode(record.fields[role]) for role in _texts(self.settings))
                longest = self.settings.longest
                if longest is None:
                    pairs.append(frame.whole(first, second))
                else:
                    pairs.append(frame.cut(first, second, longest + frame.specials))
        return pairs

    def _encoded(self, records: Sequence[Record]) -> list[list[int]]:
        longest, end = self.settings.longest, self.tokenizer.end_id
        texts = [record.fields["text"] for record in records]
        return [[*ids[:longest], end] for ids in encoded(self.tokenizer.encode_batch, texts, records)]

    def _named(self, record: Record) -> list[str]:
        label = record.fields["label"]
        if self.settings.labels == "several":
            return [one.strip() for one in label.split(self.settings.separator) if one.strip()]
        if not label.strip():
            raise DataError("the label is missing", where=record.place, hint="add it, or remove the row")
        return [label.strip()]

    # ------------------------------------------------------------------ figures and answers

    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        """Macro F1 is the mean over the classes that occur in the data or in the answers; micro F1 pools all labels."""
        right = totals["right"] / totals["count"]
        given, found, hit = (
            [totals[f"{name}.{number}"] for number in range(len(self.labels))] for name in ("given", "found", "hit")
        )
        each = [2 * h / (g + f) for g, f, h in zip(given, found, hit, strict=True) if g + f]
        micro = 2 * sum(hit) / max(1.0, sum(given) + sum(found))
        one = self.settings.labels == "one"
        several = {"exact": right, "micro_f1": micro, "error": 1 - micro}
        own = {"accuracy": right, "error": 1 - right} if one else several
        macro = sum(each) / max(1, len(each))
        return {"loss": totals["sum"] / totals["count"], **own, "macro_f1": macro, "examples": int(totals["count"])}

    def answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        logits = cast(Classes, objective).logits(batch)
        one = self.settings.labels == "one"
        probabilities = (logits.softmax(-1) if one else logits.sigmoid()).tolist()
        answer = self._one if one else self._several
        each = zip(batch.records, probabilities, strict=True)
        return [{"text": self._given(record), **answer(p)} for record, p in each]

    def _given(self, record: Record) -> str:
        """Return the input text; the two texts of a pair are separated by a tab."""
        return "\t".join(record.fields[role] for role in _texts(self.settings))

    def _one(self, p: Sequence[float]) -> dict[str, Any]:
        return answered(self.labels, p)

    def _several(self, p: Sequence[float]) -> dict[str, Any]:
        """Return every label whose probability is above 0.5."""
        named = dict(zip(self.labels, p, strict=True))
        labels = [label for label, probability in named.items() if probability > 0.5]
        return {"answer": f"{self.settings.separator} ".join(labels), "labels": labels, "probabilities": named}

    def outcomes(self, objective: Objective, batch: Batch) -> list[Classified]:
        logits, labels = cast(Classes, objective).logits(batch), batch["labels"]
        several = labels.dim() == 2
        if several:
            losses = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none").sum(-1)
            p, given = logits.sigmoid(), [row.nonzero()[:, 0].tolist() for row in labels]
        else:
            losses = F.cross_entropy(logits, labels, reduction="none")
            p, given = logits.softmax(-1), [[label] for label in labels.tolist()]
        each = zip(batch.records, losses.tolist(), given, p.tolist(), strict=True)
        return [
            Classified(
                record,
                self._given(record),
                loss,
                [self.labels[label] for label in right],
                dict(zip(self.labels, probabilities, strict=True)),
                several,
            )
            for record, loss, right, probabilities in each
        ]

    def signature(self, split: Split) -> dict[str, Any]:
        return {**super().signature(split), "classes": len(self.labels), "labels": self.settings.labels}


# ---------------------------------------------------------------------- labels of any kind of example


def learnt_labels(labels: Iterable[str], data: DataSettings) -> list[str]:
    """Return the distinct labels, sorted."""
    found = sorted(set(labels))
    if len(found) < 2:
        what = f"only one label ('{found[0]}')" if found else "no labels"
        hint = "classification needs at least two: check data.columns.label"
        raise DataError(f"{what} in the training data", where=described(data, "train"), hint=hint)
    return found


def label_number(label: str, numbers: Mapping[str, int], record: Record) -> int:
    """Return the class number of a label; the error for an unknown label names its place."""
    if label not in numbers:
        known = ", ".join(list(numbers)[:10]) + (", ..." if len(numbers) > 10 else "")
        hint = f"the labels are {known}: correct the row, or add examples of this label to data.train"
        raise DataError(f"the label '{label}' is not in the training data", where=record.place, hint=hint)
    return numbers[label]


def answered(labels: Sequence[str], p: Sequence[float]) -> dict[str, Any]:
    """Return the most probable label and the probabilities of all labels."""
    probability, answer = max(zip(p, labels, strict=True), key=lambda pair: pair[0])
    return {"answer": answer, "probability": probability, "probabilities": dict(zip(labels, p, strict=True))}


def _texts(settings: Classification.Settings) -> tuple[str, ...]:
    """The roles of the input texts."""
    return ("text",) if settings.texts == "one" else ("text", "second")


def _whole(records: Iterator[Record]) -> Iterator[Record]:
    """Join the pieces of each long text."""
    held: list[Record] = []
    for record in records:
        held.append(record)
        if record.ends:
            text = "".join(piece.fields["text"] for piece in held)
            yield replace(held[0], fields={"text": text}, ends=True)
            held.clear()
