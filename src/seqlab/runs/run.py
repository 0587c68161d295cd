"""Load a trained run; generate, evaluate, score and predict with it."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
import yaml

from seqlab import registry
from seqlab.build import build, choose_device, load_weights
from seqlab.data.batching.batches import Batch, Examples, Split
from seqlab.data.batching.sequences import ScoredLanes, ScoredWindows
from seqlab.data.checks.leaks import measured_on_other, measured_on_own
from seqlab.data.progress import bytes_of, work
from seqlab.data.records import Record
from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.choose import Choose, Greedy, Sample
from seqlab.decoding.generate import generate
from seqlab.decoding.logits import Filter, Temperature, TopK, TopP
from seqlab.decoding.packing import packed
from seqlab.decoding.scoring import Score, score
from seqlab.decoding.suggest import Suggestion, suggest
from seqlab.errors import RunError, SeqlabError, caution
from seqlab.inspection.surprise import lines_read
from seqlab.metrics.judging import Judged
from seqlab.metrics.lengths import by_length
from seqlab.models.language_model import LanguageModel
from seqlab.objectives.objective import Objective
from seqlab.recipe import DataSettings, PartSettings, Recipe
from seqlab.recipe_tree import RecipeTree, to_yaml
from seqlab.runs.ancestry import reads, trained
from seqlab.tasks.abilities import Answers, Forecasts, Writes
from seqlab.tasks.answering import answers_of, each_example, each_row
from seqlab.tasks.outcomes import Examinable, Outcome
from seqlab.tasks.task import Prompts, Task, is_split, is_task, split_of, unknown_tokens
from seqlab.tokenizers import TextStream, Tokenizer, load_tokenizer
from seqlab.training.checkpoint import Checkpoints, Snapshot
from seqlab.training.evaluation import evaluate
from seqlab.training.log import read_log
from seqlab.training.manifest import check_run, replace_recipe
from seqlab.training.measuring import figures as figures_of

Answer = dict[str, Any]


class Run:
    """A trained model with everything it needs: recipe, task (with its tokenizer) and weights.

    >>> run = seqlab.load("runs/my-run")
    >>> run.generate("The ", tokens=50)
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        task: Task,
        objective: Objective,
        step: int,
        trained_on: DataSettings | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.folder, self.recipe, self.task, self.step = folder, recipe, task, step
        self.trained_on = trained_on or recipe.data
        self.notes = tuple(notes)
        """What was said when it was loaded: that a checkpoint is damaged."""
        self.device = choose_device(recipe.training.device)
        self.objective = objective.to(self.device).eval()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.folder}: {self.recipe.model.kind}, step {self.step:,}>"

    @property
    def tokenizer(self) -> Tokenizer:
        if self.task.tokenizer is None:
            what, hint = "has no tokenizer, because it does not read text", "use predict or evaluate"
            raise RunError(what, where=str(self.folder), hint=hint)
        return self.task.tokenizer

    @property
    def model(self) -> LanguageModel:
        """The body, as trained."""
        if not isinstance(self.objective.body, LanguageModel):
            hint = "give a run of a language model or a translator"
            raise RunError(
                f"model '{self.recipe.model.kind}' does not predict tokens", where=str(self.folder), hint=hint
            )
        return self.objective.body

    @property
    def decoder(self) -> LanguageModel:
        """The body packed for decoding: each text is independent of the others in its batch."""
        assert self.model is self.objective.body
        return cast(LanguageModel, self.answering.body)

    @cached_property
    def answering(self) -> Objective:
        """The objective for answering; one that writes texts is packed for decoding."""
        return packed(self.objective) if isinstance(self.objective.body, LanguageModel) else self.objective

    def changed(self, settings: Mapping[str, Any] | Iterable[str]) -> Run:
        """Return the same model with other settings, such as {"decoding.beam": 5} or ["data.columns.text=body"]."""
        recipe = self.recipe.changed(settings)
        task = type(self.task).restore(recipe, self.task.tokenizer, self.task.memory())
        return Run(self.folder, recipe, task, self.objective, self.step, self.trained_on, self.notes)

    @property
    def parameters(self) -> int:
        """Number of learnt parameters: weights, or entries of tables."""
        body = self.objective.body
        weights = sum(weight.numel() for weight in self.objective.parameters())
        return weights + (body.entries if isinstance(body, LanguageModel) else 0)

    @property
    def log(self) -> list[dict[str, Any]]:
        return read_log(self.folder / "log.jsonl")

    @property
    def timing(self) -> list[dict[str, Any]]:
        return read_log(self.folder / "timing.jsonl")

    def evaluate(
        self,
        data: str | Sequence[str] | None = None,
        batch_size: int | None = None,
        scramble: float | None = None,
        metrics: Sequence[str] | None = None,
        lengths: bool = False,
    ) -> dict[str, Any]:
        """Return the task's metrics on the held-out data or on other files, with the signature that identifies them.

        `scramble` is the share of the words whose inner letters are permuted, which shows how robust the model is.
        Written texts are scored by `metrics`, or by those of the recipe; with `lengths`, also by source length. Notes
        needed to interpret the metrics are returned as `notes` and raised as warnings (`seqlab.errors.Caution`).
        """
        if metrics and not isinstance(self.task, Writes):
            what = f"generates no texts to score by {' and '.join(metrics)}"
            hint = "leave these metrics out: they need a task that generates texts, such as translation"
            raise RunError(what, where=str(self.folder), hint=hint)
        recipe = self.recipe if scramble is None else self.recipe.changed({"data.scramble": scramble})
        split = self.held_out(data, recipe.data)
        with self._repeatable() as drawn:
            totals = evaluate(self.objective, split, batch_size or self.recipe.training.batch_size, self.device)
        noise = {"scramble": recipe.data.scramble} if recipe.data.scramble else {}
        signature = {**self.task.signature(split), **noise, **self._caution, **self.measured_on(data)}
        figures: dict[str, Any] = figures_of(self.task, totals, split)
        known = [split.note, *(signature.get(name, "") for name in ("scores", "changed", "overlap", "compared"))]
        notes: list[str] = [note for note in known if note]
        for note in notes:
            caution(note)
        notes = [*self.notes, *notes, *drawn]  # the first were raised before
        if isinstance(self.task, Writes) and (judges := self.task.judges if metrics is None else metrics):
            references = [[one] for one in self.task.references(split)]
            answers = list(self.answers(split, batch_size))
            judged = Judged(judges, [answer["answer"] for answer in answers], references)
            figures |= {**judged.values(), "too_long": sum("error" in answer for answer in answers)}
            signature |= judged.signatures
            if figures["too_long"]:
                signature["too_long"] = _too_long(figures["too_long"], len(answers), self.recipe.task)
                caution(signature["too_long"])
                notes.append(signature["too_long"])
            notes += judged.cautions
            if lengths:
                figures["by_length"] = by_length(judged, self.task.source_lengths(split))
        return {**figures, "step": self.step, **({"notes": notes} if notes else {}), "signature": signature}

    @contextmanager
    def _repeatable(self) -> Iterator[list[str]]:
        """Warn if a model draws random numbers: its figures and texts then differ from call to call."""
        before, said = torch.get_rng_state(), list[str]()
        yield said
        if not torch.equal(before, torch.get_rng_state()):
            own = dict.fromkeys(type(part).__name__ for part in self.objective.modules() if registry.is_own(type(part)))
            what = f"{' or '.join(own) or 'the model'} draws random numbers: figures and texts differ from call to call"
            said.append(f"{what}; draw them in training only (if self.training: ...)")
            caution(said[0])

    def measured_on(self, data: str | Sequence[str] | None = None) -> dict[str, str]:
        """Return notes about the held-out data, or about other files.

        `held_out`: how much there is; `changed`: how it differs from the data of the training; `overlap`: how much of
        it is also in the training data, of this run or of one that its weights come from; `compared`: why this was
        not measured, or only with other training data.
        """
        own = self.trained_on
        asked = reads(self.recipe.model_copy(update={"data": own}))
        if data is None:
            return measured_on_own(own, asked, self.recipe.environment)
        if asked is None:
            return {}
        update = {"valid": data if isinstance(data, str) else list(data)}
        other = replace(asked, data=self.recipe.data.model_copy(update=update))
        return measured_on_other(other, trained(self.recipe, own))

    def outcomes(self, data: str | Sequence[str] | None = None, batch_size: int | None = None) -> Iterator[Outcome]:
        """Yield the outcome of each example (each line of a text) of the held-out data or of other files, in order.

        `seqlab.inspection.error_report.report` summarises them in tables.
        """
        split = self.held_out(data)
        if isinstance(split, ScoredWindows | ScoredLanes):
            rows = batch_size or self.recipe.training.batch_size
            return lines_read(self.objective, split, self.tokenizer, rows, self.device)
        if not isinstance(self.task, Examinable):
            hint = "leave out --errors, or give the task a method outcomes(objective, batch)"
            raise RunError("its task does not report the outcome of each example", where=str(self.folder), hint=hint)
        task, objective = self.task, self.answering
        return self._each(cast(Examples, split), batch_size, lambda batch: each_row(task, "outcomes", objective, batch))

    @property
    def _caution(self) -> dict[str, str]:
        """The entry of a signature for scores that are not probabilities."""
        normalised = getattr(self.objective.body, "normalised", True)
        return (
            {}
            if normalised
            else {"scores": "its scores do not sum to one: loss and perplexity are not comparable with other models"}
        )

    def held_out(self, data: str | Sequence[str] | None = None, settings: DataSettings | None = None) -> Split:
        """Return the held-out part of its data, or other files instead."""
        settings = settings or self.recipe.data
        if data is not None:
            settings = settings.model_copy(update={"valid": data if isinstance(data, str) else list(data)})
        elif not settings.train and settings.valid is None:
            raise RunError("was not trained here and has no held-out data", where=str(self.folder), hint="give --data")
        return split_of(self.task, settings, "valid", training=False)

    def stream(
        self,
        prompts: Sequence[str],
        *,
        choose: Choose | None = None,
        tokens: int | None = None,
        seed: int = 0,
    ) -> Iterator[tuple[int, str]]:
        """Yield (row, new text) as it is generated, in whole characters."""
        tokenizer = self.tokenizer
        asked = self._asked(prompts)
        texts = [self._text_after(prompt, ids) for prompt, ids in zip(prompts, asked.tokens, strict=True)]
        choose = choose or self.choose(seed)
        stop = frozenset({tokenizer.end_id})
        limit = self.recipe.decoding.tokens if tokens is None else tokens
        steps = generate(self.decoder, asked.tokens, choose, limit, stop, asked.source)
        with self._repeatable():  # only the first step: the caller may draw numbers between two of them
            first = list(islice(steps, 1))
        for step in chain(first, steps):
            for token in step:
                if token.id not in stop:
                    yield token.row, texts[token.row].push(token.id)
        for row, text in enumerate(texts):
            yield row, text.finish()

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        samples: int = 1,
        choose: Choose | None = None,
    ) -> list[str]:
        """Return `samples` continuations of a prompt. Temperature 0 is greedy; None stands for the recipe's setting."""
        choose = choose or self.choose(seed, temperature, top_k, top_p)
        texts = [""] * samples
        for row, piece in self.stream([prompt] * samples, choose=choose, tokens=tokens):
            texts[row] += piece
        return texts

    def beam(self, prompt: str, beam: Beam, tokens: int | None = None) -> list[tuple[str, float]]:
        """Return the most probable continuations that beam search finds, with their log-probabilities, best first."""
        stop = frozenset({self.tokenizer.end_id})
        limit = self.recipe.decoding.tokens if tokens is None else tokens
        asked = self._asked([prompt])
        (found,) = beam_search(self.decoder, asked.tokens, beam, limit, stop, asked.source)
        texts = []
        for one in found:
            text = self._text_after(prompt, asked.tokens[0])
            texts.append("".join([*map(text.push, one.tokens), text.finish()]))
        return [(text, one.log_probability) for text, one in zip(texts, found, strict=True)]

    def score(self, texts: Sequence[str]) -> list[Score]:
        """Return the log-probability of each text, including its end if documents are lines.

        The score of an empty text is that of its end alone; without ends, it is log p = 0 over 0 tokens.
        """
        if isinstance(texts, str):
            raise TypeError("score takes a list of texts")
        end, unknown = self.tokenizer.end_id, self.tokenizer.unknown_id
        if self.model.reads_sources:
            what, hint = "scores a text together with its source", f"use `seqlab evaluate {self.folder} --data PAIRS`"
            raise RunError(what, where=str(self.folder), hint=hint)
        closing = [end] if self.recipe.data.documents == "line" else []
        sequences = [ids + closing for ids in self.tokenizer.encode_batch(list(texts))]
        size, tokens, done = sum(map(bytes_of, texts)), sum(map(len, sequences)), 0
        with work("scoring", size) as progress:

            def scored(count: int) -> None:
                nonlocal done
                done += count
                progress(size * done // tokens)

            # as trained, not packed for decoding: a single sequence has no neighbours to depend on in either form, and
            # a recurrent net reads a long one far faster with its fused kernels
            with self._repeatable():
                found = score(self.model, sequences, end, getattr(self.recipe.task, "window", None), scored)
        if unknown is None:
            return found
        return [replace(one, unknown=ids.count(unknown)) for one, ids in zip(found, sequences, strict=True)]

    def predict(
        self,
        data: str | Sequence[str],
        *,
        lines: bool = False,
        batch_size: int | None = None,
        steps: int | None = None,
    ) -> Iterator[Answer]:
        """Yield the task's answers to the examples of files, in order; with `lines`, to the lines of plain texts.

        Forecasts reach `steps` ahead.
        """
        task = self._answers
        if steps is not None:
            if not isinstance(task, Forecasts):
                raise RunError("this kind of task does not forecast", hint="leave --steps out")
            task = task.ahead(steps)
        update: dict[str, Any] = {"valid": data if isinstance(data, str) else list(data)}
        if lines:
            update |= {"format": "txt", "documents": "line"}
        split = is_split(task.asked(self.recipe.data.model_copy(update=update)), task, "asked")
        if split.note:
            caution(split.note)
        return self.answers(split, batch_size, task)

    def answers(self, split: Split, batch_size: int | None = None, task: Answers | None = None) -> Iterator[Answer]:
        """Yield one answer per example, in order, with its place and its number of unknown tokens.

        Examples of similar length are batched together, fewer at a time if they are long.
        """
        tokenizer, split = self.task.tokenizer, cast(Examples, split)
        task = task or self._answers

        def ask(batch: Batch) -> list[Answer]:
            answers = answers_of(task, self.answering, batch)
            counts = [] if tokenizer is None else unknown_tokens(tokenizer, batch)
            unknown = [{"unknown": count} for count in counts] or [{}] * len(answers)
            each = zip(batch.records, answers, unknown, strict=True)
            return [{**_place(record), **answer, **own} for record, answer, own in each]

        def nothing(record: Record) -> Answer:
            unknown = {} if tokenizer is None else {"unknown": 0}
            return {**_place(record), **task.nothing(record), **unknown}

        return self._each(split, batch_size, ask, nothing)

    @property
    def _answers(self) -> Answers:
        """The task, if it is one that answers."""
        if not isinstance(self.task, Answers):
            raise RunError("this kind of task has no answers", hint="use generate, score or evaluate")
        return self.task

    def _each(
        self,
        split: Examples,
        batch_size: int | None,
        ask: Callable[[Batch], list[Any]],
        nothing: Callable[[Record], Any] = lambda record: None,
    ) -> Iterator[Any]:
        return each_example(split, batch_size or self.recipe.training.batch_size, self.device, ask, nothing)

    def suggest(self, prompt: str, count: int = 5) -> list[Suggestion]:
        """Return the most likely next words."""
        return suggest(self.decoder, self.tokenizer, self._asked([prompt.rstrip()]).tokens[0], count)

    def unknown(self, prompts: Sequence[str]) -> list[int]:
        """Return how many tokens of each prompt are not in the vocabulary."""
        unknown, asked = self.tokenizer.unknown_id, self.task.prompts(prompts)
        read = asked.tokens if asked.source is None else asked.source["tokens"].tolist()
        return [0 if unknown is None else ids.count(unknown) for ids in read]

    def _asked(self, prompts: Sequence[str]) -> Prompts:
        asked = self.task.prompts(prompts)
        return asked if asked.source is None else Prompts(asked.tokens, asked.source.to(self.device))

    def _text_after(self, prompt: str, ids: Sequence[int]) -> TextStream:
        """Return a stream that decodes what follows a prompt, after a space unless the prompt ends in one."""
        text = self.tokenizer.stream()
        for token in ids if not prompt[-1:].isspace() else []:
            text.push(token)
        return text

    def choose(
        self,
        seed: int = 0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Choose:
        """Return how tokens are chosen; None stands for the recipe's setting."""
        own = self.recipe.decoding
        temperature = own.temperature if temperature is None else temperature
        top_k, top_p = own.top_k if top_k is None else top_k, own.top_p if top_p is None else top_p
        if temperature == 0:
            return Greedy()
        filters: list[Filter] = [Temperature(temperature)]
        filters += [] if top_k is None else [TopK(top_k)]
        filters += [] if top_p is None else [TopP(top_p)]
        return Sample(*filters, seed=seed)


def _too_long(count: int, sources: int, settings: PartSettings) -> str:
    """Return a note on unanswered sources. Leaving them out would flatter a system that cannot read them."""
    limit = getattr(settings, "longest", 0)
    return f"{count:,} of {sources:,} sources have more than task.longest={limit:,} tokens: scored as empty answers"


def _place(record: Record) -> dict[str, Any]:
    """Return the file of a record and, unless the record is the whole file, its line or row."""
    line = {record.counted: record.line} if record.line else {}
    return {"file": record.file, **line} if record.file else {}


def load(
    folder: str | os.PathLike[str],
    *,
    checkpoint: int | str = "best",
    code: str | os.PathLike[str] | None = None,
    device: str = "auto",
    warn: Callable[[str], None] = caution,
) -> Run:
    """Load the run in a folder, with the weights of its best or last checkpoint, or that of a step.

    If the best or the last one is damaged, another one is used, and a `Caution` says which.
    """
    path = Path(folder)
    recipe = run_recipe(path, code)
    recipe = recipe.changed({"training.device": device})  # the device it was trained on may not exist here
    task = restored_task(path, recipe)
    objective = build(recipe, task)
    notes: list[str] = []
    snapshot = _snapshot(Checkpoints(path, warn=notes.append), checkpoint)
    for note in notes:
        warn(note)
    if snapshot is None:
        raise RunError("has no intact checkpoint", where=str(path), hint="continue with --resume")
    load_weights(objective, snapshot.model, f"{path}, step {snapshot.facts['step']}")
    return Run(path, recipe, task, objective, int(snapshot.facts["step"]), notes=notes)


def _snapshot(checkpoints: Checkpoints, which: int | str) -> Snapshot | None:
    if which == "best":
        return checkpoints.best()
    if which == "last":
        return checkpoints.newest()
    try:
        return checkpoints.at(int(which))
    except ValueError:
        raise RunError(f"'{which}' is not a checkpoint", hint="give a step, 'last' or 'best'") from None


def run_recipe(folder: Path, code: str | os.PathLike[str] | None = None) -> Recipe:
    """Return the recipe of a run folder; an error if it is not one, was edited, or needs code that is not given.

    Every command that uses a run calls this.
    """
    try:
        if not folder.is_dir():
            raise RunError(f"no run folder '{folder}'", hint="make one with `seqlab train`")
        if not (folder / "recipe.yaml").is_file():
            hint = "give a folder made by `seqlab train`"
            raise RunError("not a run folder (it has no recipe.yaml)", where=str(folder), hint=hint)
    except OSError as error:
        raise RunError(f"cannot be read ({error.strerror})", where=str(folder)[:80], hint="check the path") from None
    check_run(folder)
    _needs_code(folder, code)
    tree = RecipeTree.load(folder / "recipe.yaml")
    if isinstance(tree.data.get("data"), dict):
        tree.data["data"].setdefault("hold_out_by", "number")  # runs of earlier versions lack the key
    return Recipe.of(tree)


def restored_task(folder: Path, recipe: Recipe) -> Task:
    """Restore the task of a run, with its tokenizer and whatever else it learnt from the data."""
    try:
        known = yaml.safe_load((folder / "model.yaml").read_text(encoding="utf-8"))
        memory, expected = known["memory"], known.get("tokenizer")
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError):
        hint = "restore the folder from a copy, or train again"
        raise RunError("model.yaml is missing or damaged", where=str(folder), hint=hint) from None
    tokenizer = load_tokenizer_of(folder, recipe)
    if expected is not None and (tokenizer is None or tokenizer.fingerprint != expected):
        hint = "put back the one that the run was trained with"
        raise RunError("this tokenizer does not belong to the run", where=str(folder / "tokenizer"), hint=hint)
    kind = registry.find("task", recipe.task.kind)
    return is_task(kind.restore(recipe, tokenizer, memory), kind, "restore")


def load_tokenizer_of(folder: Path, recipe: Recipe) -> Tokenizer | None:
    """Load the tokenizer of a run folder; None if the run reads numbers."""
    return None if recipe.tokenizer is None else load_tokenizer(folder / "tokenizer")


def use_code(path: str | os.PathLike[str]) -> dict[str, str]:
    """Import a user's Python file, which registers its classes; return the record that a run keeps of it.

    A file that was edited since it was imported is imported again, so that a notebook uses the version it names.
    """
    file = Path(path)
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise SeqlabError(f"--code {file}: {error.strerror}", hint="give a Python file") from None
    if digest in _running:
        what = "the file trains or loads a run while it is being imported"
        raise SeqlabError(what, where=f"--code {file}", hint='write that below `if __name__ == "__main__":`')
    if digest not in _imported.values():
        _imported.pop(file.resolve(), None)  # its classes are about to be replaced
        _running.add(digest)
        try:
            _execute(file)
        finally:
            _running.discard(digest)
        _imported[file.resolve()] = digest
        if not registry.own_names():
            caution(f"{file.name} registers no class: end it with seqlab.register(family, name, cls)")
    return {"code": file.name, "code_sha256": digest}


_imported: dict[Path, str] = {}
"""The files whose classes are registered now, and the sha256 of the version that registered them."""
_running: set[str] = set()


def _execute(file: Path) -> None:
    place = file.resolve()
    name = f"seqlab_code_{file.stem}_{hashlib.sha256(bytes(place)).hexdigest()[:8]}"  # two files may have one name
    loader = importlib.machinery.SourceFileLoader(name, str(place))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pydantic look up the names in annotations
    sys.path.insert(0, str(place.parent))  # it may import its neighbours
    try:
        loader.exec_module(module)
    except SeqlabError:
        raise
    except Exception as error:  # a user's file may raise anything
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(place)]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        where = f"--code {file}" + (f", line {line}" if line else "")
        raise SeqlabError(f"{type(error).__name__}: {error}", where=where, hint="correct the file") from error
    finally:
        sys.path.remove(str(place.parent))


