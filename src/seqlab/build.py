"""Turns the names in a recipe into a task, a model and an objective: the only place that does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import cast

import torch
from torch import nn

from seqlab import registry
from seqlab.errors import RecipeError, RunError, memory_for, nearest
from seqlab.models.sizes import needs, sizes_for
from seqlab.nn.adapters import add_adapters, linear_maps
from seqlab.objectives.objective import Objective
from seqlab.recipe import AdapterSettings, PartSettings, Recipe, models_in
from seqlab.tasks.task import Task
from seqlab.training.routing import route


def build(recipe: Recipe, task: Task) -> Objective:
    """Return the objective and its model on the CPU, with weights initialised from the seed."""
    with torch.random.fork_rng(devices=[]):  # leave the caller's random state unchanged
        torch.manual_seed(recipe.training.seed)
        objective = _build(recipe, task)
    recorded = recipe.environment.get("compiled_from")
    route(objective, recorded if isinstance(recorded, int) else None)
    return objective


def _build(recipe: Recipe, task: Task) -> Objective:
    with memory_for("the model", hint="make it smaller: reduce model.width, for example"):
        body = _model(recipe.model, task, recipe)
        task.check(body)
        if task.better not in ("higher", "lower"):
            hint = "write higher or lower"
            raise RecipeError(f"'better' is {task.better!r}", where=f"task '{recipe.task.kind}'", hint=hint)
        kind = registry.find("objective", recipe.objective.kind)
        try:
            head = task.head(body)
        except (AttributeError, TypeError):
            if isinstance(body, kind.body_type):
                raise
            head = None  # it is for other models, and so is the objective
        _check_fit(recipe, task, body, head)
        others = {name: _model(one, task, recipe) for name, one in models_in(recipe.objective).items()}
        objective: Objective = kind(recipe.objective, body, head, **others)
    if recipe.init is not None and recipe.init.adapters is not None:
        adapt(objective, recipe.init.adapters)
    return objective


def _check_fit(recipe: Recipe, task: Task, body: nn.Module, head: nn.Module | None) -> None:
    """Refuse an objective that is meant for other models or tasks, with the names of what fits in its place."""
    model, name = recipe.model.kind, recipe.objective.kind
    kind: type[Objective] = registry.find("objective", name)
    if _suits(kind, body, head):
        return
    declared = {one: registry.find("objective", one) for one in registry.names("objective")}
    fit = [one for one, cls in declared.items() if cls.body_type is not nn.Module and _suits(cls, body, head)]
    if fit:
        what = f"'{name}' is not an objective for task '{recipe.task.kind}' with model '{model}'"
        raise RecipeError(what, where="objective.kind", hint=f"use {' or '.join(fit)}")
    if isinstance(body, kind.body_type):
        wanted = cast(type[nn.Module], kind.head_type).__name__
        what = f"objective '{name}' needs a head of type {wanted}, and that of '{recipe.task.kind}' is {_kind_of(head)}"
        raise RecipeError(what, where="objective.kind", hint="choose another objective.kind or task.kind")
    others = [one for one in registry.names("model") if _is_buildable(one, kind.body_type, task)]
    what = f"objective '{name}' needs a model of type {kind.body_type.__name__}, and '{model}' is {_kind_of(body)}"
    raise RecipeError(what, where="model.kind", hint=f"use {', '.join(others)}" if others else "choose another")


def _suits(kind: type[Objective], body: nn.Module, head: nn.Module | None) -> bool:
    return isinstance(body, kind.body_type) and (kind.head_type is None or isinstance(head, kind.head_type))


def _is_buildable(name: str, wanted: type[nn.Module], task: Task) -> bool:
    kind = registry.find("model", name)
    fit = isinstance(kind, type) and issubclass(kind, wanted) and set(needs(kind)) <= set(task.sizes)
    return fit and not getattr(kind, "reads_sources", False)  # a task with sources has a check of its own


def _kind_of(part: nn.Module | None) -> str:
    return "none" if part is None else f"of type {type(part).__name__}"


def _model(settings: PartSettings, task: Task, recipe: Recipe) -> nn.Module:
    kind, given = registry.find("model", settings.kind), task.sizes
    if not isinstance(given, Mapping):
        what, hint = f"sizes are {type(given).__name__}", "return a dict of whole numbers: {'vocab_size': ...}"
        raise RecipeError(what, where=type(task).__name__, hint=hint)
    if not set(needs(kind)) <= set(given):
        what = (
            f"model '{settings.kind}' needs {', '.join(sorted(needs(kind)))}, but task '{recipe.task.kind}' provides "
        )
        hint = "choose another model.kind" + (" or add it to the task's sizes" if registry.is_own(type(task)) else "")
        raise RecipeError(what + (", ".join(sorted(given)) or "no sizes"), hint=hint)
    model: nn.Module = kind(settings, **sizes_for(kind, given))
    return model


def adapt(objective: Objective, settings: AdapterSettings) -> None:
    """Add trainable low-rank adapters to linear maps of the body, and freeze the rest of it."""
    there = list(linear_maps(objective.body, "body"))
    chosen: set[str] = set()
    for pattern in settings.maps:
        found = {name for name in there if is_named(name, pattern)}
        if not found:
            hint = nearest(pattern, there) if there else "choose a model with attention"
            raise RecipeError(f"the body has no linear map '{pattern}'", where="init.adapters.maps", hint=hint)
        chosen |= found
    objective.body.requires_grad_(False)
    add_adapters(objective.body, "body", chosen, settings.rank, settings.scale)


def is_named(name: str, pattern: str) -> bool:
    """Return True if a pattern equals a name, is a parent of it, or matches it with * and ?."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def load_weights(objective: Objective, weights: dict[str, torch.Tensor], where: str) -> None:
    """Load a checkpoint's weights into an objective, or raise an error that says what does not fit."""
    own, tables = objective.state_dict(), dict(objective.named_buffers())
    for name, weight in weights.items():
        # tables that the model fills itself (n-grams) may have any length
        if name in own and own[name].shape != weight.shape and name not in tables:
            raise RunError(
                f"'{name}' has the shape {tuple(weight.shape)} in the checkpoint but {tuple(own[name].shape)} here",
                where=where,
                hint="check that the tokenizer and model.yaml belong to this checkpoint",
            )
    try:
        objective.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).split("\n")[1].strip() if "\n" in str(error) else str(error)
        hint = "check that model.yaml belongs to this checkpoint"
        raise RunError(f"the checkpoint does not fit the model ({reason})", where=where, hint=hint) from None


def choose_device(name: str) -> torch.device:
    """Return the device of that name; `auto` picks the first available of CUDA, MPS and CPU."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, found in there.items() if found)
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"  # one device per rank
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if not there.get(kind) or (number and not (number.isdecimal() and int(number) < count)):
        raise RecipeError(f"this machine has no '{name}' device", where="training.device", hint="use auto or cpu")
    return torch.device(name)
