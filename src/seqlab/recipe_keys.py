"""Every key of a recipe with its type, default, range and meaning, read from the settings classes.

python -m seqlab.recipe_keys > docs/keys.md     writes the page of all keys
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seqlab import registry
from seqlab.recipe import PartSettings, Recipe, Settings, family_of

SECTIONS = ("data", "training", "decoding", "init")
"""Sections shared by all recipes; the keys of the others depend on their `kind`."""
WORDS = {int: "integer", float: "number", bool: "true or false", str: "text", type(None): "null", Any: "anything"}
REQUIRED = "required"
MOST_KINDS = 12
"""The most kinds to list as the type of a key."""
KIND_OF = "a kind of "
"""The type of a key with more kinds than that: `a kind of cell`."""
GLOSSARY = {
    "activation": "The nonlinearity.",
    "attention": "How the decoder attends to the source; if null, it receives only the encoder's last state.",
    "betas": "Decay rates of the running means of the gradients and of their squares.",
    "bias": "Whether to add a bias per token to the logits.",
    "both_ways": "Whether to read in both directions.",
    "cell": "The cell of the recurrent layers.",
    "depth": "Number of layers.",
    "dropout": "Dropout probability during training.",
    "dropout_mask": "Whether each position draws its own dropout mask, or a whole sequence shares one.",
    "epsilon": "Added to the denominator, for numerical stability.",
    "from": "A run folder.",
    "heads": "Number of attention heads.",
    "lowercase": "Whether to lower-case the text.",
    "momentum": "The fraction of the previous step that is kept.",
    "norm": "The kind of norm: layer norm or RMS norm.",
    "output": "The output layer, which maps states to a distribution over tokens.",
    "position": "How the model encodes token positions.",
    "smoothing": "Decay rate of the running mean of squared gradients.",
    "vocab_size": "Maximum size of the vocabulary.",
    "width": "Width of the state vectors.",
}
"""Default meanings of keys whose class does not document them."""


@dataclass(frozen=True)
class RecipeKey:
    name: str
    type: str
    range: str
    default: str
    about: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


def keys_of(settings: type[Settings], prefix: str = "") -> list[RecipeKey]:
    """Return the keys of a section, including nested sections that do not depend on a `kind`."""
    found = []
    for name, field in settings.model_fields.items():
        if name == "kind":
            continue
        inside = _section(field.annotation)
        if inside is None or family_of(field):
            found.append(_key(f"{prefix}{name}", field, _meanings(settings).get(name, "")))
        else:
            found += keys_of(inside, f"{prefix}{name}.")
    return found


def keys_in(recipe: Recipe) -> list[tuple[RecipeKey, Any]]:
    """Return all keys that can be set in a recipe, each with its current value."""
    return [(key, value) for key, value in _chosen(recipe, "") if key.name not in ("name", "about", "environment")]


def _chosen(settings: Settings, prefix: str) -> Iterator[tuple[RecipeKey, Any]]:
    """Yield the keys of settings, nested ones included."""
    for name, field in type(settings).model_fields.items():
        value, path = getattr(settings, name), f"{prefix}{name}"
        if name == "kind":
            continue
        if isinstance(value, PartSettings):
            yield replace(_key(path, field, _meanings(type(settings)).get(name, "")), name=f"{path}.kind"), value.kind
        if isinstance(value, Settings):
            yield from _chosen(value, f"{path}.")
        else:
            yield _key(path, field, _meanings(type(settings)).get(name, "")), value


def _key(name: str, field: FieldInfo, about: str) -> RecipeKey:
    family = family_of(field)
    kinds = _kinds(family) if family else _type(field.annotation)
    optional = " | null" if family and type(None) in get_args(field.annotation) else ""
    about = about or GLOSSARY.get(name.split(".")[-1], "")
    return RecipeKey(name, kinds + optional, _range(field.metadata), _default(field), " ".join(about.split()))


def _kinds(family: str) -> str:
    names = registry.names(family)
    return " | ".join(names) if len(names) <= MOST_KINDS else f"{KIND_OF}{family}"


def choices(key: RecipeKey) -> list[str]:
    """Return the values that can be listed for a key, among them every kind of its family."""
    found = []
    for one in key.type.split(" | "):
        if one.startswith(KIND_OF):
            found += registry.names(one.removeprefix(KIND_OF))
        elif one == WORDS[bool]:
            found += ["true", "false"]
        elif one == "null" or not (one in WORDS.values() or " " in one):
            found.append(one)
    return found


def takes_text(key: RecipeKey) -> bool:
    return any(one in ("text", "list of text") for one in key.type.split(" | "))


def _type(annotation: Any) -> str:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        said = [mark for mark in inside[1:] if isinstance(mark, str)]
        return said[0] if said else _type(inside[0])
    if origin is Literal:
        return " | ".join(str(value) for value in inside)
    if origin in (Union, UnionType):
        return " | ".join(_type(one) for one in inside)
    if origin in (list, tuple, Sequence):
        return f"list of {_type(inside[0])}"
    if origin is dict:
        return f"{_type(inside[0])} → {_type(inside[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return "a section"
    return WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


SIGNS = {"gt": "> {}", "ge": "≥ {}", "lt": "< {}", "le": "≤ {}", "min_length": "at least {} long"}


def _range(marks: Sequence[Any]) -> str:
    bounds = [sign.format(value) for mark in marks for name, sign in SIGNS.items() if (value := _bound(mark, name))]
    return ", ".join(bounds)


def _bound(mark: Any, name: str) -> str | None:
    value = getattr(mark, name, None)
    return None if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        made = field.default_factory()  # type: ignore[call-arg]
        return "" if isinstance(made, Settings) else str(made)
    if field.default is PydanticUndefined:
        return REQUIRED
    value = field.default
    if isinstance(value, dict) and "kind" in value:
        return str(value["kind"])
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or "''"


def _section(annotation: Any) -> type[Settings] | None:
    """Return the settings class that a field holds or may hold, if any."""
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, Settings) and one is not PartSettings:
            return one
    return None


@cache
def _meanings(settings: type[Settings]) -> dict[str, str]:
    """Return the docstring below each field in the source.

    Read here rather than by pydantic's `use_attribute_docstrings`, which parses the sources of all settings on import.
    """
    found: dict[str, str] = {}
    for cls in reversed(settings.__mro__):
        if not (isinstance(cls, type) and issubclass(cls, Settings)) or cls.__module__.startswith("pydantic"):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        except (OSError, TypeError, SyntaxError):  # created without source code
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                value = text.value if isinstance(text, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[field.target.id] = inspect.cleandoc(value.value)
    return found


# ---------------------------------------------------------------------- the page

ABOUT = {
    "task": "What the model is for.",
    "tokenizer": "How text becomes tokens.",
    "model": "The body to train.",
    "decoder": "Generates the target in `model.kind=translator`: the keys of `model.decoder`.",
    "cell": "The cell of recurrent models: the keys of `model.cell`.",
    "attention": "The attention of recurrent translators: the keys of `model.attention`.",
    "position": "The positions of Transformers: the keys of `model.position`.",
    "characters": "The character encoder of taggers: the keys of `model.characters`.",
    "output": "From states to tokens: the keys of `model.output`.",
    "objective": "What to minimise.",
    "optimizer": "The keys of `training.optimizer`.",
    "schedule": "How the learning rate changes: the keys of `training.schedule`.",
}


def page() -> str:
    """Return all keys as a Markdown page."""
    lines = [
        "# Recipe keys",
        "",
        "Every key that a recipe can have. `seqlab recipes NAME --keys` lists one recipe's keys with their values.",
        "Any of them can be set on the command line: `seqlab train lm/gpt model.width=256`. A section with a `kind`",
        "has the keys of that kind. This page is generated by `python -m seqlab.recipe_keys`.",
    ]
    for section in SECTIONS:
        cls = _settings_of(section)
        lines += ["", f"## {section}", "", " ".join((cls.__doc__ or "").split()), "", *_table(keys_of(cls))]
    for family, about in ABOUT.items():
        lines += ["", f"## {family}", "", about]
        for kind in registry.FAMILIES[family]:
            found = keys_of(registry.find(family, kind).Settings)
            rows = _table(found) if found else ["No keys of its own."]
            lines += ["", f"### {family}: {kind}", "", *rows]
    return "\n".join(lines) + "\n"


def _table(keys: list[RecipeKey]) -> list[str]:
    def cell(text: str) -> str:
        return text.replace("|", "\\|")

    rows = [[f"`{key.name}`", cell(key.type), cell(key.range), cell(key.default), cell(key.about)] for key in keys]
    head = [["key", "type", "range", "default", "meaning"], ["---"] * 5]
    return [f"| {' | '.join(row)} |" for row in [*head, *rows]]


def section_keys(section: str) -> list[RecipeKey]:
    """Return the keys of one of the shared sections, without importing a model."""
    return keys_of(_settings_of(section), f"{section}.")


def _settings_of(section: str) -> type[Settings]:
    found = _section(Recipe.model_fields[section].annotation)
    assert found is not None
    return found


if __name__ == "__main__":
    print(page(), end="")