def place_in_own_code(error: BaseException) -> str | None:
    """Return the place in a user's files that an error comes out of: the file and line, or the class.

    None if neither a file given as `code`, nor one that it imports from its folder, nor a class of theirs was running.
    """
    folders, place = {file.parent for file in _imported}, None
    for frame, line in traceback.walk_tb(error.__traceback__):
        file, own = Path(frame.f_code.co_filename), type(frame.f_locals.get("self"))
        if file in _imported or (file.parent in folders and "seqlab" not in frame.f_globals.get("__name__", "")):
            place = f"{os.path.relpath(file) if file.is_relative_to(Path.cwd()) else file}, line {line}"
        elif registry.is_own(own) and (place is None or "line" not in place):
            place = f"class {own.__name__}"
    called = (cls.__name__ for cls in registry.own_classes() if f"{cls.__qualname__}." in str(error))
    return place or next((f"class {name}" for name in called), None)  # a method with other arguments than expected


def _needs_code(folder: Path, code: str | os.PathLike[str] | None) -> None:
    """Check that a run trained with custom code is given that code; a run folder never contains code.

    This comes before the recipe is checked, because the recipe may name classes that only the code defines.
    """
    given = use_code(code)["code_sha256"] if code is not None else None
    environment = RecipeTree.load(folder / "recipe.yaml").data.get("environment")
    known = environment if isinstance(environment, dict) else {}
    expected = known.get("code_sha256")
    if expected is None or given == expected or expected in _imported.values():
        return
    if given is None:
        what = f"was trained with custom code ({known.get('code')}, sha256 {str(expected)[:12]}…)"
        raise RunError(what, where=str(folder), hint="give the same file with --code")
    name, other, versions = (
        known.get("code"),
        Path(str(code)).name,
        f"sha256 {str(expected)[:12]}… then, {given[:12]}… now",
    )
    what, hint = (
        f"was trained with another version of {name} ({versions})",
        "put that version back, or accept the new one",
    )
    if other != name:
        what, hint = (
            f"was trained with {name}, and {other} is another file ({versions})",
            f"give {name}, or accept {other}",
        )
    raise RunError(what, where=str(folder), hint=f"{hint}: seqlab accept {folder} --code {code}")


def accept_code(folder: Path, code: str | os.PathLike[str]) -> dict[str, str]:
    """Record another version of the file that a run was trained with; return the difference."""
    written = RecipeTree.load(folder / "recipe.yaml").data
    known, now = written.get("environment"), use_code(code)
    before = known.get("code_sha256") if isinstance(known, dict) else None
    if before is None:
        raise RunError("was trained without custom code", where=str(folder), hint="leave --code out")
    if before == now["code_sha256"]:
        return {}
    replace_recipe(folder, to_yaml({**written, "environment": {**written["environment"], **now}}))
    return {now["code"]: f"changed (sha256 {str(before)[:12]}… then, {now['code_sha256'][:12]}… now)"}
