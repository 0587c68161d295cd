"""A Recipe says what to train. YAML in, YAML out, `key.sub=value` overrides, and errors that name the line.

Every section is a frozen pydantic model. A section that names a registered class (`model`, `tokenizer`, ...)
has a `kind`, and the rest of its keys are that class's own `Settings`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeGuard, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator

from seqlab import registry
from seqlab.errors import RecipeError, nearest


class Settings(BaseModel):
    """A section of a recipe: frozen, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PartSettings(Settings):
    """A section that names a registered class by its `kind`; the class says which other keys there are."""

    kind: str = ""


@dataclass(frozen=True)
class Kind:
    """Marks a field whose value is a `PartSettings` of a family of the registry."""

    family: str


Seconds = Annotated[str, "a time such as 45s, 3m or 1h"]


class DataSettings(Settings):
    """Where the sequences come from."""

    train: str | list[str]
    """A file, a folder, a pattern such as `books/*.txt`, several of them, or the name of a built-in data set."""
    valid: str | list[str] | None = None
    """Likewise; without it, a part of the training data is held out."""
    hold_out: float = Field(default=0.05, gt=0, lt=1)
    """The share of the training data that is held out where `valid` is not given."""
    format: Literal["auto", "txt", "jsonl", "csv", "tsv"] = "auto"
    documents: Literal["file", "paragraph", "line"] = "file"
    """What is one sequence of a plain text: the file, a paragraph (empty lines between), or a line."""
    columns: dict[str, str] = {}
    """Which column or field plays which role, such as `text: body`."""


class TrainingSettings(Settings):
    """How to train."""

    steps: int | None = Field(default=None, gt=0)
    budget: Seconds | None = None
    """A time; a short measurement turns it into `steps`."""
    batch_size: int = Field(default=32, gt=0)
    accumulate: int = Field(default=1, gt=0)
    """Pieces that each batch is cut into, to save memory; the result is that of the whole batch."""
    learning_rate: float = Field(default=1e-3, gt=0)
    optimizer: Annotated[SerializeAsAny[PartSettings], Kind("optimizer")] = Field(
        default="adamw", validate_default=False
    )  # type: ignore[assignment]
    schedule: Annotated[SerializeAsAny[PartSettings], Kind("schedule")] = Field(
        default="cosine", validate_default=False
    )  # type: ignore[assignment]
    clip_norm: float | None = Field(default=1.0, gt=0)
    clip_value: float | None = Field(default=None, gt=0)
    report_every: int | None = Field(default=None, gt=0)
    """Steps between lines of the log; a two-hundredth of the run by default."""
    evaluate_every: int | None = Field(default=None, gt=0)
    """Steps between evaluations; an eighth of the run by default."""
    sample_every: int | None = Field(default=None, gt=0)
    """Steps between samples; as often as evaluations by default."""
    checkpoint_every: int | None = Field(default=None, gt=0)
    """Steps between checkpoints; as often as evaluations by default."""
    keep: int = Field(default=2, gt=1)
    """Newest checkpoints that are kept beside the best one."""
    patience: int | None = Field(default=None, gt=0)
    """Evaluations without a new best after which training stops early."""
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = Field(default=0, ge=0)
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")

    @field_validator("budget")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None:
            seconds(value)
        return value


