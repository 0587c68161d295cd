"""A recipe as plain data, before checking: it records the line or override that each key came from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Self

import yaml

from seqlab import registry
from seqlab.errors import RecipeError, nearest


class RecipeTree:
    """Sections and keys with their origins: `places` maps each path, such as `training.steps`, to a description."""

    def __init__(self, data: Mapping[str, Any], file: str = "recipe", places: Mapping[str, str] | None = None) -> None:
        self.data: dict[str, Any] = _copy(data)
        self.file, self.places = file, dict(places or {})
        self.overridden: set[str] = set()
        """The keys that were set after the recipe was read."""

    @classmethod
    def load(cls, recipe: str | os.PathLike[str], what: str = "recipe") -> Self:
        """Load a shipped recipe (or study) by name, a YAML file, or the one in a run folder."""
        name, names = os.fspath(recipe), shipped(what)
        if name in names:
            return cls.parse(shipped_text(name, what), name, what)
        path = Path(name)
        try:
            if (path / f"{what}.yaml").is_file():
                path = path / f"{what}.yaml"
            if not path.is_file():
                raise RecipeError(f"no {what} '{name}'", hint=f"give a YAML file or a name; {nearest(name, names)}")
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            hint = f"give a {what} in YAML"
            raise RecipeError(f"not UTF-8 text (byte {error.start})", where=str(path), hint=hint) from None
        except OSError as error:
            raise RecipeError(f"cannot be read ({error.strerror})", where=name[:80], hint="check the path") from None
        return cls.parse(text, str(path), what)

    @classmethod
    def parse(cls, text: str, file: str, what: str = "recipe") -> Self:
        """Parse YAML, or raise an error that names the line."""
        try:
            data = yaml.load(text, Loader=_Loader)
            node = yaml.compose(text, Loader=_Loader)
        except yaml.YAMLError as error:
            raise _broken(error, text, file) from None
        except (ValueError, RecursionError) as error:  # a date with 13 months, 5,000 brackets
            raise RecipeError(f"invalid YAML ({error})", where=file, hint="put text in quotes") from None
        if not isinstance(data, dict) or node is None:
            hint = "see `seqlab recipes lm/gpt`" if what == "recipe" else "see docs/studies.md"
            raise RecipeError(f"a {what} must be a mapping of sections", where=file, hint=hint)
        return cls(data, file, {path: f"{file}, line {line}" for path, line in _lines(node, file).items()})

    def override(self, text: str) -> None:
        """Apply `key.sub=value`."""
        self.set(*parsed(text), place=f"command line, {text[:80]}")

    def set(self, key: str, value: Any, place: str | None = None) -> None:
        """Set the value at a path; a section that changes its kind keeps the keys it shares with the new kind."""
        *sections, last = key.split(".")
        node = self.data
        for section in sections:
            below = {} if node.get(section) is None else node[section]
            if isinstance(below, str):  # `optimizer: adamw` is short for `optimizer: {kind: adamw}`
                below = {"kind": below}
            if not isinstance(below, dict):
                raise RecipeError(f"'{section}' in '{key}' has no keys of its own", where=place)
            node[section] = below
            node = below
        if last == "kind" and sections and sections[-1] in registry.FAMILIES and node.get("kind") != value:
            settings = settings_of(sections[-1], str(value), place)
            inside = ".".join(sections)
            dropped = {name for name in settings.not_inherited if f"{inside}.{name}" not in self.overridden}
            for name in [name for name in node if name not in settings.model_fields.keys() - dropped]:
                del node[name]
        node[last] = value
        if sections == ["training"] and last in ("steps", "budget"):  # the last one set wins
            node.pop("budget" if last == "steps" else "steps", None)
        self.overridden = {path for path in self.overridden if not path.startswith(f"{key}.")} | {key}
        if place is not None:
            self._remember(key, place)

    def place(self, path: str) -> str:
        """Return where a key came from; failing that, its section or the file."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path.rpartition(".")[0]
        return self.file

    def last_place(self, path: str) -> str:
        """Return where the last override inside a section came from, or the section itself."""
        inside = [place for key, place in self.places.items() if key.startswith(f"{path}.")]
        overrides = [place for place in inside if not place.startswith(self.file)]
        return overrides[-1] if overrides else self.place(path)

    def _remember(self, key: str, place: str) -> None:
        """Record an override: forget the places at and below its key, and add sections it created."""
        self.places = {path: old for path, old in self.places.items() if path != key and not path.startswith(f"{key}.")}
        sections = key.split(".")
        for depth in range(1, len(sections)):
            self.places.setdefault(".".join(sections[:depth]), place)
        self.places[key] = place


