"""Start a run from the weights of another: what is loaded, what is new, and what stays frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqlab.build import is_named
from seqlab.errors import RecipeError, caution, nearest
from seqlab.models.of_run import OfRun
from seqlab.objectives.objective import Objective
from seqlab.recipe import InitSettings, PartSettings, Recipe, flatten, models_in
from seqlab.runs.run import load_tokenizer_of, run_recipe
from seqlab.tokenizers import Tokenizer
from seqlab.training.checkpoint import Checkpoints

WHERE = "init.load"


@dataclass(frozen=True)
class Loaded:
    """The names of the weights that were loaded, are new, or were left over."""

    found: list[str]
    new: list[str]
    left_over: list[str]

    def __str__(self) -> str:
        anew = f"; new: {_listed(self.new)}" if self.new else ""
        rest = f"; left over: {_listed(self.left_over)}" if self.left_over else ""
        return f"{len(self.found):,} tensors loaded{anew}{rest}"


def borrowed(recipe: Recipe) -> tuple[Recipe, dict[str, str]]:
    """Replace models that are taken from other runs by their settings.

    Also return the run of each, by the place of the model: `model`, or `objective.NAME`. The weights of a body are
    those that `init` names, or else the body of that run.
    """
    runs: dict[str, str] = {}
    if isinstance(recipe.model, OfRun.Settings):
        runs["model"] = run = recipe.model.run or (recipe.init.run if recipe.init is not None else "")
        init = recipe.init or InitSettings.model_validate({"from": _named(run, "model")})
        recipe = recipe.model_copy(update={"model": run_recipe(Path(run)).model, "init": init})
    for name, model in models_in(recipe.objective).items():
        if isinstance(model, OfRun.Settings):
            place = f"objective.{name}"
            runs[place] = run = _named(model.run, place)
            objective = recipe.objective.model_copy(update={name: run_recipe(Path(run)).model})
            recipe = recipe.model_copy(update={"objective": objective})
    return recipe, runs


def _named(run: str | None, where: str) -> str:
    if not run:
        raise RecipeError(
            "'from' does not name a run to take the model from", where=where, hint=f"set {where}.from=RUN"
        )
    return run


def sources(init: InitSettings | None, runs: Mapping[str, str]) -> list[InitSettings]:
    """List the runs whose weights a training starts from: that of `init`, and those of an objective's other models."""
    others = {place.removeprefix("objective."): run for place, run in runs.items() if place != "model"}
    loaded = [InitSettings.model_validate({"from": run, "load": {"body": name}}) for name, run in others.items()]
    return loaded if init is None else [init, *loaded]


def tokenizer_of(inits: Sequence[InitSettings], recipe: Recipe) -> tuple[Recipe, Tokenizer | None]:
    """Return the recipe with the tokenizer of the runs a training starts from, which all of them must share."""
    others = {init.run: run_recipe(Path(init.run)) for init in inits}
    found = {run: load_tokenizer_of(Path(run), other) for run, other in others.items()}
    first, *rest = found
    for run in rest:
        if getattr(found[run], "fingerprint", None) != getattr(found[first], "fingerprint", None):
            what, hint = f"{run} has a different tokenizer from {first}", "train both with the same tokenizer"
            raise RecipeError(what, where="init.from", hint=hint)
    return recipe.model_copy(update={"tokenizer": others[first].tokenizer}), found[first]


def begin(objective: Objective, init: InitSettings, model: PartSettings) -> Loaded:
    """Load those weights of a run into an objective that `init` selects.

    A `Caution` names settings of the model that differ, so that the same weights compute something else.
    """
    folder = Path(init.run)
    recipe = run_recipe(folder)
    snapshot = Checkpoints(folder).best()
    if snapshot is None:
        raise RecipeError("has no intact checkpoint", where=f"init.from={init.run}", hint="choose another run")
    own, theirs = objective.state_dict(), without_adapters(snapshot.model, recipe)
    moved = _moved(theirs, init)
    _check(own, theirs, moved, init)
    if changes := [one for pair in _parts(theirs, moved, init) for one in differences(model, recipe.model, *pair)]:
        caution(f"the weights of {init.run} compute something else here: {', '.join(changes)}")
    with torch.no_grad():
        objective.load_state_dict({**own, **{new: theirs[old] for new, old in moved.items()}})
    return Loaded(sorted(moved), sorted(own.keys() - moved.keys()), sorted(theirs.keys() - set(moved.values())))


