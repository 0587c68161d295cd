"""Files aligned line by line, as translation corpora come: train.de and train.en.

They are named by their common stem, and their suffixes act as columns; each file may be gzipped (train.de.gz):

    data.train=multi30k/train data.columns={source: de, target: en}

If `data.columns` is empty, they are train.source and train.target.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from seqlab.data.formats.files import format_of, lines, pieces
from seqlab.data.records import Record
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

PAIR = ("source", "target")
"""The default roles of two aligned texts."""


@dataclass(frozen=True)
class Aligned:
    """Files that are read side by side."""

    stem: Path
    """Their common stem."""
    suffixes: Mapping[str, str]
    """By role."""
    files: Mapping[str, Path]
    """By role; only files that exist."""

    def __str__(self) -> str:
        return f"{self.stem}.{{{','.join(dict.fromkeys(self.suffixes.values()))}}}"

    @property
    def paths(self) -> list[Path]:
        return list(dict.fromkeys(self.files.values()))

    def file(self, role: str) -> Path:
        if role not in self.suffixes:
            hint = f"set data.columns.{role} to the suffix of its file"
            raise DataError(f"no file is given for '{role}'", where=str(self), hint=hint)
        if role not in self.files:
            hint = f"set data.columns.{role} to the suffix of an existing file"
            raise DataError(f"no file '{self.stem}.{self.suffixes[role]}' beside '{self.paths[0]}'", hint=hint)
        return self.files[role]


def find_aligned(name: str, data: DataSettings) -> list[Aligned]:
    """Return the aligned files with this stem, or several sets for a pattern; an empty list if none exist.

    An existing file or folder of exactly that name takes precedence, unless the format is given.
    """
    path = Path(name).expanduser()
    suffixes = {role: str(column) for role, column in data.columns.items()} or {role: role for role in PAIR}
    if data.format == "aligned" and glob.has_magic(name):
        first = next(iter(suffixes.values()))
        endings = (f".{first}", f".{first}.gz")
        matched = {file.removesuffix(end) for end in endings for file in glob.iglob(f"{path}{end}", recursive=True)}
        stems = [Path(stem) for stem in sorted(matched)]
    else:
        stems = [path] if data.format == "aligned" or not path.exists() else []
    return [found for stem in stems if (found := _beside(stem, suffixes)).files]


def _beside(stem: Path, suffixes: Mapping[str, str]) -> Aligned:
    files = {}
    for role, suffix in suffixes.items():
        ways = (Path(f"{stem}.{suffix}"), Path(f"{stem}.{suffix}.gz"))
        if found := next((way for way in ways if way.is_file()), None):
            files[role] = found
    return Aligned(stem, suffixes, files)


def similar_files(name: str) -> str | None:
    """Return a hint if a name is not a file but the stem of several plain-text files."""
    path = Path(name).expanduser()
    if not path.name or path.exists() or glob.has_magic(name):
        return None
    beside = [file for file in path.parent.glob(f"{path.name}.*") if format_of(file) == "txt"]
    found = sorted({file.name.removesuffix(".gz") for file in beside if ".txt" not in file.suffixes})
    if len(found) < 2:
        return None
    first, second = (one.removeprefix(f"{path.name}.") for one in found[:2])
    listed = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    return f"found {listed}; to read two side by side, set data.columns={{source: {first}, target: {second}}}"


def aligned_records(source: Aligned, roles: Sequence[str]) -> Iterator[Record]:
    """Yield one record per line, which may be empty; files of different lengths are an error."""
    paths = [source.file(role) for role in roles]
    texts = [(line.removesuffix("\r") for _, line in lines(pieces(path), str(path))) for path in paths]
    for number, side_by_side in enumerate(zip_longest(*texts), 1):
        fields = {role: text for role, text in zip(roles, side_by_side, strict=True) if text is not None}
        if len(fields) < len(paths):
            raise _uneven(paths)
        yield Record(fields, str(source), number)


def _uneven(paths: Sequence[Path]) -> DataError:
    counts = {path: sum(1 for _ in lines(pieces(path), str(path))) for path in paths}
    first = paths[0]
    other = next(path for path in paths if counts[path] != counts[first])
    what = f"{counts[first]:,} lines, but {other} has {counts[other]:,}"
    return DataError(what, where=str(first), hint="each line must correspond to the same line of the other file")
