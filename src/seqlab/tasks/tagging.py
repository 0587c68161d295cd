"""Tagging: a tag for every word of a sentence (parts of speech, named entities, parts of dates)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import nn

from seqlab.data.batching.batches import Batch, Examples, Split, padded
from seqlab.data.batching.order import Indices
from seqlab.data.batching.spelling import Alphabet, Spellings
from seqlab.data.formats.contents import Asked
from seqlab.data.randomness import Key
from seqlab.data.reading.readers import as_given, read
from seqlab.data.records import Record
from seqlab.errors import DataError, RecipeError
from seqlab.models.encoder import Encoder
from seqlab.objectives.objective import Objective
from seqlab.objectives.spans import mark_spans, scheme_of, spans
from seqlab.objectives.tags import Tags, TagScores, span_types
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.tasks.abilities import Answers
from seqlab.tasks.outcomes import Tagged
from seqlab.tasks.task import Task, Totals
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.fitted import fitted


@dataclass(frozen=True)
class Sentence:
    words: list[str]
    """Empty for an empty line, which is allowed only in `asked`."""
    tags: list[str]
    """Empty if the tags are to be predicted."""
    record: Record


@dataclass(frozen=True)
class Known:
    """What the training data say besides the words."""

    tags: list[str]
    scheme: str | None
    """The scheme in which tags mark spans; None if they mark none or follow no scheme."""
    alphabet: Alphabet

    @classmethod
    def learnt(cls, sentences: Sequence[Sentence]) -> Known:
        tags = sorted({tag for sentence in sentences for tag in sentence.tags})
        scheme = scheme_of([sentence.tags for sentence in sentences]) if mark_spans(tags) else None
        return cls(tags, scheme, Alphabet.learnt(word for sentence in sentences for word in sentence.words))

    @property
    def types(self) -> list[str]:
        """The types of spans; empty if tags mark none."""
        return span_types(self.tags) if mark_spans(self.tags) else []


class Tagging(Task, Answers):
    """Tagging of words, which are separated by whitespace. Every word is one token."""

    tokenizer: Tokenizer
    metric = "error"

    class Settings(PartSettings):
        unknown: float = Field(default=0.0, ge=0, lt=1)
        """Probability of reading a word that occurs only once as `<unk>` in training. Without it, a model never meets
        unknown words and does not learn to handle them."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer, known: Known) -> None:
        self.settings, self.tokenizer, self.known = settings, tokenizer, known
        if settings.unknown and tokenizer.unknown_id is None:
            what = f"the tokenizer '{tokenizer.kind}' has no unknown token"
            raise RecipeError(what, where="task.unknown", hint="leave it out")

    @classmethod
    def prepare(cls, recipe: Recipe, tokenizer: Tokenizer | None = None) -> Tagging:
        tokenizer = tokenizer or fitted(recipe.tokenizer, recipe.data)
        return cls(cast(Tagging.Settings, recipe.task), tokenizer, Known.learnt(_sentences(recipe.data, "train")))

    @classmethod
    def restore(cls, recipe: Recipe, tokenizer: Tokenizer, memory: Mapping[str, Any]) -> Tagging:
        known = Known(memory["tags"], memory["scheme"], Alphabet(memory["alphabet"]))
        return cls(cast(Tagging.Settings, recipe.task), tokenizer, known)

    @classmethod
    def reads(cls, recipe: Recipe) -> Asked:
        return Asked(recipe.data, ("text", "tags"))

    def memory(self) -> dict[str, Any]:
        known = self.known
        return {"tags": known.tags, "scheme": known.scheme, "alphabet": known.alphabet.characters}

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocab_size": self.tokenizer.vocab_size, "alphabet_size": len(self.known.alphabet)}

    def head(self, body: nn.Module) -> TagScores:
        return TagScores(cast(Encoder, body).width, self.known.tags, self.known.scheme)

    def check(self, body: nn.Module) -> None:
        if not isinstance(body, Encoder):
            hint = "use an encoder, such as model.kind=recurrent-encoder"
            raise RecipeError("this model does not read a sentence as a whole", where="model.kind", hint=hint)

    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> TaggedSentences:
        sentences = _sentences(data, which)
        for sentence in sentences:
            self._refuse_unknown_tags(sentence)
        return TaggedSentences(sentences, self.tokenizer, self.known, self.settings.unknown if training else None)

    def asked(self, data: DataSettings) -> TaggedSentences:
        """Split the lines of plain text files at whitespace."""
        sentences = _sentences(as_given(data).model_copy(update={"documents": "line"}), "valid", ("text",))
        return TaggedSentences(sentences, self.tokenizer, self.known)

    def _refuse_unknown_tags(self, sentence: Sentence) -> None:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            if tag not in self.known.tags:
                known = ", ".join(self.known.tags[:10]) + (", ..." if len(self.known.tags) > 10 else "")
                what = f"the tag '{tag}' of '{word}' is not in the training data"
                hint = f"the tags are {known}: correct the sentence, or add examples of this tag to data.train"
                raise DataError(what, where=sentence.record.place, hint=hint)

    def answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        return [self._answer(*each) for each in zip(batch.records, cast(Tags, objective).best(batch), strict=True)]

    def nothing(self, record: Record) -> dict[str, Any]:
        return self._answer(record, [])

    def _answer(self, record: Record, tags: list[str]) -> dict[str, Any]:
        text = record.fields["text"]
        words = text.split()
        line = " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
        answer: dict[str, Any] = {"text": text, "answer": line, "words": words, "tags": tags}
        if self.known.types:
            each = [(span, " ".join(words[span.start : span.stop])) for span in spans(tags)]
            answer["spans"] = [{**span._asdict(), "text": inside} for span, inside in each]
        return answer

    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        """Count spans as conlleval does: a span is right if its type, start and stop are right."""
        assert isinstance(split, TaggedSentences)
        if not totals["words"]:
            hint = "change objective.first and objective.last"
            raise RecipeError("no word of the held-out data is counted", where="objective", hint=hint)
        count, accuracy = totals["count"], totals["right"] / totals["words"]
        figures = {"loss": totals["sum"] / count if count else math.inf, "error": 1 - accuracy, "accuracy": accuracy}
        if "spans" in totals:
            precision = totals["hits"] / max(1, totals["found"])
            recall = totals["hits"] / max(1, totals["spans"])
            f1 = 2 * totals["hits"] / max(1, totals["found"] + totals["spans"])
            figures |= {"error": 1 - f1, "precision": precision, "recall": recall, "f1": f1}
        return {**figures, "words": int(totals["words"]), "unknown": split.unknown}

    def outcomes(self, objective: Objective, batch: Batch) -> list[Tagged]:
        found, names = cast(Tags, objective).examined(batch), self.known.tags
        rows = zip(found.losses, found.found, found.probabilities, found.counted, strict=True)
        outcomes = []
        for record, (loss, tags, p, counted) in zip(batch.records, rows, strict=True):
            words, given = (np.array(record.fields[role].split(), dtype=object) for role in ("text", "tags"))
            counts = counted[: len(words)].cpu().numpy()
            chosen = [names[tag] for tag in tags[counted].tolist()]
            own = (words[counts].tolist(), given[counts].tolist(), chosen, p[counted].tolist())
            outcomes.append(Tagged(record, record.fields["text"], float(loss), *own, bool(self.known.types)))
        return outcomes

    def signature(self, split: Split) -> dict[str, Any]:
        spans = {"spans": "as conlleval counts them"} if self.known.types else {}
        return {"tags": len(self.known.tags), **spans}


