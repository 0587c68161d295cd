"""What the logs of a run say, as event files for TensorBoard: `tensorboard --logdir runs`."""

from __future__ import annotations

import importlib.util
from itertools import chain
from pathlib import Path
from typing import Any, Self

from seqlab.errors import RecipeError

EVENTS = "events.out.tfevents."
"""What TensorBoard looks for; the time and more follow in the names it gives."""
FIGURES = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")


class Board:
    """Takes every entry of the logs, if it is `on`; nothing is written, nor the library imported, before the first.

    Like the logs, the files are cut back to the checkpoint when a run is resumed, and become one: the names of two
    that were begun in one second say nothing about their order. (TensorBoard can be told to take steps back,
    `purge_step`; but its reader then still shows the texts of those steps, twice.)
    """

    def __init__(self, run: Path, on: bool) -> None:
        self.folder, self.on = run / "tensorboard", on
        self.writer: Any = None

    def cut(self, step: int) -> None:
        """Forget what was written after this step: a resumed run writes it again."""
        if not self.on or not self.folder.is_dir():
            return
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        paths = sorted(self.folder.glob(f"{EVENTS}*"))
        written: set[bytes] = set()  # if the last cut was itself cut short, some stand in two files
        draft, whole = self.folder / ".draft", self.folder / f"{EVENTS}0"  # read first: files are read by their names
        with draft.open("wb") as file:
            records = RecordWriter(file)
            for record in chain.from_iterable(RawEventFileLoader(str(path)).Load() for path in paths):  # what is whole
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
        """What a checkpoint includes is in the files before it."""
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
    """Before anything is written: can the event files be?"""
    if on and importlib.util.find_spec("tensorboard") is None:
        what, hint = "TensorBoard is not installed", "pip install 'seqlab[tensorboard]', or leave it out"
        raise RecipeError(what, where="training.tensorboard", hint=hint)


def _verbatim(text: str) -> str:
    """Texts are shown as Markdown: an indented block is left as it is."""
    return "".join(f"    {line}\n" for line in text.split("\n"))
