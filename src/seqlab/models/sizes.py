"""The sizes of the data that a model must know before it can be built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VOCABULARY = ("vocab_size",)
"""What models need by default."""


def needs(model: Any) -> tuple[str, ...]:
    """Return the names of the sizes that a model class requires: its `needs`."""
    return tuple(getattr(model, "needs", VOCABULARY))


def sizes_for(model: Any, given: Mapping[str, int]) -> dict[str, int]:
    """Select the sizes that a model class requires or accepts: its `needs` and `takes`."""
    wanted = (*needs(model), *getattr(model, "takes", ()))
    return {name: given[name] for name in wanted if name in given}
