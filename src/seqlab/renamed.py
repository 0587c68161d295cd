"""Maps names from earlier versions, in recipes and checkpoints, to current ones.

Older runs and recipes are read through these tables; no other module knows an old name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def recipe(data: Any) -> Any:
    """Return a recipe, or part of one, as plain data with current names."""
    if isinstance(data, list):
        return [recipe(one) for one in data]
    if not isinstance(data, Mapping):
        return data
    found = {key: recipe(value) for key, value in data.items()}
    for change in KEYS:
        change(found)
    return found


def _norm(section: dict[str, Any]) -> None:
    """`norm: before` and `norm: after` gave the position of norms, which is now `norm_first`; `norm` is their kind."""
    if section.get("norm") in ("before", "after"):
        section["norm_first"] = section.pop("norm") == "before"


HIDDEN = {
    **dict.fromkeys(("mlp", "gpt", "transformer", "transformer-encoder", "series-transformer"), "hidden_width"),
    "series-dense": "hidden_widths",
}


def _widths_of_layers(section: dict[str, Any]) -> None:
    """`hidden` was the width of the hidden layer, or the widths of several."""
    name = HIDDEN.get(str(section.get("kind")))
    if name is not None and "hidden" in section:
        section[name] = section.pop("hidden")


def _kernel_size(section: dict[str, Any]) -> None:
    if "taps" in section and str(section.get("kind")).startswith("convolutional"):
        section["kernel_size"] = section.pop("taps")


def _names_of_weights(section: dict[str, Any]) -> None:
    """Patterns in `init` that name weights and maps."""
    for key in ("load", "freeze", "maps"):
        if key in section:
            section[key] = _each_text(section[key], weight)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_each_text(one, change) for one in value]
    if isinstance(value, Mapping):
        return {_each_text(key, change): _each_text(one, change) for key, one in value.items()}
    return value


KEYS: list[Callable[[dict[str, Any]], None]] = [_norm, _widths_of_layers, _kernel_size, _names_of_weights]
"""Changes applied to each section of a recipe."""

PARTS = [
    (r"((?:blocks|layers)\.[\d*]+\.(?:norm_)?)look\b", r"\1cross_attend"),
    (r"(attention\.)tired\b", r"\1coverage"),
]
"""Renamed parts of models."""


def weight(name: str) -> str:
    """Return the current name of a weight in a checkpoint or an optimizer state."""
    for pattern, new in PARTS:
        name = re.sub(pattern, new, name)
    return name


FUSED: list[tuple[str, tuple[str, ...]]] = [
    (r"query_key_value\.(weight|bias)$", ("query", "key", "value")),
    (r"key_value\.(weight|bias)$", ("key", "value")),
]
"""Maps that were saved as one, their rows concatenated, and the names of the separate maps."""

TRANSLATORS: list[tuple[str, dict[str, tuple[str, ...]]]] = [
    (  # the Transformer
        r"decoder\.0\.attend\.",
        {
            r"encoder\.(\d+\.)": (r"encoder.blocks.\1",),
            r"encoder_norm\.": ("encoder.norm.",),
            r"decoder\.(\d+\.)": (r"decoder.blocks.\1",),
        },
    ),
    (  # the convolutional translator
        r"decoder\.0\.convolve\.",
        {
            r"encoder\.(\d+\.)": (r"encoder.layers.\1",),
            r"encoder_norm\.": ("encoder.norm.",),
            r"decoder\.(\d+\.)": (r"decoder.layers.\1",),
        },
    ),
    (  # the recurrent translators
        r"lowest\.layers\.",
        {
            r"encoder\.(\d+\.)": (r"encoder.layers.\1",),
            r"(lowest|above|attention|mix)\.": (r"decoder.\1.",),
        },
    ),
]
"""Patterns that identify checkpoints from before translators were split in two, and the new names of their weights."""
BOTH = {
    r"source_embedding\.": ("encoder.embedding.",),
    r"conditions\.": ("encoder.conditions.",),
    r"embedding\.": ("decoder.embedding.", "encoder.embedding."),  # unless the encoder has its own
    r"(norm|output)\.": (r"decoder.\1.",),
}


def weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint under current names."""
    found = dict(tensors)
    for marker, names in TRANSLATORS:
        for prefix in {
            match[1] for name in tensors if (match := re.match(rf"((?:body\.|parts\.\d+\.)*){marker}", name))
        }:
            found = _moved(found, prefix, {**names, **BOTH})
    return {weight(name): tensor for name, tensor in _apart(found).items()}


def counted(names: Sequence[str]) -> list[str]:
    """Return an optimizer's weights in the order of earlier versions: of a translator's two embeddings, the target's
    first."""
    order = list(names)
    for name in names:
        source = name.replace("decoder.embedding.", "encoder.embedding.")
        if source != name and source in order:
            order.remove(name)
            order.insert(order.index(source), name)
    return order


def _moved(tensors: Mapping[str, Tensor], prefix: str, names: Mapping[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """Rename the weights of the model with a given prefix; names without a new name stay unchanged."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        own = name.removeprefix(prefix)
        pattern = next((one for one in names if name.startswith(prefix) and re.match(one, own)), None)
        for new in (r"\g<0>",) if pattern is None else names[pattern]:
            moved = name if pattern is None else prefix + re.sub(rf"^{pattern}", new, own)
            if moved not in found or pattern != r"embedding\.":
                found[moved] = tensor
    return found


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for pattern, parts in FUSED:
            if match := re.search(rf"(?:^|\.){pattern}", name):
                before = name[: match.start()] + ("." if match.start() else "")
                for part, rows in zip(parts, tensor.chunk(len(parts)), strict=True):
                    found[f"{before}{part}.{match[1]}"] = rows
                break
        else:
            found[name] = tensor
    return found
