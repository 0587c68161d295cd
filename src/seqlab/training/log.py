"""Logs of a run: lines of JSON that can be cut back to a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqlab.errors import RunError
from seqlab.training.manifest import write_whole


class Log:
    """A file with one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, entry: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        except OSError as error:
            what, hint = f"could not write ({error.strerror})", "free disk space, then continue with --resume"
            raise RunError(what, where=str(self.path), hint=hint) from None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Drop what was written after a checkpoint: a resumed run writes it again."""
        if self.size > size:
            os.truncate(self.path, size)

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Remove unwanted entries and an incomplete last line."""
        data = self.path.read_bytes() if self.path.exists() else b""
        lines = data.split(b"\n")[:-1]
        kept = b"".join(line + b"\n" for line in lines if wanted(json.loads(line)))
        if kept != data:
            write_whole(self.path, kept)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the entries of all complete lines of a log."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_bytes().split(b"\n")[:-1]:  # anything after the last newline is still being written
        try:
            entries.append(json.loads(line))
        except ValueError:
            break  # damaged: the lines before it can still be read
    return entries
