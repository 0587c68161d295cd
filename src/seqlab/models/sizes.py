"""What a model has to know of its data before it can be built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VOCABULARY = ("vocab_size",)
"""What a model needs that does not say otherwise."""


def needs(model: Any) -> tuple[str, ...]:
    """The sizes without which a class of models cannot be built: its `needs`."""
    return tuple(getattr(model, "needs", VOCABULARY))


def sizes_for(model: Any, given: Mapping[str, int]) -> dict[str, int]:
    """Those of the sizes that a class of models needs, or takes where there are some: its `needs` and `takes`."""
    wanted = (*needs(model), *getattr(model, "takes", ()))
    return {name: given[name] for name in wanted if name in given}
