"""The model of another run, by the name of its folder."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import Field, create_model

from seqlab.errors import RecipeError
from seqlab.recipe import PartSettings

_From = create_model("_From", __base__=PartSettings, **{"from": (str | None, Field(default=None))})  # type: ignore[call-overload]


class OfRun:
    """`model: {kind: run, from: RUN}` in a recipe: a model of the same settings as that run's, with its weights.

    Before anything is built, `transfer.borrowed` puts the settings themselves in its place.
    """

    needs = ()

    class Settings(_From):
        """Without `from`, it is the run that `init.from` names."""

        not_inherited: ClassVar[frozenset[str]] = frozenset({"from"})

        @property
        def run(self) -> str | None:
            return cast(str | None, getattr(self, "from"))

    def __init__(self, settings: Settings) -> None:
        hint = "it can be the model of a recipe, or one that an objective owns; mix runs with `seqlab mix`"
        raise RecipeError("the model of a run cannot be a part of another model", where="model", hint=hint)
