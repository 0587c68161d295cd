"""Names that earlier versions used, and what they are called now: in recipes, and for weights in checkpoints.

Runs and recipes of earlier versions are read through these tables; nothing else knows an old name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


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


WEIGHTS: list[tuple[str, tuple[str, ...]]] = [
    (r"^(.*\.)?query_key_value\.(weight|bias)$", ("query", "key", "value")),
    (r"^(.*\.)?key_value\.(weight|bias)$", ("key", "value")),
]
"""Maps that were saved as one, rows one after the other, and what they are called apart."""


def weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a checkpoint under today's names."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for pattern, parts in WEIGHTS:
            if match := re.match(pattern, name):
                for part, rows in zip(parts, tensor.chunk(len(parts)), strict=True):
                    found[f"{match[1] or ''}{part}.{match[2]}"] = rows
                break
        else:
            found[name] = tensor
    return found
