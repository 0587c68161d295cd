"""The model of another run, named by its folder."""

from __future__ import annotations

from typing import ClassVar, cast

from pydantic import Field, create_model

from seqlab.errors import RecipeError
from seqlab.recipe import PartSettings

_From = create_model("_From", __base__=PartSettings, **{"from": (str | None, Field(default=None))})  # type: ignore[call-overload]


class OfRun:
    """`model: {kind: run, from: RUN}` in a recipe: a model with the settings and the weights of that run's model.

    Before anything is built, `transfer.borrowed` replaces it by the settings themselves.
    """

    needs = ()

    class Settings(_From):
        """Without `from`, the run that `init.from` names."""

        not_inherited: ClassVar[frozenset[str]] = frozenset({"from"})

        @property
        def run(self) -> str | None:
            return cast(str | None, getattr(self, "from"))

    def __init__(self, settings: Settings) -> None:
        hint = "use it as the model of a recipe or of an objective, or mix runs with `seqlab mix`"
        raise RecipeError("the model of a run cannot be part of another model", where="model", hint=hint)
