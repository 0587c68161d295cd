"""Lines of JSON that grow with a run, and can be cut back to where a checkpoint left them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqlab.errors import RunError
from seqlab.training.manifest import write_whole


class Log:
    """One JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, entry: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        except OSError as error:
            what, hint = f"could not write ({error.strerror})", "make room, then go on with --resume"
            raise RunError(what, where=str(self.path), hint=hint) from None

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Forget what was written after a checkpoint: a resumed run writes it again."""
        if self.size > size:
            os.truncate(self.path, size)

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Remove the entries that are not wanted, and a last line that is not whole."""
        data = self.path.read_bytes() if self.path.exists() else b""
        lines = data.split(b"\n")[:-1]
        kept = b"".join(line + b"\n" for line in lines if wanted(json.loads(line)))
        if kept != data:
            write_whole(self.path, kept)


def read_log(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a log."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_bytes().split(b"\n")[:-1]:  # what follows the last newline is being written
        try:
            entries.append(json.loads(line))
        except ValueError:
            break  # damaged: what comes before it can still be read
    return entries
