"""The weights of one run as the first weights of another: what is loaded, what begins anew, and what stays frozen."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor

from seqlab.errors import RecipeError, nearest
from seqlab.objectives.objective import Objective
from seqlab.recipe import InitSettings, Recipe
from seqlab.run import load_tokenizer_of, run_recipe
from seqlab.tokenizers import Tokenizer
from seqlab.training.checkpoint import Checkpoints

WHERE = "init.load"


@dataclass(frozen=True)
class Loaded:
    """What came of it: the names of weights."""

    found: list[str]
    new: list[str]
    left_over: list[str]

    def __str__(self) -> str:
        anew = f"; new: {_listed(self.new)}" if self.new else ""
        rest = f"; left over: {_listed(self.left_over)}" if self.left_over else ""
        return f"{len(self.found):,} tensors are loaded{anew}{rest}"


def tokenizer_of(init: InitSettings, recipe: Recipe) -> tuple[Recipe, Tokenizer | None]:
    """What a run that begins with the weights of another one reads with: the other's tokenizer."""
    folder = Path(init.run)
    other = run_recipe(folder)
    return recipe.model_copy(update={"tokenizer": other.tokenizer}), load_tokenizer_of(folder, other)


def begin(objective: Objective, init: InitSettings) -> Loaded:
    """Fill an objective with the weights of a run, as far as it is asked for."""
    folder = Path(init.run)
    run_recipe(folder)
    snapshot = Checkpoints(folder).best()
    if snapshot is None:
        raise RecipeError("has no whole checkpoint", where=f"init.from={init.run}", hint="choose another run")
    own, theirs = objective.state_dict(), snapshot.model
    moved = _moved(theirs, init)
    _check(own, theirs, moved, init)
    with torch.no_grad():
        objective.load_state_dict({**own, **{new: theirs[old] for new, old in moved.items()}})
    return Loaded(sorted(moved), sorted(own.keys() - moved.keys()), sorted(theirs.keys() - set(moved.values())))


def freeze(objective: Objective, init: InitSettings) -> int:
    """Weights that are not trained; how many there are."""
    frozen = 0
    for pattern in init.freeze:
        chosen = [weight for name, weight in objective.named_parameters() if _matches(name, pattern)]
        if not chosen:
            names = [name for name, _ in objective.named_parameters()]
            raise RecipeError(f"'{pattern}' is no weight", where="init.freeze", hint=nearest(pattern, names))
        for weight in chosen:
            weight.requires_grad_(False)
            frozen += weight.numel()
    return frozen


def _moved(theirs: dict[str, Tensor], init: InitSettings) -> dict[str, str]:
    """Our name of each weight that is loaded, and theirs."""
    if isinstance(init.load, dict):
        return {
            f"{ours}{name.removeprefix(other)}": name
            for other, ours in init.load.items()
            for name in theirs
            if name == other or name.startswith(f"{other}.")
        }
    pattern = "*" if init.load == "all" else init.load
    return {name: name for name in theirs if _matches(name, pattern)}


def _check(own: dict[str, Tensor], theirs: dict[str, Tensor], moved: dict[str, str], init: InitSettings) -> None:
    if not moved:
        raise RecipeError(f"{init.run} has no weights that '{init.load}' names", where=WHERE, hint="try init.load=all")
    for new, old in moved.items():
        if new not in own:
            hint = "build the same body, or say what is loaded into what: {body: body.encoder}"
            raise RecipeError(f"the model has no '{new}', which {init.run} has", where=WHERE, hint=hint)
        if own[new].shape != theirs[old].shape:
            what = f"'{new}' is {tuple(own[new].shape)} in the model, and {tuple(theirs[old].shape)} in {init.run}"
            raise RecipeError(what, where=WHERE, hint="build it of the same size, or load less")
    missing = sorted(own.keys() - moved.keys()) if init.load == "all" else []
    if missing:
        hint = "load the body alone: init.load=body"
        raise RecipeError(f"{init.run} has no '{missing[0]}', which the model has", where=WHERE, hint=hint)


def _matches(name: str, pattern: str) -> bool:
    """A name, all that stands below it, or a pattern with * and ?."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
