"""The manifest of a run folder: the number of its format, and the sha256 of every file that says what the run computes.

    {"format": 4, "run": "5f1c…", "files": {"model.yaml": "9a0b…", "recipe.yaml": "77de…", "tokenizer/…": "…"}}

`files` are recipe.yaml, model.yaml and everything in tokenizer/, except files whose names begin with a dot. Weights are
in checkpoints, each with a manifest of its own, which names the `run` it belongs to. Logs grow and `best` moves: no
manifest has them. Runs of format 1 were made before there was a manifest: nothing in them can be checked. In those of
formats 2 and 3, some recipe keys and weights have other names (`seqlab.renamed`).

While a file is being replaced, the manifest lists the sums of both versions: a crash at any moment leaves a run that
can be loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqlab.errors import RunError

FORMAT = 4
FILE = "MANIFEST.json"
NEEDED = ("recipe.yaml", "model.yaml")
TRIES = 5
"""How often a folder is looked at whose manifest changes meanwhile."""


@dataclass(frozen=True)
class Manifest:
    """What a run folder should hold."""

    run: str | None
    """Names the run in its checkpoints; None for one that was made before runs had names."""
    files: Mapping[str, tuple[str, ...]]
    """The sums that each file may have: one, or two while it is being replaced."""

    @classmethod
    def of(cls, folder: Path, run: str | None, **contents: bytes) -> Manifest:
        """Of the files in a folder, and of others that will be written with these contents."""
        sums = {name: sha256(folder / name) for name in _names(folder)}
        sums |= {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        return cls(run, {name: (digest,) for name, digest in sorted(sums.items())})

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """That of a run folder; None for format 1."""
        path = folder / FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            number = int(data["format"])
            if number > FORMAT:
                what = f"made by a newer version of seqlab (its format is {number}, known here are 1 to {FORMAT})"
                raise RunError(what, where=str(folder), hint="update seqlab")
            files = {name: (sums,) if isinstance(sums, str) else tuple(sums) for name, sums in data["files"].items()}
            return cls(data["run"], files)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise RunError("is damaged", where=str(path), hint=_hint(folder)) from None

    def write(self, folder: Path) -> None:
        """After all that it lists is on the disk: a power failure leaves no manifest of files that are not there."""
        for name in self.files:
            with suppress(FileNotFoundError), (folder / name).open("rb") as file:
                os.fsync(file.fileno())
        files = {name: sums[0] if len(sums) == 1 else list(sums) for name, sums in self.files.items()}
        write_whole(folder / FILE, as_json({"format": FORMAT, "run": self.run, "files": files}))

    def differences(self, folder: Path) -> dict[str, str]:
        """What is not as the manifest says: the file, and what happened to it."""
        there, found = set(_names(folder)), {}
        for name in sorted({*self.files, *there}):
            if name not in there:
                found[name] = "missing"
            elif name not in self.files:
                found[name] = "added"
            elif sha256(folder / name) not in self.files[name]:
                found[name] = "changed"
        return found


def check_run(folder: Path) -> None:
    """An error where something was edited, removed or added since the run was made."""
    manifest = Manifest.read(folder)
    for _ in range(TRIES):
        found = {} if manifest is None else manifest.differences(folder)
        before, manifest = manifest, Manifest.read(folder) if found else manifest
        if manifest == before:
            break  # otherwise a training is replacing recipe.yaml at this moment
    if found:
        listed = ", ".join(f"{name} ({what})" for name, what in found.items())
        raise RunError(f"differs from what was trained: {listed}", where=str(folder), hint=_hint(folder))


def run_name(folder: Path) -> str | None:
    """What the checkpoints of a run call it."""
    manifest = Manifest.read(folder)
    return None if manifest is None else manifest.run


def name_of(recipe: Mapping[str, Any], folder: Path) -> str:
    """A name for a new run: a hash of all that decides what it learns, the versions and threads it runs with included.

    The number of steps is not in it, since that can be raised.
    """
    training = {key: value for key, value in recipe["training"].items() if key not in ("steps", "budget")}
    sums = {name: sha256(folder / name) for name in _names(folder) if name != "recipe.yaml"}
    return hashlib.sha256(as_json([{**recipe, "training": training}, sums])).hexdigest()


def replace_recipe(folder: Path, text: str) -> None:
    """Give a run another recipe.yaml."""
    manifest, content = Manifest.read(folder), text.encode()
    if manifest is not None:
        both = (*manifest.files["recipe.yaml"], hashlib.sha256(content).hexdigest())
        replace(manifest, files={**manifest.files, "recipe.yaml": both}).write(folder)
    write_whole(folder / "recipe.yaml", content)
    settle(folder)


def settle(folder: Path) -> None:
    """End what a crash has left undone: where the manifest lists two sums for a file, only that of the file remains."""
    manifest = Manifest.read(folder)
    if manifest is not None and any(len(sums) > 1 for sums in manifest.files.values()):
        Manifest.of(folder, manifest.run).write(folder)


def accept(folder: Path) -> dict[str, str]:
    """Renew the manifest of a run whose files were edited on purpose; what differed from it.

    The run keeps its name, so that its checkpoints still belong to it.
    """
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        what, hint = f"has no {' and no '.join(missing)}", "take the folder from a copy, or train again"
        raise RunError(what, where=str(folder), hint=hint)
    try:
        manifest = Manifest.read(folder)
    except RunError:
        if _is_newer(folder):
            raise
        manifest = None
    found = {FILE: "missing or damaged"} if manifest is None else manifest.differences(folder)
    if found:
        Manifest.of(folder, _name_in_checkpoints(folder) if manifest is None else manifest.run).write(folder)
    return found


def _is_newer(folder: Path) -> bool:
    """Whether the manifest is whole, and from a version that this one does not know."""
    try:
        return int(json.loads((folder / FILE).read_text(encoding="utf-8"))["format"]) > FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _name_in_checkpoints(folder: Path) -> str | None:
    """By what name the newest checkpoint calls its run."""
    for path in sorted((folder / "checkpoints").glob(f"step-*/{FILE}"), reverse=True):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return str(data["run"]) if isinstance(data, dict) and "files" in data and data.get("run") else None
    return None


def _names(folder: Path) -> Iterator[str]:
    """The files that belong into a manifest, and are there."""
    yield from (name for name in NEEDED if (folder / name).is_file())
    for root, folders, names in os.walk(folder / "tokenizer"):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from ((Path(root) / name).relative_to(folder).as_posix() for name in names if not name.startswith("."))


def _hint(folder: Path) -> str:
    return f"put back what was there, or, if it is meant, run `seqlab accept {folder}`"


# --------------------------------------------------------------------- files, whole or not there


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def write(path: Path, data: bytes) -> None:
    """A file that is on the disk when this returns."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file at once: whoever reads it finds the old one or the new one."""
    draft = path.with_name(f".draft-{path.name}")
    try:
        write(draft, data)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
