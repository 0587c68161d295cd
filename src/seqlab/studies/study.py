"""Studies: a study answers a question with a table and a figure. The question is a YAML file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from seqlab import registry
from seqlab.errors import RecipeError
from seqlab.recipe import PartSettings, part_settings
from seqlab.recipe_tree import RecipeTree
from seqlab.training.trainer import Silence, Watcher

Watch = Callable[[str], AbstractContextManager[Watcher]]
"""Returns the watcher of the training with a given name."""


def unwatched(name: str) -> AbstractContextManager[Watcher]:
    return nullcontext(Silence())


@dataclass(frozen=True)
class Report:
    """The result of a study."""

    titles: list[str]
    rows: list[list[str]]
    data: dict[str, Any]
    """The table as plain data, with everything the table leaves out."""
    draw: Callable[[Path], None] = field(repr=False)
    notes: list[str] = field(default_factory=list)
    """Lines printed below the table."""


class StudySettings(PartSettings):
    about: str = ""


class Study(ABC):
    Settings: ClassVar[type[StudySettings]]

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @abstractmethod
    def run(self, out: Path, code: str | os.PathLike[str] | None = None, watch: Watch = unwatched) -> Report:
        """Run the study. Run folders are kept in `out` and reused the next time."""


def load(study: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Study:
    """Load a shipped study by name, or a YAML file, with `key.sub=value` overrides."""
    tree = RecipeTree.load(study, "study")
    for override in overrides:
        tree.override(f"always.{override[4:]}" if override.startswith("set.") else override)
    if not isinstance(tree.data.get("kind"), str):
        raise RecipeError("'kind' is missing", where=tree.file, hint=f"use one of {', '.join(registry.names('study'))}")
    settings = part_settings("study", tree)
    made: Study = registry.find("study", settings.kind)(settings)
    return made
