"""Prepare a training: make and check data, tokenizer, model and number of steps before anything is written."""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from seqlab import registry
from seqlab.build import build
from seqlab.data.batching.batches import Batch, Examples, Split
from seqlab.data.checks.leaks import Trained, measured_on_other, overlap
from seqlab.data.formats.contents import Asked
from seqlab.data.formats.vectors import word_vectors
from seqlab.data.randomness import Key
from seqlab.data.reading.readers import held_out
from seqlab.data.reading.series_splits import AskedSeries
from seqlab.data.records import Record
from seqlab.decoding.choose import Sample
from seqlab.decoding.generate import generate
from seqlab.decoding.logits import Temperature
from seqlab.errors import RecipeError, caution, memory_for
from seqlab.metrics.judging import check_metrics
from seqlab.models.encoder import Encoder
from seqlab.models.language_model import LanguageModel
from seqlab.objectives.objective import Objective
from seqlab.recipe import Recipe, seconds
from seqlab.runs.ancestry import reads, record, trained_by
from seqlab.runs.run import restored_task, run_recipe
from seqlab.runs.transfer import begin, borrowed, freeze, sources, tokenizer_of
from seqlab.tasks.abilities import Writes
from seqlab.tasks.answering import answers_of
from seqlab.tasks.task import Task, is_task, split_of
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.word import WordTokenizer
from seqlab.training.counting import Counting
from seqlab.training.distributed import ALONE, Ranks
from seqlab.training.evaluation import evaluate
from seqlab.training.routing import NEVER, compiled_from, route
from seqlab.training.tensorboard import check_installed
from seqlab.training.trainer import Silence, Trainer, Watcher

LONGEST_SAMPLE = 200
ROUNDS = 5
"""Number of timings of a group of steps when a budget is measured."""
PAUSES = 8
"""Number of evaluations, each with samples, in a run whose recipe does not set it."""
ANSWERS = 3
"""Number of held-out examples to answer as samples, for a model that answers."""
SHARE_OF_PAUSES = 0.15
"""Largest share of a budget for evaluations and samples. If they would take more, there are fewer of them."""


