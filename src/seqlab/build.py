"""From names to things: the one place where a recipe becomes a task, a model and an objective."""

from __future__ import annotations

import inspect
import os

import torch

from seqlab import registry
from seqlab.errors import RecipeError, RunError, memory_for
from seqlab.objectives.objective import Objective
from seqlab.recipe import Recipe
from seqlab.tasks.task import Task


def build(recipe: Recipe, task: Task) -> Objective:
    """The objective with its model, weights as the seed has them, on the CPU."""
    with torch.random.fork_rng(devices=[]):  # the caller's own generator stays as it is
        torch.manual_seed(recipe.training.seed)
        return _build(recipe, task)


def _build(recipe: Recipe, task: Task) -> Objective:
    model = registry.find("model", recipe.model.kind)
    asked = {name: one for name, one in inspect.signature(model).parameters.items() if name != "settings"}
    needed = {name for name, one in asked.items() if one.default is one.empty}
    if not needed <= set(task.sizes):
        raise RecipeError(
            f"model '{recipe.model.kind}' needs {', '.join(sorted(needed))}, but task '{recipe.task.kind}' gives "
            f"{', '.join(sorted(task.sizes))}",
            hint="choose another model.kind",
        )
    with memory_for("the model", hint="make it smaller, for instance model.width"):
        body = model(recipe.model, **{name: size for name, size in task.sizes.items() if name in asked})
        task.check(body)
        build_objective = registry.find("objective", recipe.objective.kind)
        objective: Objective = build_objective(recipe.objective, body, task.head(body))
    return objective


def load_weights(objective: Objective, weights: dict[str, torch.Tensor], where: str) -> None:
    """Fill an objective with a checkpoint's weights, or say what does not fit."""
    own, tables = objective.state_dict(), dict(objective.named_buffers())
    for name, weight in weights.items():
        # tables that a model fills itself (n-grams) may have any length
        if name in own and own[name].shape != weight.shape and name not in tables:
            raise RunError(
                f"'{name}' is {tuple(weight.shape)} in the checkpoint but {tuple(own[name].shape)} here",
                where=where,
                hint="the tokenizer's vocabulary or model.yaml does not belong to this checkpoint",
            )
    try:
        objective.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).split("\n")[1].strip() if "\n" in str(error) else str(error)
        raise RunError(f"the checkpoint does not fit the model ({reason})", where=where) from None


def choose_device(name: str) -> torch.device:
    """`auto` is the first of CUDA, MPS and CPU that is there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, found in there.items() if found)
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"  # a device for each rank
    device = torch.device(name)
    if not there[device.type]:
        raise RecipeError(
            f"there is no '{name}' device on this machine", where="training.device", hint="use auto or cpu"
        )
    return device
