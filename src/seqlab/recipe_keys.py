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
"""Sections that are the same in every recipe; the others have the keys of what their `kind` names."""
WORDS = {int: "integer", float: "number", bool: "true or false", str: "text", type(None): "null", Any: "anything"}
REQUIRED = "required"
MOST_KINDS = 12
"""More are not listed where one of them is asked for."""
GLOSSARY = {
    "activation": "The nonlinearity.",
    "attention": "How the decoder looks at the source; null for a decoder that only has its last state.",
    "betas": "How much of the running means of gradients and of their squares stays at each step.",
    "bias": "Whether logits have a bias for each token.",
    "both_ways": "Whether it reads from both ends.",
    "cell": "The cell of the recurrent layers.",
    "depth": "Layers.",
    "dropout": "The probability with which a number is set to zero in training.",
    "dropout_mask": "Whether each position draws its own mask, or one mask serves a whole sequence.",
    "epsilon": "Added to the denominator, for numerical stability.",
    "from": "A run folder.",
    "heads": "Attention heads.",
    "lowercase": "Whether letters become lower-case.",
    "momentum": "How much of the step before is kept.",
    "norm": "Layer norm, or RMS norm.",
    "output": "The output layer: from states to a distribution over tokens.",
    "position": "How the model knows where a token stands.",
    "smoothing": "How much of the running mean of squared gradients stays at each step.",
    "vocab_size": "The most tokens in the vocabulary.",
    "width": "The size of a state vector.",
}
"""What keys mean wherever their class does not say it better: one word for one idea."""


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
    """The keys of a section, and of the sections inside it that are the same whatever `kind` is chosen."""
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
    """All keys that can be set in a recipe as it stands, each with the value that it has there."""
    return [(key, value) for key, value in _chosen(recipe, "") if key.name not in ("name", "about", "environment")]


def _chosen(settings: Settings, prefix: str) -> Iterator[tuple[RecipeKey, Any]]:
    """The keys of settings and of all that they hold."""
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
    return " | ".join(names) if len(names) <= MOST_KINDS else f"a kind of {family}"


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
    """The settings class that a field has, or may have."""
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, Settings) and one is not PartSettings:
            return one
    return None


@cache
def _meanings(settings: type[Settings]) -> dict[str, str]:
    """What the source says of each field: the text that stands below it.

    By hand, because pydantic's `use_attribute_docstrings` reads the sources of all settings whenever they are imported.
    """
    found: dict[str, str] = {}
    for cls in reversed(settings.__mro__):
        if not (isinstance(cls, type) and issubclass(cls, Settings)) or cls.__module__.startswith("pydantic"):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        except (OSError, TypeError, SyntaxError):  # made without a source
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
    "model": "The body that is trained.",
    "decoder": "What writes the target, in `model.kind=translator`: the keys of `model.decoder`.",
    "cell": "Of recurrent models: the keys of `model.cell`.",
    "attention": "Of recurrent translators: the keys of `model.attention`.",
    "position": "Of Transformers: the keys of `model.position`.",
    "characters": "Of taggers: the keys of `model.characters`.",
    "output": "From states to tokens: the keys of `model.output`.",
    "objective": "What is minimised.",
    "optimizer": "The keys of `training.optimizer`.",
    "schedule": "How the learning rate changes: the keys of `training.schedule`.",
}


def page() -> str:
    """All keys, as Markdown."""
    lines = [
        "# Recipe keys",
        "",
        "Every key that a recipe can have. `seqlab recipes NAME --keys` lists those of one recipe with their values.",
        "Any of them can be set on the command line: `seqlab train lm/gpt model.width=256`. A section with a `kind`",
        "has the keys of that kind. This page is written by `python -m seqlab.recipe_keys`.",
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
    """The keys of one of the sections that every recipe has, without importing a model."""
    return keys_of(_settings_of(section), f"{section}.")


def _settings_of(section: str) -> type[Settings]:
    found = _section(Recipe.model_fields[section].annotation)
    assert found is not None
    return found


if __name__ == "__main__":
    print(page(), end="")
