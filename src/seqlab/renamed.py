"""Names that earlier versions used, and what they are called now: in recipes, and for weights in checkpoints.

Runs and recipes of earlier versions are read through these tables; nothing else knows an old name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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


HIDDEN = {
    **dict.fromkeys(("mlp", "gpt", "transformer", "transformer-encoder", "series-transformer"), "hidden_width"),
    "series-dense": "hidden_widths",
}


def _widths_of_layers(section: dict[str, Any]) -> None:
    """`hidden` was the width of a hidden layer, or the widths of several."""
    name = HIDDEN.get(str(section.get("kind")))
    if name is not None and "hidden" in section:
        section[name] = section.pop("hidden")


def _kernel_size(section: dict[str, Any]) -> None:
    if "taps" in section and str(section.get("kind")).startswith("convolutional"):
        section["kernel_size"] = section.pop("taps")


def _names_of_weights(section: dict[str, Any]) -> None:
    """Patterns of `init`, which name weights and maps."""
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
"""What is done to each section of a recipe."""

PARTS = [
    (r"((?:blocks|layers)\.[\d*]+\.(?:norm_)?)look\b", r"\1cross_attend"),
    (r"(attention\.)tired\b", r"\1coverage"),
]
"""Parts of models that had other names."""


def weight(name: str) -> str:
    """Today's name of a weight, in a checkpoint or in an optimizer's state."""
    for pattern, new in PARTS:
        name = re.sub(pattern, new, name)
    return name


FUSED: list[tuple[str, tuple[str, ...]]] = [
    (r"query_key_value\.(weight|bias)$", ("query", "key", "value")),
    (r"key_value\.(weight|bias)$", ("key", "value")),
]
"""Maps that were saved as one, rows one after the other, and what they are called apart."""

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
"""What shows that a checkpoint has the names that a translator had before it was an encoder and a decoder; and what the
parts of its weights' names became."""
BOTH = {
    r"source_embedding\.": ("encoder.embedding.",),
    r"conditions\.": ("encoder.conditions.",),
    r"embedding\.": ("decoder.embedding.", "encoder.embedding."),  # unless the encoder has one of its own
    r"(norm|output)\.": (r"decoder.\1.",),
}


def weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a checkpoint under today's names."""
    found = dict(tensors)
    for marker, names in TRANSLATORS:
        for prefix in {
            match[1] for name in tensors if (match := re.match(rf"((?:body\.|parts\.\d+\.)*){marker}", name))
        }:
            found = _moved(found, prefix, {**names, **BOTH})
    return {weight(name): tensor for name, tensor in _apart(found).items()}


def counted(names: Sequence[str]) -> list[str]:
    """The names of an optimizer's weights in the order in which earlier versions counted them: of two embeddings of a
    translator, that of the target came first."""
    order = list(names)
    for name in names:
        source = name.replace("decoder.embedding.", "encoder.embedding.")
        if source != name and source in order:
            order.remove(name)
            order.insert(order.index(source), name)
    return order


def _moved(tensors: Mapping[str, Tensor], prefix: str, names: Mapping[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """Of the model whose names begin with a prefix; what has no other name keeps it."""
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
