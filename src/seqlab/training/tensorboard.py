"""What the logs of a run say, as event files for TensorBoard: `tensorboard --logdir runs`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Self

from seqlab.errors import RecipeError

FIGURES = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")


class Board:
    """Takes every entry of the logs, if it is `on`; nothing is written, nor the library imported, before the first.

    A resumed run writes a file of its own that begins by taking back every step after the checkpoint, so that no
    step is there twice. What came before the checkpoint is on the disk, for `flush` was called first.
    """

    def __init__(self, run: Path, on: bool) -> None:
        self.folder, self.on, self.step = run / "tensorboard", on, 0
        self.writer: Any = None

    def restart(self, step: int) -> None:
        """The run goes on after this step."""
        self.step = step

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
        if self.writer is not None:
            self.writer.flush()

    def _open(self) -> Any:
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # nothing waits to be written for long: someone may be looking
            self.writer = SummaryWriter(str(self.folder), purge_step=self.step + 1, flush_secs=5)
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