def parsed(override: str) -> tuple[str, Any]:
    """Take `key.sub=value` apart. The value is YAML, or a plain string if it does not parse."""
    key, equals, written = override.partition("=")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"'{override}' is not an override", hint="write key.sub=value, such as training.steps=500")
    try:
        return key, yaml.load(written, Loader=_Loader) if written else ""
    except (yaml.YAMLError, ValueError, RecursionError):
        return key, written


def settings_of(family: str, kind: str, where: str | None) -> Any:
    """Return the `Settings` of a registered class."""
    cls = registry.find(family, kind, where)
    if not hasattr(cls, "Settings"):
        hint = "add one: class Settings(PartSettings)"
        raise RecipeError(f"the {family} '{kind}' has no Settings class", where=where, hint=hint)
    return cls.Settings


SHELVES = {"recipe": "recipes", "study": "studies"}
"""Package folders of shipped recipes and studies."""


def shipped(what: str = "recipe") -> list[str]:
    """Return the names of the recipes (or studies) shipped with the package."""

    def names(folder: Traversable, prefix: str) -> Iterator[str]:
        for one in folder.iterdir():
            if one.is_dir():
                yield from names(one, f"{prefix}{one.name}/")
            elif one.name.endswith(".yaml"):
                yield prefix + one.name.removesuffix(".yaml")

    return sorted(names(resources.files("seqlab") / SHELVES[what], ""))


def shipped_text(name: str, what: str = "recipe") -> str:
    return (resources.files("seqlab") / SHELVES[what] / f"{name}.yaml").read_text(encoding="utf-8")


def described(what: str = "recipe") -> dict[str, str]:
    """Return the `about` line of each shipped recipe (or study), by name."""
    return {name: yaml.safe_load(shipped_text(name, what))["about"] for name in shipped(what)}


def to_yaml(data: Mapping[str, Any]) -> str:
    """Return plain data as YAML that `RecipeTree.parse` reads back, with keys in order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Quotes and escapes strings with line ends other than \\n; unquoted, those would be read back as spaces."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if any(character in "\x85\u2028\u2029\ufeff" for character in data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_str)


class _Loader(yaml.SafeLoader):
    """Loads plain data only: no tags that create objects, and no aliases, which can recurse or grow without limit."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias (*name): write out its content instead", mark)
        return super().compose_node(parent, index)


def _broken(error: yaml.YAMLError, text: str, file: str) -> RecipeError:
    mark, position = getattr(error, "problem_mark", None), getattr(error, "position", None)
    line = mark.line if mark is not None else text.count("\n", 0, position)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
    tag = isinstance(error, yaml.constructor.ConstructorError) and "tag" in problem
    hint = "a recipe is plain data: remove the tag" if tag else "check indents, quotes and colons"
    return RecipeError(f"invalid YAML ({problem})", where=f"{file}, line {line + 1}", hint=hint)


def _lines(root: yaml.Node, file: str) -> dict[str, int]:
    """Return the line of every key; a duplicate key is an error."""
    lines: dict[str, int] = {}

    def walk(node: yaml.Node, prefix: str) -> None:
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            path, line = f"{prefix}{key.value}", key.start_mark.line + 1
            if path in lines:
                raise RecipeError(f"'{path}' appears twice", where=f"{file}, line {line}", hint="keep one of them")
            lines[path] = line
            walk(value, f"{path}.")

    walk(root, "")
    return lines


def _copy(tree: Any) -> Any:
    return {key: _copy(value) for key, value in tree.items()} if isinstance(tree, Mapping) else tree