class TaggedSentences(Examples):
    """Batches of `tokens`, `mask` and `tags` (B, T), where −1 is an unknown tag, with the spelling of each word.

    `spellings` (U, L) are those of the distinct words of a batch, and `spelt` (B, T) gives the row of each word. For an
    evaluation, each row of `spans` is one span: (row of the batch, type, start, stop). If the tags are to be predicted,
    `tags` and `spans` are missing.
    """

    def __init__(
        self, sentences: Sequence[Sentence], tokenizer: Tokenizer, known: Known, hide: float | None = None
    ) -> None:
        super().__init__([len(sentence.words) for sentence in sentences], training=hide is not None)
        self.sentences, self.hide, self.unknown_id = sentences, hide or 0.0, tokenizer.unknown_id or 0
        self.tokens = [np.array(ids, dtype=np.int64) for ids in _encoded(sentences, tokenizer)]
        tags = {tag: number for number, tag in enumerate(known.tags)}
        self.tags = [[tags.get(tag, -1) for tag in sentence.tags] for sentence in sentences]
        words = dict.fromkeys(word for sentence in sentences for word in sentence.words)
        numbers = {word: number for number, word in enumerate(words)}
        self.words = [np.array([numbers[word] for word in sentence.words], dtype=np.int64) for sentence in sentences]
        self.spellings = Spellings(list(words), known.alphabet)
        flat = np.concatenate(self.tokens)
        self.unknown = 0 if tokenizer.unknown_id is None else int((flat == tokenizer.unknown_id).sum())
        self.single = np.bincount(flat, minlength=tokenizer.vocab_size) == 1
        self.types = {} if self.training else {type: number for number, type in enumerate(known.types)}

    def records(self) -> Iterator[Record]:
        return (sentence.record for sentence in self.sentences)

    def batch(self, indices: Indices, key: Key) -> Batch:
        tokens, mask = padded([self._read(int(index), key) for index in indices])
        different, which = np.unique(np.concatenate([self.words[index] for index in indices]), return_inverse=True)
        spelt = torch.zeros_like(tokens)
        spelt[mask] = torch.from_numpy(which)
        spellings = torch.from_numpy(self.spellings.of(different))
        records = [self.sentences[index].record for index in indices]
        batch = Batch(tokens=tokens, mask=mask, spelt=spelt, spellings=spellings, records=records)
        if not self.sentences[indices[0]].tags:
            return batch
        batch["tags"] = padded([self.tags[index] for index in indices])[0]
        if self.types:
            batch["spans"] = torch.tensor(self._spans(indices), dtype=torch.long).reshape(-1, 4)
        return batch

    def _read(self, index: int, key: Key) -> list[int]:
        """Return the tokens of a sentence; in training, some words that occur only once become unknown."""
        tokens = self.tokens[index]
        if self.hide:
            hidden = self.single[tokens] & (key.generator(index).random(len(tokens)) < self.hide)
            tokens = np.where(hidden, self.unknown_id, tokens)
        return cast(list[int], tokens.tolist())

    def _spans(self, indices: Indices) -> list[tuple[int, int, int, int]]:
        return [
            (row, self.types.get(span.type, -1), span.start, span.stop)
            for row, index in enumerate(indices)
            for span in spans(self.sentences[index].tags)
        ]


