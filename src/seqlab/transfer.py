"""The weights of one run as the first weights of another: what is loaded, what begins anew, and what stays frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from seqlab.build import is_named
from seqlab.errors import RecipeError, nearest
from seqlab.models.of_run import OfRun
from seqlab.objectives.objective import Objective
from seqlab.recipe import InitSettings, PartSettings, Recipe, models_in
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


def borrowed(recipe: Recipe) -> Recipe:
    """A recipe whose models are its own: where one is that of another run, its settings, and its weights as first ones.

    The weights of a body are those that `init` names already, or the body of that run; those of any other model that an
    objective owns are the body of its run.
    """
    inits = list(recipe.init)
    body, objective = recipe.model, recipe.objective
    if isinstance(body, OfRun.Settings):
        run = _run_of(body, inits, "model")
        inits = inits or [InitSettings.model_validate({"from": run})]
        body = run_recipe(Path(run)).model
    for name, model in models_in(objective).items():
        if isinstance(model, OfRun.Settings):
            run = _run_of(model, [], f"objective.{name}")
            inits.append(InitSettings.model_validate({"from": run, "load": {"body": name}}))
            objective = objective.model_copy(update={name: run_recipe(Path(run)).model})
    return recipe.model_copy(update={"model": body, "objective": objective, "init": inits})


def _run_of(settings: PartSettings, inits: Sequence[InitSettings], where: str) -> str:
    run = cast(OfRun.Settings, settings).run or (inits[0].run if inits else None)
    if run is None:
        raise RecipeError("'from' is missing: the model of which run?", where=where, hint=f"set {where}.from=RUN")
    return run


def tokenizer_of(recipe: Recipe) -> tuple[Recipe, Tokenizer | None]:
    """What a training that begins with the weights of other runs reads with: the tokenizer of the first, which all of
    them must have."""
    others = {init.run: run_recipe(Path(init.run)) for init in recipe.init}
    found = {run: load_tokenizer_of(Path(run), other) for run, other in others.items()}
    first, *rest = found
    for run in rest:
        if getattr(found[run], "fingerprint", None) != getattr(found[first], "fingerprint", None):
            what, hint = f"{run} reads with another tokenizer than {first}", "train both with the same one"
            raise RecipeError(what, where="init.from", hint=hint)
    return recipe.model_copy(update={"tokenizer": others[first].tokenizer}), found[first]


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


def freeze(objective: Objective, inits: Sequence[InitSettings]) -> int:
    """Weights that are not trained; how many there are."""
    for pattern in [pattern for init in inits for pattern in init.freeze]:
        chosen = [weight for name, weight in objective.named_parameters() if is_named(name, pattern)]
        if not chosen:
            names = [name for name, _ in objective.named_parameters()]
            raise RecipeError(f"'{pattern}' is no weight", where="init.freeze", hint=nearest(pattern, names))
        for weight in chosen:
            weight.requires_grad_(False)
    return sum(weight.numel() for weight in objective.parameters() if not weight.requires_grad)


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
    return {name: name for name in theirs if is_named(name, pattern)}


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
    missing = [name for name in sorted(own.keys() - moved.keys()) if init.load == "all" and ".adapter." not in name]
    if missing:
        hint = "load the body alone: init.load=body"
        raise RecipeError(f"{init.run} has no '{missing[0]}', which the model has", where=WHERE, hint=hint)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
