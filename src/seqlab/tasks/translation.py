"""Translation and related tasks: writing a text, given other texts, labels or numbers.

The inputs are called conditions and are read one after the other. In a multilingual translator the first condition is
a label; a report generator translates measurements.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqlab import registry
from seqlab.data.batching.batches import Batch, Examples, Split, padded
from seqlab.data.batching.order import Indices
from seqlab.data.formats.contents import Asked, format_in
from seqlab.data.formats.files import lines, pieces
from seqlab.data.randomness import Key
from seqlab.data.reading.readers import as_given, cache_key, described, is_small, read, size, sources
from seqlab.data.records import Record
from seqlab.data.storage.store import Column, TokenStore
from seqlab.decoding.alignment import attention_to_source, most
from seqlab.decoding.beam import Beam, Hypothesis, Watch, beam_search
from seqlab.decoding.choose import Choose
from seqlab.decoding.generate import Token, generate
from seqlab.decoding.packing import packed
from seqlab.errors import DataError, RecipeError, nearest
from seqlab.metrics.judging import Judged, metrics_of
from seqlab.metrics.metric import Metric
from seqlab.models.language_model import LanguageModel
from seqlab.objectives.next_token import NextToken
from seqlab.objectives.objective import Objective
from seqlab.recipe import DataSettings, DecodingSettings, PartSettings, Recipe
from seqlab.tasks.abilities import Writes
from seqlab.tasks.answering import each_example
from seqlab.tasks.outcomes import Written
from seqlab.tasks.sources import Condition, Ids, Sources
from seqlab.tasks.task import Prompts, Task, Totals, reads_symbols
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.fitted import fitted

TARGET = "target"


class Pairs(Examples):
    """Conditions and targets; every target ends with `<end>`."""

    def __init__(
        self,
        task: Translation,
        conditions: Mapping[str, Column],
        target: Column | None = None,
        training: bool = False,
        records: Callable[[], Iterator[Record]] = lambda: iter(()),
    ) -> None:
        self.task, self.conditions, self.target, self._records = task, conditions, target, records
        read: NDArray[np.int64] = np.sum([np.diff(column.offsets) for column in conditions.values()], 0)
        written = read if target is None else np.diff(target.offsets)
        self.reading = read
        # sort pairs of similar length together: by target length, then by source length, which descends where the
        # target length is odd, so that neighbours stay similar where the target length changes
        most = 1 + int(np.max(read, initial=0))
        order = written * most + np.where(written % 2, most - 1 - read, read)
        self.rows = np.arange(len(read))
        if training:
            self.rows = np.flatnonzero(np.maximum(read, written) <= task.settings.longest)
            self.note = _left_out(len(read) - len(self.rows), len(read), task.settings.longest)
        super().__init__(order[self.rows].tolist(), training)

    def records(self) -> Iterator[Record]:
        """Read the records again: ids are mapped from a file, and texts need not fit into memory."""
        if not self.training:
            return self._records()
        kept = set(self.rows.tolist())
        return (record for row, record in enumerate(self._records()) if row in kept)

    def batch(self, indices: Indices, key: Key) -> Batch:
        rows = self.rows[indices].tolist()
        source = self.task.sources.tensors([[self._read(role, row, key) for role in self.conditions] for row in rows])
        batch = Batch({f"source.{name}": tensor for name, tensor in source.items()}, examples=torch.tensor(rows))
        if self.target is None:
            return batch
        target, end = self.target, self.task.tokenizer.end_id
        texts = [self._recut(target[row], ~row, key) for row in rows]  # a different draw from that of the source
        tokens, mask = padded([[end, *text[:-1]] for text in texts])
        targets, _ = padded(texts)
        return Batch(batch, tokens=tokens, targets=targets, mask=mask)

    def _read(self, role: str, row: int, key: Key) -> Ids:
        ids = self.conditions[role][row]
        return self._recut(ids, row, key) if self.task.settings.conditions[role] == "text" else ids

    def _recut(self, ids: NDArray[Any], draw: int, key: Key) -> list[int]:
        """Subword regularisation: in training, a random segmentation of the same text."""
        if not self.training or self.task.sample is None:
            return cast(list[int], ids.tolist())
        tokenizer, generator = cast(Any, self.task.tokenizer), key.generator(draw)
        return [*tokenizer.resample(ids[:-1].tolist(), generator, self.task.sample), tokenizer.end_id]


class Translation(Task, Writes):
    """Minimises −log p(target | conditions); the texts it writes are scored by `metrics`."""

    class Settings(PartSettings):
        conditions: dict[str, Condition] = Field(default={"source": "text"})
        """The inputs, in the order in which they are read: the role of each column and its type."""
        longest: int = Field(default=2048, gt=0)
        """Maximum number of tokens in a source or a target. Longer pairs are left out of training, and longer sources
        get no answer."""
        metrics: list[str] = Field(default=["bleu", "chrf", "exact"])
        """Metrics that `seqlab evaluate` computes."""
        best: str = "loss"
        """What chooses the best checkpoint: the held-out loss, or a metric such as `bleu` of the texts generated for
        the first held-out pairs. A metric takes time in addition to `training.budget`: the budget is measured on an
        untrained model, whose texts are much longer than those of a trained one."""
        judged: int = Field(default=500, gt=0)
        """Maximum number of held-out pairs that `best` is measured on."""

        @model_validator(mode="after")
        def _some(self) -> Translation.Settings:
            if not self.conditions or TARGET in self.conditions:
                raise ValueError("'conditions' must name the inputs, such as {source: text}, without 'target'")
            return self

    tokenizer: Tokenizer
    choose: Choose | None = None
    """How tokens of answers are sampled; None to search for the best answer instead."""

    def __init__(
        self,
        settings: Settings,
        tokenizer: Tokenizer,
        decoding: DecodingSettings,
        memory: Mapping[str, Any],
        sample: float | None = None,
    ) -> None:
        self.settings, self.tokenizer, self.decoding, self.sample = settings, tokenizer, decoding, sample
        self.sources, self.judges = Sources(settings.conditions, tokenizer, memory), settings.metrics
        self.metric = settings.best
        if self.metric != "loss":
            self.better = _the_metric(self.metric).better

    @classmethod
    def prepare(cls, recipe: Recipe, tokenizer: Tokenizer | None = None) -> Translation:
        settings = cast(Translation.Settings, recipe.task)
        if settings.metrics:
            metrics_of(settings.metrics)  # report an unknown name now rather than after training
        texts = [role for role, kind in settings.conditions.items() if kind == "text"]
        if tokenizer is None:
            tokenizer = fitted(recipe.tokenizer, recipe.data, [*texts, TARGET], among=[*settings.conditions, TARGET])
        task = cls.restore(recipe, tokenizer, {})
        task.sources.learn(lambda: task._records(recipe.data, "train"))
        return task

    @classmethod
    def restore(cls, recipe: Recipe, tokenizer: Tokenizer, memory: Mapping[str, Any]) -> Translation:
        sample = getattr(recipe.tokenizer, "sample", None)
        return cls(cast(Translation.Settings, recipe.task), tokenizer, recipe.decoding, memory, sample)

    @classmethod
    def reads(cls, recipe: Recipe) -> Asked:
        roles = *cast(Translation.Settings, recipe.task).conditions, TARGET
        return Asked(recipe.data, roles, reads_symbols(recipe))

    def memory(self) -> dict[str, Any]:
        return self.sources.memory()

    @property
    def sizes(self) -> dict[str, int]:
        return {"vocab_size": self.tokenizer.vocab_size, "conditions": len(self.sources.names)}

    def check(self, body: nn.Module) -> None:
        if not (isinstance(body, LanguageModel) and body.reads_sources):
            what = "this model cannot translate: it does not read a source"
            raise RecipeError(what, where="model.kind", hint="use transformer")
        limits = [body.context, getattr(getattr(body, "encoder", None), "longest", None)]
        least = min((limit for limit in limits if limit is not None), default=None)
        if least is not None and self.settings.longest > least:
            what = f"the maximum of {self.settings.longest:,} tokens exceeds the {least:,} positions of the model"
            raise RecipeError(what, where="task.longest", hint=f"set task.longest={least}")

    # ------------------------------------------------------------------ examples

    def split(self, data: DataSettings, which: Literal["train", "valid"], training: bool) -> Pairs:
        columns = self._columns(data, which, [*self.settings.conditions, TARGET])
        target = columns.pop(TARGET)
        return Pairs(self, columns, target, training, lambda: self._records(data, which))

    def asked(self, data: DataSettings) -> Pairs:
        """In a plain text file every line is a source, even an empty one; tabs separate several conditions."""
        roles, data = list(self.settings.conditions), as_given(data)
        plain = {not isinstance(one, str) and format_in(one, data) == "txt" for one in sources(data, "valid")}
        if len(plain) > 1:
            what = "some of the files are plain text and others are not"
            raise DataError(what, where=described(data, "valid"), hint="give them in separate calls")
        typed = (lambda: typed_lines(data, roles)) if plain == {True} else None
        columns = self._columns(data, "valid", roles, typed)
        return Pairs(self, columns, records=typed or (lambda: self._records(data, "valid", roles)))

    def _columns(
        self,
        data: DataSettings,
        which: Literal["train", "valid"],
        roles: list[str],
        records: Callable[[], Iterator[Record]] | None = None,
    ) -> dict[str, Column]:
        """Read the ids or the numbers of each role from the store."""
        found = {}
        for role in roles:
            encode, vocab, end = self.sources.encoder(role)
            kind = self.settings.conditions.get(role, "text")
            facts = [records is not None, self.tokenizer.fingerprint, roles, role, kind, self.memory()]
            key = cache_key(data, which, *facts)
            found[role] = TokenStore.open(
                records or (lambda: self._records(data, which, roles)),
                {role: encode},
                key,
                vocab_size=vocab,
                end=end,
                about=described(data, which),
                size=size(data, which),
                keep=not is_small(data, which),
            )[role]
        return found

    def _records(
        self, data: DataSettings, which: Literal["train", "valid"], roles: Sequence[str] | None = None
    ) -> Iterator[Record]:
        return read(data, which, roles or [*self.settings.conditions, TARGET], symbols=self.tokenizer.unit == "symbol")

    # ------------------------------------------------------------------ figures and answers

    def metrics(self, totals: Totals, split: Split) -> dict[str, float]:
        loss = totals["sum"] / totals["count"]
        return {"loss": loss, "perplexity": float(np.exp(min(loss, 700))), "tokens": int(totals["count"])}

    def judged(self, objective: Objective, split: Split, rows: int) -> float:
        writer, device = packed(objective), next(objective.parameters()).device
        answers = each_example(
            cast(Pairs, split), rows, device, partial(self.answers, writer), first=self.settings.judged
        )
        texts = [answer["answer"] for answer in answers]
        references = [[record.fields[TARGET]] for record in islice(cast(Pairs, split).records(), len(texts))]
        return Judged([self.metric], texts, references).values()[self.metric]

    def references(self, split: Split) -> list[str]:
        return [record.fields[TARGET] for record in cast(Pairs, split).records()]

    def source_lengths(self, split: Split) -> list[int]:
        """Total length of the texts among the conditions of each example."""
        roles = [role for role, kind in self.settings.conditions.items() if kind == "text"]
        if not roles:
            return [0] * len(split)
        return [sum(len(record.fields[role]) for role in roles) for record in cast(Pairs, split).records()]

    def prompts(self, texts: Sequence[str]) -> Prompts:
        """Encode sources, with tabs between several conditions."""
        rows = []
        for text in texts:
            fields = typed_fields(text, list(self.settings.conditions))
            rows.append([self.sources.encoded(role, field) for role, field in fields.items()])
            if (length := sum(map(len, rows[-1]))) > self.settings.longest:
                raise DataError(self._too_long(length), hint="shorten it")
        return Prompts([[self.tokenizer.end_id] for _ in texts], self.sources.tensors(rows))

    def answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        """Answer each example; an empty source is answered like any other."""
        answers = self._answers(objective, batch)
        return [{"text": self.given(record), **one} for record, one in zip(batch.records, answers, strict=True)]

    def given(self, record: Record) -> str:
        """Return the input of an example as in its line or row: its conditions, separated by tabs."""
        return "\t".join(record.fields[role] for role in self.settings.conditions)

    def _answers(self, objective: Objective, batch: Batch) -> list[dict[str, Any]]:
        source = batch.part("source")
        assert source is not None
        lengths = source["mask"].sum(1)
        short = lengths <= self.settings.longest
        if not bool(short.all()):
            return self._answers_to_some(objective, batch, lengths, short)
        model = cast(LanguageModel, objective.body)
        if self.decoding.alignments and len(short):  # fail before the search if the model has no alignments
            attention_to_source(
                model, {name: tensor[:1] for name, tensor in source.items()}, [0], self.tokenizer.end_id
            )
        found = self.searched(model, source) if self.choose is None else self._drawn(model, batch, self.choose)
        rows = [{name: tensor[row] for name, tensor in source.items()} for row in range(len(short))]
        return [self._answer(model, row, own) for row, own in zip(rows, found, strict=True)]

    def _answers_to_some(
        self, objective: Objective, batch: Batch, lengths: Tensor, short: Tensor
    ) -> list[dict[str, Any]]:
        """Answer the sources that are not too long; the others get an error message instead."""
        width = int(lengths[short].max()) if bool(short.any()) else 0
        source = batch.part("source") or {}
        some = Batch({f"source.{name}": tensor[short, :width] for name, tensor in source.items()})
        some["examples"] = batch["examples"][short]
        answers = iter(self._answers(objective, some) if width else [])
        return [
            next(answers) if one else {"answer": "", "error": self._too_long(length)}
            for one, length in zip(short.tolist(), lengths.tolist(), strict=True)
        ]

    def _too_long(self, length: int) -> str:
        return f"{length:,} tokens exceed the maximum of {self.settings.longest:,} (task.longest)"

    def searched(
        self, model: LanguageModel, source: Mapping[str, Tensor], watch: Watch | None = None
    ) -> list[list[Hypothesis]]:
        """Search for the best targets of the sources."""
        own, end = self.decoding, self.tokenizer.end_id
        width = own.beam or 1
        penalty = own.length_penalty if own.beam else 0.0
        beam = Beam(width, penalty, own.coverage_penalty, best=min(own.best, width))
        limits = self._limits(source, model.context)
        return beam_search(model, [[end]] * len(limits), beam, limits, frozenset({end}), source, watch)

    def _limits(self, source: Mapping[str, Tensor], context: int | None) -> list[int]:
        """Return the maximum number of tokens of each target; the model has room for `context`."""
        reads = "text" in self.settings.conditions.values()  # the length of labels and numbers is meaningless
        found = [2 * length + 50 if reads else self.decoding.tokens for length in source["mask"].sum(1).tolist()]
        return found if context is None else [min(limit, context) for limit in found]

    def drawn(self, choose: Choose) -> Translation:
        task = copy.copy(self)
        task.choose = choose
        return task

    def _drawn(self, model: LanguageModel, batch: Batch, choose: Choose) -> list[list[Hypothesis]]:
        """Sample one target per source, token by token, independently of the other sources."""
        source, end, examples = batch.part("source") or {}, self.tokenizer.end_id, batch["examples"].tolist()
        limits = self._limits(source, model.context)
        texts: list[list[Token]] = [[] for _ in limits]
        for step in generate(model, [[end]] * len(limits), choose, limits, frozenset({end}), source, examples):
            for token in step:
                texts[token.row].append(token)
        return [[_hypothesis(text)] for text in texts]

    def _answer(self, model: LanguageModel, source: Mapping[str, Tensor], found: list[Hypothesis]) -> dict[str, Any]:
        each: list[dict[str, Any]] = [
            {"answer": self.tokenizer.decode(one.tokens), "log_probability": one.log_probability, "rank": one.rank}
            for one in found
        ]
        read: dict[str, Any] = {}
        if self.decoding.alignments:
            real = {name: tensor[None, : int(source["mask"].sum())] for name, tensor in source.items()}
            read = {"source_tokens": self.sources.pieces(real["tokens"][0].tolist())}
            for answer, one in zip(each, found, strict=True):
                weights = attention_to_source(model, real, one.tokens, self.tokenizer.end_id)
                answer |= {"tokens": self.sources.pieces(one.tokens), "alignment": most(weights)}
        return {**each[0], **read, **({"n_best": each} if self.decoding.best > 1 else {})}

    def outcomes(self, objective: Objective, batch: Batch) -> list[Written]:
        answers, mask = self.answers(objective, batch), batch["mask"]
        output = cast(NextToken, objective).read(batch, None)
        losses = torch.zeros(mask.shape, device=mask.device)
        losses[mask] = cast(LanguageModel, objective.body).losses(output.states[mask], batch["targets"][mask]).float()
        each = zip(batch.records, answers, losses.sum(1).tolist(), mask.sum(1).tolist(), strict=True)
        return [
            Written(record, one["text"], loss, one["answer"], record.fields[TARGET], tokens, one.get("error", ""))
            for record, one, loss, tokens in each
        ]

    def signature(self, split: Split) -> dict[str, Any]:
        return {**super().signature(split), "conditions": ", ".join(self.settings.conditions)}


def _the_metric(name: str) -> Metric:
    """Return the metric of this name."""
    try:
        (metric,) = metrics_of([name]).values()
    except (RecipeError, ValueError):
        hint = nearest(name, ["loss", *registry.names("metric")])
        raise RecipeError(f"'{name}' cannot choose the best checkpoint", where="task.best", hint=hint) from None
    return metric


def _hypothesis(text: Sequence[Token]) -> Hypothesis:
    total = sum(token.log_probability for token in text)
    return Hypothesis(tuple(token.id for token in text), total, total)


def typed_lines(data: DataSettings, roles: Sequence[str]) -> Iterator[Record]:
    """Yield every line of the plain text files in `data.valid`, including empty ones."""
    for path in sources(data, "valid"):
        if not isinstance(path, Path):
            raise DataError(f"'{path}' is not a file", hint="give a plain text file with one example per line")
        for number, line in lines(pieces(path), str(path)):
            fields = typed_fields(line.removesuffix("\r"), roles, f"{path}, line {number}")
            yield Record(fields, str(path), number)


def typed_fields(line: str, roles: Sequence[str], where: str | None = None) -> dict[str, str]:
    fields = line.split("\t") if len(roles) > 1 else [line]
    if len(fields) != len(roles):
        what, hint = f"expected {len(roles)} fields, found {len(fields)}", f"give {', '.join(roles)}"
        raise DataError(what, where=where, hint=f"{hint}, separated by tabs")
    return dict(zip(roles, fields, strict=True))


def _left_out(count: int, pairs: int, longest: int) -> str:
    """Return a note on the pairs that are too long for training."""
    if count == pairs > 0:
        what = f"all {pairs:,} pairs have more than {longest:,} tokens"
        raise DataError(what, where="task.longest", hint="raise it, or split the texts into sentences")
    return f"left out {count:,} of {pairs:,} pairs, which exceed task.longest={longest:,} tokens" if count else ""