def _sentences(
    data: DataSettings, which: Literal["train", "valid"], roles: Sequence[str] = ("text", "tags")
) -> list[Sentence]:
    """Read the sentences of a split, with a tag for each word if tags are among the roles."""
    found = [_sentence(record) for record in read(data, which, roles)]
    if not found:
        raise DataError("there are no sentences", where=f"data.{which}", hint="name a file that has sentences")
    return found


def _sentence(record: Record) -> Sentence:
    words, tags = record.fields["text"].split(), record.fields.get("tags", "").split()
    if not words and "tags" in record.fields:
        raise DataError("a sentence without words", where=record.place, hint="remove it")
    if "tags" in record.fields and len(words) != len(tags):
        what, hint = f"{len(words)} words but {len(tags)} tags", "give one tag per word, separated by spaces"
        raise DataError(what, where=record.place, hint=hint)
    return Sentence(words, tags, record)


def _encoded(sentences: Sequence[Sentence], tokenizer: Tokenizer) -> list[list[int]]:
    found = tokenizer.encode_batch([" ".join(sentence.words) for sentence in sentences])
    for ids, sentence in zip(found, sentences, strict=True):
        if len(ids) != len(sentence.words):
            what = f"{len(ids)} tokens for {len(sentence.words)} words ({' '.join(sentence.words)[:40]})"
            hint = "tags belong to words: set tokenizer.kind=word and tokenizer.split=whitespace"
            raise RecipeError(what, where="tokenizer", hint=hint)
    return found
