"""The manifest of a run folder: its format number, and the sha256 of every file that determines what the run computes.

    {"format": 4, "run": "5f1c…", "files": {"model.yaml": "9a0b…", "recipe.yaml": "77de…", "tokenizer/…": "…"}}

`files` are recipe.yaml, model.yaml and everything in tokenizer/, except files whose names begin with a dot. Weights are
in checkpoints, each of which has its own manifest that names its `run`. Manifests do not cover logs, which grow, or
`best`, which moves. Runs of format 1 have no manifest, so nothing in them can be checked. In formats 2 and 3, some
recipe keys and weights have other names (`seqlab.renamed`).

While a file is being replaced, the manifest lists the hashes of both versions, so that a crash at any moment leaves a
run that can be loaded.
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
"""Number of attempts to check a folder whose manifest changes meanwhile."""


@dataclass(frozen=True)
class Manifest:
    """The expected contents of a run folder."""

    run: str | None
    """The name of the run in its checkpoints; None if it was made before runs had names."""
    files: Mapping[str, tuple[str, ...]]
    """The hashes that each file may have: one, or two while it is being replaced."""

    @classmethod
    def of(cls, folder: Path, run: str | None, **contents: bytes) -> Manifest:
        """Make the manifest of the files in a folder, and of `contents` that are yet to be written."""
        sums = {name: sha256(folder / name) for name in _names(folder)}
        sums |= {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        return cls(run, {name: (digest,) for name, digest in sorted(sums.items())})

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Read the manifest of a run folder; None for format 1."""
        path = folder / FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            number = int(data["format"])
            if number > FORMAT:
                what = f"made by a newer version of seqlab (its format is {number}; this version reads 1 to {FORMAT})"
                raise RunError(what, where=str(folder), hint="update seqlab")
            files = {name: (sums,) if isinstance(sums, str) else tuple(sums) for name, sums in data["files"].items()}
            return cls(data["run"], files)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise RunError("is damaged", where=str(path), hint=_hint(folder)) from None

    def write(self, folder: Path) -> None:
        """Write the manifest after its files are on the disk, so that a power failure cannot leave it without them."""
        for name in self.files:
            with suppress(FileNotFoundError), (folder / name).open("rb") as file:
                os.fsync(file.fileno())
        files = {name: sums[0] if len(sums) == 1 else list(sums) for name, sums in self.files.items()}
        write_whole(folder / FILE, as_json({"format": FORMAT, "run": self.run, "files": files}))

    def differences(self, folder: Path) -> dict[str, str]:
        """Return the files that differ from the manifest, and how: missing, added or changed."""
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
    """Raise an error if a file was edited, removed or added since the run was made."""
    manifest = Manifest.read(folder)
    for _ in range(TRIES):
        found = {} if manifest is None else manifest.differences(folder)
        before, manifest = manifest, Manifest.read(folder) if found else manifest
        if manifest == before:
            break  # otherwise training is just replacing recipe.yaml
    if found:
        listed = ", ".join(f"{name} ({what})" for name, what in found.items())
        raise RunError(f"differs from the trained run: {listed}", where=str(folder), hint=_hint(folder))


def run_name(folder: Path) -> str | None:
    """Return the name of a run in its checkpoints."""
    manifest = Manifest.read(folder)
    return None if manifest is None else manifest.run


def name_of(recipe: Mapping[str, Any], folder: Path) -> str:
    """Return a name for a new run: a hash of everything that affects what it learns, including versions and threads.

    The number of steps is not included, since it can be raised.
    """
    training = {key: value for key, value in recipe["training"].items() if key not in ("steps", "budget")}
    sums = {name: sha256(folder / name) for name in _names(folder) if name != "recipe.yaml"}
    return hashlib.sha256(as_json([{**recipe, "training": training}, sums])).hexdigest()


def replace_recipe(folder: Path, text: str) -> None:
    """Replace the recipe.yaml of a run."""
    manifest, content = Manifest.read(folder), text.encode()
    if manifest is not None:
        both = (*manifest.files["recipe.yaml"], hashlib.sha256(content).hexdigest())
        replace(manifest, files={**manifest.files, "recipe.yaml": both}).write(folder)
    write_whole(folder / "recipe.yaml", content)
    settle(folder)


def settle(folder: Path) -> None:
    """Complete a replacement after a crash: if the manifest lists two hashes for a file, keep only the file's own."""
    manifest = Manifest.read(folder)
    if manifest is not None and any(len(sums) > 1 for sums in manifest.files.values()):
        Manifest.of(folder, manifest.run).write(folder)


def accept(folder: Path) -> dict[str, str]:
    """Renew the manifest of a run whose files were edited on purpose; return the differences.

    The run keeps its name, so that its checkpoints still belong to it.
    """
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        what, hint = f"has no {' and no '.join(missing)}", "restore the folder from a copy, or train again"
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
    """Whether the manifest is intact but made by a newer version."""
    try:
        return int(json.loads((folder / FILE).read_text(encoding="utf-8"))["format"]) > FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _name_in_checkpoints(folder: Path) -> str | None:
    """Return the name of the run in its newest checkpoint."""
    for path in sorted((folder / "checkpoints").glob(f"step-*/{FILE}"), reverse=True):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return str(data["run"]) if isinstance(data, dict) and "files" in data and data.get("run") else None
    return None


def _names(folder: Path) -> Iterator[str]:
    """Yield the existing files that belong in a manifest."""
    yield from (name for name in NEEDED if (folder / name).is_file())
    for root, folders, names in os.walk(folder / "tokenizer"):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from ((Path(root) / name).relative_to(folder).as_posix() for name in names if not name.startswith("."))


def _hint(folder: Path) -> str:
    return f"restore the original files, or, if the change is intended, run `seqlab accept {folder}`"


# --------------------------------------------------------------------- atomic files


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def write(path: Path, data: bytes) -> None:
    """Write a file that is on the disk when this returns."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file atomically: readers find either the old or the new one."""
    draft = path.with_name(f".draft-{path.name}")
    try:
        write(draft, data)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