IN_TRAINING = {
    *(
        "dropout",
        "attention_dropout",
        "embedding_dropout",
        "recurrent_dropout",
        "weight_drop",
        "dropout_mask",
        "zoneout",
    ),
    *("samples", "start", "angles", "vectors"),
}
"""Settings that act in training only, or before it."""
IN_WEIGHTS = {"depth", "encoder_depth", "context", "output"}
"""Settings whose change shows in the names or the shapes of the weights, or never matters to the same text."""


def _parts(theirs: dict[str, Tensor], moved: dict[str, str], init: InitSettings) -> list[tuple[str, str]]:
    """List the whole parts that are loaded: our name and theirs."""
    if isinstance(init.load, dict):
        return [(ours, other) for other, ours in init.load.items()]
    whole = all(name in moved for name in theirs if name.startswith("body."))
    return [("body", "body")] if whole else []


def differences(model: PartSettings, other: PartSettings, ours: str, theirs: str) -> list[str]:
    """List the settings that a part of two models has in common, but with other values: `heads is 8 instead of 4`.

    Where one of them is null, it is the default for a size, and sizes were compared with those of the weights.
    """
    mine, of_other = _settings(model, ours), _settings(other, theirs)
    place = "model" + ours.removeprefix("body")
    return [
        f"{place}.{name} is {mine[name]} instead of {of_other[name]}"
        for name in sorted(mine.keys() & of_other.keys())
        if mine[name] != of_other[name] and None not in (mine[name], of_other[name])
        if not {*name.split(".")} & (IN_TRAINING | IN_WEIGHTS)
    ]


def _settings(model: PartSettings, weights: str) -> dict[str, Any]:
    """Return the settings of a part of a model by the name of its weights: body.encoder → model.encoder"""
    first, *below = weights.split(".")
    part: object = model if first == "body" else None
    apart = True
    for name in below:
        inside = getattr(part, name, None)
        apart = isinstance(inside, PartSettings)
        if apart:
            part = inside
        elif name not in ("encoder", "decoder"):  # of a model that describes both at once
            return {}
    settings = flatten(part.model_dump()) if isinstance(part, PartSettings) else {}
    return settings if apart else {name: value for name, value in settings.items() if name != "kind"}


def without_adapters(weights: dict[str, Tensor], recipe: Recipe) -> dict[str, Tensor]:
    """Return the weights of a run, with any adapters merged into the linear layers."""
    adapters = None if recipe.init is None else recipe.init.adapters
    if adapters is None:
        return weights
    plain = {name: weight for name, weight in weights.items() if ".adapter." not in name}
    for name in weights:
        if name.endswith(".adapter.up"):
            owner = name.removesuffix(".adapter.up")
            change = adapters.scale * weights[name] @ weights[f"{owner}.adapter.down"]
            plain[f"{owner}.weight"] = plain[f"{owner}.weight"] + change
    return plain


def freeze(objective: Objective, init: InitSettings) -> int:
    """Freeze the weights that `init` names, and return their number."""
    for pattern in init.freeze:
        chosen = [weight for name, weight in objective.named_parameters() if is_named(name, pattern)]
        if not chosen:
            names = [name for name, _ in objective.named_parameters()]
            raise RecipeError(f"no weight matches '{pattern}'", where="init.freeze", hint=nearest(pattern, names))
        for weight in chosen:
            weight.requires_grad_(False)
    return sum(weight.numel() for weight in objective.parameters() if not weight.requires_grad)


def _moved(theirs: dict[str, Tensor], init: InitSettings) -> dict[str, str]:
    """Map our name of each loaded weight to theirs."""
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
        raise RecipeError(f"{init.run} has no weights that match '{init.load}'", where=WHERE, hint="try init.load=all")
    for new, old in moved.items():
        if new not in own:
            hint = "build the same body, or map names, such as init.load={body: body.encoder}"
            raise RecipeError(f"the model has no '{new}', which {init.run} has", where=WHERE, hint=hint)
        if own[new].shape != theirs[old].shape:
            shapes = f"{tuple(own[new].shape)} in the model, but {tuple(theirs[old].shape)} in {init.run}"
            what = f"'{new}' has the shape {shapes}"
            raise RecipeError(what, where=WHERE, hint="build the model with the same size, or load fewer weights")
    missing = [name for name in sorted(own.keys() - moved.keys()) if init.load == "all" and ".adapter." not in name]
    if missing:
        hint = "load only the body: init.load=body"
        raise RecipeError(f"{init.run} has no '{missing[0]}', which the model has", where=WHERE, hint=hint)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
