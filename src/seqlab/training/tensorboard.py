"""The logs of a run as event files for TensorBoard: `tensorboard --logdir runs`."""

from __future__ import annotations

import importlib.util
from itertools import chain
from pathlib import Path
from typing import Any, Self

from seqlab.errors import RecipeError

EVENTS = "events.out.tfevents."
"""The prefix TensorBoard looks for; in its own file names the time and more follow."""
FIGURES = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")


class Board:
    """Takes every entry of the logs if `on`. Nothing is written or imported before the first entry.

    When a run is resumed, the files are cut back to the checkpoint, like the logs, and merged into one, since the names
    of two files begun in the same second do not give their order. (TensorBoard's `purge_step` discards steps too, but
    then its reader still shows the texts of those steps, twice.)
    """

    def __init__(self, run: Path, on: bool) -> None:
        self.folder, self.on = run / "tensorboard", on
        self.writer: Any = None

    def cut(self, step: int) -> None:
        """Drop what was written after this step: a resumed run writes it again."""
        if not self.on or not self.folder.is_dir():
            return
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        paths = sorted(self.folder.glob(f"{EVENTS}*"))
        written: set[bytes] = set()  # after an interrupted cut, some records are in two files
        draft, whole = self.folder / ".draft", self.folder / f"{EVENTS}0"  # "0" is read first
        with draft.open("wb") as file:
            records = RecordWriter(file)
            for record in chain.from_iterable(RawEventFileLoader(str(path)).Load() for path in paths):  # complete ones
                if Event.FromString(record).step <= step and record not in written:
                    records.write(record)
                    written.add(record)
        draft.replace(whole)
        for path in paths:
            if path != whole:
                path.unlink()

    def write(self, entry: dict[str, Any]) -> None:
        if not self.on:
            return
        step = entry["step"]
        for name in FIGURES:
            if name in entry:
                self._open().add_scalar(f"train/{name}", entry[name], step)
        for name, value in entry.get("valid", {}).items():
            self._open().add_scalar(f"valid/{name}", value, step)
        if "text" in entry:
            self._open().add_text("sample", _verbatim(entry["text"]), step)

    def flush(self) -> None:
        """Write everything to the files before a checkpoint includes it."""
        if self.writer is not None:
            self.writer.flush()

    def _open(self) -> Any:
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(self.folder), flush_secs=5)  # someone may be looking
        return self.writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def check_installed(on: bool) -> None:
    """Check, before anything is written, that event files can be written."""
    if on and importlib.util.find_spec("tensorboard") is None:
        what, hint = (
            "TensorBoard is not installed",
            "install it: pip install 'seqlab[tensorboard]', or leave the key out",
        )
        raise RecipeError(what, where="training.tensorboard", hint=hint)


def _verbatim(text: str) -> str:
    """Indent a text, since TensorBoard shows Markdown and leaves indented blocks unchanged."""
    return "".join(f"    {line}\n" for line in text.split("\n"))