class DecodingSettings(Settings):
    """How to choose tokens where the command does not say."""

    tokens: int = Field(default=200, gt=0)
    temperature: float = Field(default=0.8, ge=0)
    top_k: int | None = Field(default=None, gt=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    prompt: str = ""
    """What the samples made during training begin with."""


class Recipe(Settings):
    """What to train, on what, and how."""

    name: str = ""
    about: str = ""
    task: Annotated[SerializeAsAny[PartSettings], Kind("task")]
    data: DataSettings
    tokenizer: Annotated[SerializeAsAny[PartSettings], Kind("tokenizer")]
    model: Annotated[SerializeAsAny[PartSettings], Kind("model")]
    objective: Annotated[SerializeAsAny[PartSettings], Kind("objective")]
    training: TrainingSettings = TrainingSettings()
    decoding: DecodingSettings = DecodingSettings()
    environment: dict[str, Any] = {}
    """Written into a run: the versions and the number of threads it ran on."""

    @classmethod
    def load(cls, recipe: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Self:
        """A shipped recipe by name (`lm/gpt`) or a YAML file, with `key.sub=value` overrides."""
        text, place = _read(recipe)
        tree, lines = _parse(text, place)
        where = {path: f"{place}, line {line}" for path, line in lines.items()}
        for override in overrides:
            _override(tree, where, override)
        return _build(cls, tree, _Places(place, where))

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """The same from plain data."""
        return _build(cls, _copy(tree), _Places("recipe", {}))

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def changed(self, overrides: Mapping[str, Any]) -> Self:
        """A copy with some keys (`training.steps`) set to other values."""
        tree = self.to_dict()
        for key, value in overrides.items():
            _set(tree, key, value)
        return _build(type(self), tree, _Places("recipe", {}))


def shipped() -> list[str]:
    """The names of the recipes that come with the package."""
    root = resources.files("seqlab") / "recipes"
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in root.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def shipped_text(name: str) -> str:
    return (resources.files("seqlab") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


def seconds(time: str) -> float:
    """'45s' → 45, '3m' → 180, '1h' → 3600, '90' → 90."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(time))
    if not match or float(match[1]) <= 0:
        raise ValueError("a time looks like 45s, 3m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} → {'a.b': 1}"""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Places:
    """Which line of which file, or which override, a key came from."""

    file: str
    lines: Mapping[str, str]

    def of(self, path: str) -> str:
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path.rpartition(".")[0]
        return self.file


def _read(recipe: str | os.PathLike[str]) -> tuple[str, str]:
    name = os.fspath(recipe)
    if name in shipped():
        return shipped_text(name), name
    path = Path(name)
    if path.is_dir() and (path / "recipe.yaml").is_file():
        path = path / "recipe.yaml"
    if not path.is_file():
        raise RecipeError(f"no recipe '{name}'", hint=f"give a YAML file or a name: {nearest(name, shipped())}")
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except UnicodeDecodeError as error:
        raise RecipeError(f"not UTF-8 text (byte {error.start})", where=str(path)) from None


def _parse(text: str, place: str) -> tuple[dict[str, Any], dict[str, int]]:
    try:
        tree = yaml.safe_load(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable"
        raise RecipeError(
            f"broken YAML ({problem})", where=f"{place}{line}", hint="check indents, quotes, colons"
        ) from None
    if not isinstance(tree, dict):
        raise RecipeError("a recipe is a mapping of sections", where=place, hint="see `seqlab recipes lm/gpt`")
    lines: dict[str, int] = {}

    def walk(node: yaml.Node, prefix: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                path = f"{prefix}{key.value}"
                if path in lines:
                    line = key.start_mark.line + 1
                    raise RecipeError(f"'{path}' stands twice", where=f"{place}, line {line}", hint="keep one of them")
                lines[path] = key.start_mark.line + 1
                walk(value, f"{path}.")

    if node is not None:
        walk(node, "")
    return tree, lines


def _override(tree: dict[str, Any], where: dict[str, str], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise RecipeError(f"'{override}' is not an override", hint="write key.sub=value, such as training.steps=500")
    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        value = text
    _set(tree, key, value, place=f"command line, {override}")
    where[key] = f"command line, {override}"


def _set(tree: dict[str, Any], key: str, value: Any, place: str | None = None) -> None:
    *sections, last = key.split(".")
    node = tree
    for section in sections:
        below = node.setdefault(section, {})
        if isinstance(below, str):  # `optimizer: adamw` is short for `optimizer: {kind: adamw}`
            below = node[section] = {"kind": below}
        if not isinstance(below, dict):
            raise RecipeError(f"'{section}' in '{key}' has no keys of its own", where=place)
        node = below
    if last == "kind" and sections and sections[-1] in registry.FAMILIES and node.get("kind") != value:
        # keys that were meant for another kind go, unless the new one has them too
        known = registry.find(sections[-1], str(value), place).Settings.model_fields
        for name in [name for name in node if name not in known]:
            del node[name]
    node[last] = value
    if sections == ["training"] and last in ("steps", "budget"):  # the one that was set last decides
        node.pop("budget" if last == "steps" else "steps", None)


def _copy(tree: Any) -> Any:
    return {key: _copy(value) for key, value in tree.items()} if isinstance(tree, Mapping) else tree


# ------------------------------------------------------------------- validating

S = TypeVar("S", bound=Settings)


def _build(cls: type[S], tree: Any, places: _Places, path: str = "") -> S:
    """Settings from plain data; sections that have a `kind` become the settings of that class."""
    if not isinstance(tree, Mapping):
        raise RecipeError(f"'{path.rstrip('.')}' should be a section with keys", where=places.of(path.rstrip(".")))
    tree = dict(tree)
    for name, field in cls.model_fields.items():
        family = next((mark.family for mark in field.metadata if isinstance(mark, Kind)), None)
        if family is not None:
            given = tree.get(name, field.default if isinstance(field.default, str) else None)
            if given is not None:
                tree[name] = _part(family, given, places, f"{path}{name}")
        elif _is_section(field.annotation) and isinstance(tree.get(name, {}), Mapping):
            tree[name] = _build(field.annotation, tree.get(name, {}), places, f"{path}{name}.")
    try:
        return cls.model_validate(tree)
    except ValidationError as error:
        raise _explained(cls, error, places, path) from None


def _is_section(annotation: Any) -> TypeGuard[type[Settings]]:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def _part(family: str, given: Any, places: _Places, path: str) -> PartSettings:
    section = {"kind": given} if isinstance(given, str) else given
    if not isinstance(section, Mapping) or not isinstance(section.get("kind"), str):
        raise RecipeError(
            f"'{path}' needs a kind",
            where=places.of(path),
            hint=f"one of {', '.join(registry.names(family))}",
        )
    part: type[PartSettings] = registry.find(family, section["kind"], places.of(f"{path}.kind")).Settings
    return _build(part, section, places, f"{path}.")


def _explained(cls: type[Settings], error: ValidationError, places: _Places, path: str) -> RecipeError:
    """The first fault in words: what, where, and what would be right."""
    fault = error.errors()[0]
    key = path + ".".join(str(part) for part in fault["loc"] if isinstance(part, str) and part in _keys(cls, fault))
    last = str(fault["loc"][-1]) if fault["loc"] else ""
    if fault["type"] == "extra_forbidden":
        key = path + ".".join(map(str, fault["loc"]))
        return RecipeError(f"unknown key '{key}'", where=places.of(key), hint=nearest(last, cls.model_fields))
    if fault["type"] == "missing":
        return RecipeError(f"'{path}{last}' is missing", where=places.of(path.rstrip(".")), hint="add it")
    message = fault["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return RecipeError(f"'{key}' is {fault['input']!r}: {message}", where=places.of(key))


def _keys(cls: type[Settings], fault: Any) -> set[str]:
    return set(cls.model_fields) | {str(part) for part in fault["loc"][1:2]} - {"str", "list[str]"}
