"""A run folder in use: load it, generate from it, evaluate it, score with it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml

from seqlab import registry
from seqlab.build import build, choose_device, load_weights
from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.choose import Choose, Greedy, Sample
from seqlab.decoding.generate import generate
from seqlab.decoding.logits import Filter, Temperature, TopK, TopP
from seqlab.decoding.packing import packed
from seqlab.decoding.scoring import Score, score
from seqlab.decoding.suggest import Suggestion, suggest
from seqlab.errors import RunError, SeqlabError
from seqlab.models.language_model import LanguageModel
from seqlab.objectives.objective import Objective
from seqlab.recipe import Recipe
from seqlab.tasks.task import Task
from seqlab.tokenizers import Tokenizer, load_tokenizer
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.evaluation import evaluate
from seqlab.training.log import read_log


class Run:
    """A trained model with all that it needs: recipe, task (and its tokenizer), weights.

    >>> run = seqlab.load("runs/my-run")
    >>> run.generate("The ", tokens=50)
    """

    def __init__(self, folder: Path, recipe: Recipe, task: Task, objective: Objective, step: int) -> None:
        self.folder, self.recipe, self.task, self.step = folder, recipe, task, step
        self.device = choose_device(recipe.training.device)
        self.objective = objective.to(self.device).eval()

    @property
    def tokenizer(self) -> Tokenizer:
        return self.task.tokenizer

    @property
    def model(self) -> LanguageModel:
        """The body, as trained."""
        if not isinstance(self.objective.body, LanguageModel):
            raise RunError(f"model '{self.recipe.model.kind}' does not predict tokens", where=str(self.folder))
        return self.objective.body

    @cached_property
    def decoder(self) -> LanguageModel:
        """The body in the form that decodes: each text independent of its neighbours."""
        return packed(self.model)

    @property
    def parameters(self) -> int:
        """Numbers that were learnt: weights, or the entries of tables."""
        weights = sum(p.numel() for p in self.objective.parameters())
        return weights or sum(b.numel() for b in self.objective.buffers())

    @property
    def log(self) -> list[dict[str, Any]]:
        return read_log(self.folder / "log.jsonl")

    @property
    def timing(self) -> list[dict[str, Any]]:
        return read_log(self.folder / "timing.jsonl")

    def evaluate(self, data: str | Sequence[str] | None = None, batch_size: int | None = None) -> dict[str, Any]:
        """The task's metrics on the held-out data, or on other files, with the signature that makes them comparable."""
        settings = self.recipe.data
        if data is not None:
            files = data if isinstance(data, str) else list(data)
            settings = settings.model_copy(update={"valid": files})
        split = self.task.split(settings, "valid", training=False)
        totals = evaluate(self.objective, split, batch_size or self.recipe.training.batch_size, self.device)
        return {**self.task.metrics(totals, split), "step": self.step, "signature": self.task.signature()}

    def stream(
        self,
        prompts: Sequence[str],
        *,
        choose: Choose | None = None,
        tokens: int | None = None,
        seed: int = 0,
    ) -> Iterator[tuple[int, str]]:
        """(row, new text) as it is made; every piece is whole characters."""
        tokenizer = self.tokenizer
        texts = [tokenizer.stream() for _ in prompts]
        ids = [self._ids(prompt) for prompt in prompts]
        choose = choose or self.choose(seed)
        stop = frozenset({tokenizer.end_id})
        for step in generate(self.decoder, ids, choose, tokens or self.recipe.decoding.tokens, stop):
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
        """`samples` continuations of a prompt. Temperature 0 is greedy; what is None is as the recipe says."""
        choose = choose or self.choose(seed, temperature, top_k, top_p)
        texts = [""] * samples
        for row, piece in self.stream([prompt] * samples, choose=choose, tokens=tokens):
            texts[row] += piece
        return texts

    def beam(self, prompt: str, beam: Beam, tokens: int | None = None) -> list[tuple[str, float]]:
        """The most probable continuations that a beam finds, with their log-probabilities, best first."""
        stop = frozenset({self.tokenizer.end_id})
        limit = tokens or self.recipe.decoding.tokens
        found = beam_search(self.decoder, self._ids(prompt), beam, limit, stop)
        return [(self.tokenizer.decode(one.tokens), one.log_probability) for one in found]

    def score(self, texts: Sequence[str]) -> list[Score]:
        """The log-probability of each text, and its end where documents are lines."""
        end = [self.tokenizer.end_id] if self.recipe.data.documents == "line" else []
        sequences = [ids + end for ids in self.tokenizer.encode_batch(list(texts))]
        return score(self.decoder, sequences, getattr(self.recipe.task, "window", None))

    def suggest(self, prompt: str, count: int = 5) -> list[Suggestion]:
        """The most likely next words."""
        return suggest(self.decoder, self.tokenizer, self._ids(prompt.rstrip()), count)

    def _ids(self, prompt: str) -> list[int]:
        return [self.tokenizer.end_id, *self.tokenizer.encode(prompt).ids]

    def choose(
        self,
        seed: int = 0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Choose:
        """How tokens are chosen; what is None is as the recipe says."""
        own = self.recipe.decoding
        temperature = own.temperature if temperature is None else temperature
        top_k, top_p = own.top_k if top_k is None else top_k, own.top_p if top_p is None else top_p
        if temperature == 0:
            return Greedy()
        filters: list[Filter] = [Temperature(temperature)]
        filters += [] if top_k is None else [TopK(top_k)]
        filters += [] if top_p is None else [TopP(top_p)]
        return Sample(*filters, seed=seed)


def load(
    folder: str | os.PathLike[str],
    *,
    code: str | os.PathLike[str] | None = None,
    device: str | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Run:
    """The run in a folder, with the weights of its best checkpoint."""
    path = Path(folder)
    recipe = run_recipe(path)
    _needs_code(recipe, path, code)
    if device is not None:
        recipe = recipe.changed({"training.device": device})
    try:
        known = yaml.safe_load((path / "model.yaml").read_text(encoding="utf-8"))
        memory = known["memory"]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        raise RunError("model.yaml is missing or damaged", where=str(path)) from None
    task = registry.find("task", recipe.task.kind).restore(recipe, load_tokenizer(path / "tokenizer"), memory)
    objective = build(recipe, cast(Task, task))
    snapshot = Checkpoints(path, warn=warn).best()
    if snapshot is None:
        raise RunError("has no whole checkpoint", where=str(path), hint="go on training with --resume")
    load_weights(objective, snapshot.model, f"{path}, step {snapshot.facts['step']}")
    return Run(path, recipe, task, objective, int(snapshot.facts["step"]))


def run_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder; or an error if it is not one."""
    if not folder.is_dir():
        raise RunError(f"no run folder '{folder}'", hint="seqlab train makes one")
    if not (folder / "recipe.yaml").is_file():
        raise RunError("not a run folder (it has no recipe.yaml)", where=str(folder))
    return Recipe.load(folder / "recipe.yaml")


def use_code(path: str | os.PathLike[str]) -> dict[str, str]:
    """Import a person's own file, which registers its classes; what a run remembers of it."""
    file = Path(path)
    if not file.is_file():
        raise SeqlabError(f"no file '{file}'", where="--code")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest not in _used:
        spec = importlib.util.spec_from_file_location(f"seqlab_code_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        _used.add(digest)
    return {"code": file.name, "code_sha256": digest}


_used: set[str] = set()


def _needs_code(recipe: Recipe, folder: Path, code: str | os.PathLike[str] | None) -> None:
    """A run made with code of its own asks for that code by name; a run folder never brings code along."""
    expected = recipe.environment.get("code_sha256")
    given = use_code(code)["code_sha256"] if code is not None else None
    if expected is not None and given != expected and expected not in _used:
        raise RunError(
            f"was trained with code of its own ({recipe.environment.get('code')}, sha256 {expected[:12]}…)",
            where=str(folder),
            hint="give the same file with --code",
        )
