"""Names that earlier versions used, and what they are called now: in recipes, and for weights in checkpoints.

Runs and recipes of earlier versions are read through these tables; nothing else knows an old name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def recipe(data: Any) -> Any:
    """A recipe, or a part of one, as plain data under today's names."""
    if isinstance(data, list):
        return [recipe(one) for one in data]
    if not isinstance(data, Mapping):
        return data
    found = {key: recipe(value) for key, value in data.items()}
    for change in KEYS:
        change(found)
    return found


def _norm(section: dict[str, Any]) -> None:
    """`norm: before` and `norm: after` said where norms stand; now `norm` says what they are, `norm_first` where."""
    if section.get("norm") in ("before", "after"):
        section["norm_first"] = section.pop("norm") == "before"


KEYS: list[Callable[[dict[str, Any]], None]] = [_norm]
"""What is done to each section of a recipe."""