@dataclass
class Prepared:
    """A training that is ready to start."""

    recipe: Recipe
    task: Task
    objective: Objective
    train_split: Split
    valid_split: Split
    notes: dict[str, Any] = field(default_factory=dict)
    """Notes about the held-out data to store with the run, and what else it remembers."""

    @property
    def left_out(self) -> list[str]:
        """Notes of the splits about examples or columns that are left out or changed when read."""
        return list(dict.fromkeys(split.note for split in (self.train_split, self.valid_split) if split.note))

    @property
    def counts(self) -> bool:
        """Whether the model learns by counting, all at once: it has `fit`, and no weights for an optimizer."""
        weights = any(p.requires_grad for p in self.objective.parameters())
        return hasattr(self.objective.body, "fit") and not weights

    def trainer(
        self, recipe: Recipe, folder: Path, watcher: Watcher, ranks: Ranks, objective: Objective | None = None
    ) -> Trainer:
        objective = objective or self.objective
        splits, sample = (self.train_split, self.valid_split), self._sampler(recipe, objective)
        return Trainer(objective, self.task, splits, recipe.training, folder, watcher, sample, ranks)

    def fitting(self, recipe: Recipe, folder: Path, watcher: Watcher, ranks: Ranks) -> Trainer | Counting:
        """Return the trainer, or the counter for models without weights."""
        if not self.counts:
            return self.trainer(recipe, folder, watcher, ranks)
        splits, sample = (self.train_split, self.valid_split), self._sampler(recipe, self.objective)
        return Counting(self.objective, self.task, splits, recipe.training, folder, watcher, sample, ranks)

    def budgeted(self, ranks: Ranks, watcher: Watcher) -> Recipe:
        """Return the recipe with a number of steps: as given, or as measured to fit into the budget."""
        training = self.recipe.training
        if training.steps is not None or self.counts:
            return self.recipe
        if training.budget is None:
            raise RecipeError("neither 'training.steps' nor 'training.budget' is set", hint="set one of them")
        watcher.said(f"measuring how many steps fit into {training.budget}")
        with memory_for_steps():
            steps, pauses = self._measure(seconds(training.budget), ranks)
        return _with_steps(self.recipe, steps, training.evaluate_every or -(-steps // pauses))

    def _measure(self, budget: float, ranks: Ranks) -> tuple[int, int]:
        """Measure how many steps and how many evaluations fit into a budget.

        Times steps, an evaluation and a sample on throwaway copies, for about a twentieth of the budget. The time of
        the measurement, including compilation, does not count towards the budget.
        """
        recipe = _with_steps(self.recipe, 1_000_000)
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
            trial = self.trainer(recipe, Path(folder), Silence(), ranks, copy.deepcopy(self.objective))
            trial.objective.train()
            batches = trial.order.walk()

            def timed(steps: int) -> float:
                """Seconds per step, the mean over all ranks, which must take the same number of steps."""
                start = time.perf_counter()
                for _ in range(steps):
                    trial.learn(*next(batches))
                mean = (time.perf_counter() - start) / steps
                return ranks.sum([mean], trial.device)[0] / ranks.world

            timed(2)  # warm-up
            rounds = min(100, max(2, int(budget / 20 / timed(3) / ROUNDS)))
            step = statistics.median(timed(rounds) for _ in range(ROUNDS))  # other load on the machine comes in bursts
            self._begin_pause(trial)  # compilation at first use is not part of every pause
            start = time.perf_counter()
            evaluate(trial.objective, self.valid_split, recipe.training.batch_size, trial.device, ranks)
            if trial.sample is not None:
                trial.objective.eval()
                trial.sample()
            pause = time.perf_counter() - start
        pause = ranks.sum([pause], trial.device)[0] / ranks.world
        steps, pauses = affordable(budget, step, pause)
        return max(1, int(ranks.sum([steps], trial.device)[0] / ranks.world)), pauses

    @torch.no_grad()
    def _begin_pause(self, trial: Trainer) -> None:
        """Warm up with one batch of an evaluation, and a sample."""
        trial.objective.eval()
        _, indices = next(iter(self.valid_split.order(self.recipe.training.batch_size, seed=0).once()))
        trial.objective(self.valid_split.batch(indices, Key(0, 0)).to(trial.device))
        if trial.sample is not None:
            trial.sample()

    def _sampler(self, recipe: Recipe, objective: Objective) -> Callable[[], list[str]] | None:
        """Return a function that samples from the model, with the same noise each time, to show how it learns."""
        body, tokenizer, decoding = objective.body, self.task.tokenizer, recipe.decoding
        if not isinstance(body, LanguageModel) or tokenizer is None:
            return None
        if isinstance(self.task, Writes):
            few = list(islice(cast(Examples, self.valid_split).records(), ANSWERS))
            return lambda: self._answers(objective, few)
        prompts = self.task.prompts([decoding.prompt])
        longest = max(len(prompt) for prompt in prompts.tokens)
        if body.context is not None and longest > body.context:
            what = f"a prompt of {longest} tokens is longer than 'model.context' {body.context}"
            raise RecipeError(what, where="decoding.prompt", hint="shorten it")
        choose = Sample(Temperature(decoding.temperature or 1.0), seed=recipe.training.seed)
        length, stop = min(decoding.tokens, LONGEST_SAMPLE), frozenset({tokenizer.end_id})
        device = next((t.device for t in [*body.parameters(), *body.buffers()]), torch.device("cpu"))

        def sample() -> list[str]:
            source = None if prompts.source is None else prompts.source.to(device)
            steps = generate(body, prompts.tokens, choose, length, stop, source)
            return [tokenizer.decode([token.id for (token,) in steps])]

        return sample

    @torch.no_grad()
    def _answers(self, objective: Objective, few: list[Record]) -> list[str]:
        """Answer the first held-out examples, with a model that answers with texts."""
        device = next(objective.parameters()).device
        batch = Batch(self.valid_split.batch(np.arange(len(few)), Key(0, 0)), records=few)
        answers = answers_of(self.task, objective, batch.to(device))
        return [f"{' '.join(one['text'].split())} → {one['answer']}" for one in answers]


def affordable(budget: float, step: float, pause: float) -> tuple[float, int]:
    """Return how many steps and pauses fit into a budget, all in seconds. There is at least one pause."""
    pauses = max(1, min(PAUSES, int(SHARE_OF_PAUSES * budget / pause)))
    return (budget - min(pauses * pause, SHARE_OF_PAUSES * budget)) / step, pauses


def prepare(
    recipe: Recipe, device: torch.device, watcher: Watcher, load_from: Path | None = None, ranks: Ranks = ALONE
) -> Prepared:
    """Read the data, learn the tokenizer (or take it from a run), build the model."""
    check_installed(recipe.training.tensorboard)
    notes: dict[str, Any] = {}
    if load_from is None:
        learning = "" if recipe.tokenizer is None else " and learning the tokenizer"
        watcher.said(f"reading {recipe.data.train}{learning}")
        recipe, runs = borrowed(recipe)
        recipe, noted = settled(recipe)
        inits = sources(recipe.init, runs)
        ancestors = trained_by({init.run: run_recipe(Path(init.run)) for init in inits})
        noted = with_overlaps(noted, recipe, ancestors)
        for name, note in noted.items():
            watcher.said(f"held out: {note}" if name == "held_out" else note)
        notes = {**noted, **record(ancestors)}
        kind = registry.find("task", recipe.task.kind)
        if not inits:
            task = is_task(kind.prepare(recipe), kind, "prepare")
        else:
            recipe, tokenizer = tokenizer_of(inits, recipe)
            watcher.said(f"using the tokenizer of {inits[0].run}")
            task = is_task(kind.prepare(recipe, tokenizer), kind, "prepare")
    else:
        inits, runs, task = [], {}, restored_task(load_from, recipe)
    if isinstance(task, Writes):
        check_metrics([*task.judges, *({task.metric} - {*task.judges, "loss"})])
    objective = build(recipe, task)
    loaded = [begin(objective, init, recipe.model) for init in inits]
    found = {name for one in loaded for name in one.found}
    for init, one in zip(inits, loaded, strict=True):
        anew = [name for name in one.new if name not in found]
        watcher.said(f"{init.run}: {replace(one, new=anew)}")
    if recipe.init is not None and (frozen := freeze(objective, recipe.init)):
        watcher.said(f"{frozen:,} weights are frozen")
    with memory_for("the model", hint="make it smaller, or set training.device=cpu"):
        objective = objective.to(device)
    if load_from is None:
        notes |= _routed(objective, recipe, device, watcher, ranks)
    if not hasattr(objective.body, "fit") and not any(p.requires_grad for p in objective.parameters()):
        if recipe.init is not None and recipe.init.freeze:
            raise RecipeError("all weights are frozen", where="init.freeze", hint="leave some of them trainable")
        what, hint = f"model '{recipe.model.kind}' has nothing to train", "mix trained runs with `seqlab mix`"
        raise RecipeError(what, where="model.kind", hint=hint)
    if vectors := getattr(recipe.model, "vectors", None):
        watcher.said(start_from_vectors(cast(nn.Embedding, objective.body.embedding), vectors, task.tokenizer))
    train_split = split_of(task, recipe.data, "train", training=True)
    valid_split = split_of(task, recipe.data, "valid", training=False)
    _check_held_out(recipe, task, valid_split)
    for split in (train_split, valid_split):
        _check_lengths(objective.body, split)
    prepared = Prepared(recipe, task, objective, train_split, valid_split, {**notes, **taken(runs)})
    for note in prepared.left_out:
        watcher.said(note)
    return prepared


def _routed(
    objective: Objective, recipe: Recipe, device: torch.device, watcher: Watcher, ranks: Ranks
) -> dict[str, int]:
    """Choose what computes the linear maps of a new run, and return what the run records of it."""
    training, has_maps = recipe.training, any(isinstance(part, nn.Linear) for part in objective.modules())
    plain = training.precision == "float32" and not training.compile
    found = compiled_from(training.products, device) if has_maps and plain else None
    mine = NEVER if found is None else found
    first = int(ranks.sum([mine if ranks.first else 0], device)[0])  # the ranks must do the same
    route(objective, None if first == NEVER else first)
    if first == NEVER:
        if training.products == "compiled":
            what = "the kernels are for linear maps in float32 on the CPU, without training.compile"
            caution(f"training.products=compiled has no effect: {what}, and need a C++ compiler")
        return {}
    size = f"linear maps of at least {first:,} multiplications" if first else "all linear maps"
    measured = ", which is faster on this machine" if training.products == "auto" else ""
    watcher.said(f"{size} are computed by compiled kernels{measured}")
    return {"compiled_from": first}


def _check_lengths(body: nn.Module, split: Split) -> None:
    """Check that an encoder with a limit can read the longest example."""
    limit = body.longest if isinstance(body, Encoder) else None
    if limit is not None and isinstance(split, Examples) and (longest := max(split.lengths, default=0)) > limit:
        what = f"an example has {longest:,} tokens, but the model has {limit:,} positions"
        raise RecipeError(what, where="model.position.length", hint="raise it, or shorten the texts")


def _check_held_out(recipe: Recipe, task: Task, split: Split) -> None:
    """Warn if a task of one's own reads other held-out records than it declares: their roles or answers differ."""
    asked = task.reads(recipe) if registry.is_own(type(task)) else None
    chosen = held_out(asked) if isinstance(asked, Asked) else None
    if chosen is not None and chosen.by == "document" and isinstance(split, Examples) and chosen.held != len(split):
        caution(
            f"{type(task).__name__}: {chosen.held:,} records are held out by what reads() declares, and split() has "
            f"{len(split):,} examples; unless it leaves some out, give both the same roles and answers"
        )


def taken(runs: Mapping[str, str]) -> dict[str, str]:
    """Return the record that a run keeps of the runs its models are taken from."""
    return {f"{place}.from": run for place, run in runs.items()}


def settled(recipe: Recipe) -> tuple[Recipe, dict[str, str]]:
    """Return the recipe with the choice of held-out data filled in, and notes on its size or its overlap."""
    asked = reads(recipe)
    if asked is None or (recipe.tokenizer is None) != isinstance(asked, AskedSeries):
        return recipe, {}
    if isinstance(asked, Asked) and (chosen := held_out(asked)) is not None:
        return recipe.model_copy(update={"data": chosen.settled(recipe.data)}), {"held_out": str(chosen)}
    common = overlap(asked, asked)
    return recipe, {"overlap": str(common)} if common is not None and common.common else {}


def with_overlaps(notes: dict[str, str], recipe: Recipe, ancestors: Sequence[Trained]) -> dict[str, str]:
    """Add notes on what of the held-out data the runs that the weights come from were trained on."""
    asked = reads(recipe)
    others = [one for one in ancestors if one.on != asked]  # those of the same data hold out the same
    found = {} if asked is None else measured_on_other(asked, others)
    return {**notes, **{key: "; ".join(filter(None, (notes.get(key), note))) for key, note in found.items()}}


def memory_for_steps() -> AbstractContextManager[None]:
    """Wrap training steps: a batch that does not fit into memory becomes an error of one line."""
    return memory_for("training", hint="make the model, task.window or training.batch_size smaller")


def start_from_vectors(embedding: nn.Embedding, file: str, tokenizer: Tokenizer | None) -> str:
    """Initialise embeddings from a file of word vectors, for the words it contains; return a message on how many.

    This is not part of `build`, because a loaded run has its own weights and does not need the file.
    """
    if not isinstance(tokenizer, WordTokenizer):
        raise RecipeError("word vectors are for whole words", where="model.vectors", hint="use tokenizer.kind=word")
    found = word_vectors(file, tokenizer.ids, embedding.embedding_dim)
    with torch.no_grad():
        rows = torch.from_numpy(found.vectors).to(embedding.weight)
        embedding.weight[torch.from_numpy(found.ids).to(embedding.weight.device)] = rows
    known = len(tokenizer.ids)
    return f"{file} has {found.lines:,} vectors: {len(found.ids):,} of {known:,} words start from one"


def _with_steps(recipe: Recipe, steps: int, evaluate_every: int | None = None) -> Recipe:
    """Return the recipe with a number of steps; it keeps the budget that they were computed from."""
    found = {"steps": steps, "evaluate_every": evaluate_every}
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=found)})
