"""Progress display: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from seqlab.data.progress import readable_size as size
from seqlab.data.progress import shown_by

PATIENCE = 1.0
"""Seconds before work is worth a line where there is no bar."""


class Bar:
    """Shows the progress of training, and of long work before it (reading, encoding)."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        self.name, self.quiet = name, quiet
        self.console = Console(stderr=True)
        self.lines = not sys.stderr.isatty()
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or self.lines,
        )
        self.task = self.bar.add_task(name, total=None, figures="")
        self.work: TaskID | None = None
        self.what, self.done, self.told = "", 0, False
        self.loss, self.speed = float("nan"), 0.0
        self.clock = time.perf_counter()
        self.inside = ExitStack()

    def __enter__(self) -> Self:
        self.inside.enter_context(shown_by(self))
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        self.inside.close()

    def stepped(self, step: int, steps: int, figures: dict[str, float]) -> None:
        now = time.perf_counter()
        speed, self.clock = figures["tokens"] / max(now - self.clock, 1e-9), now
        self.speed = speed if not self.speed else 0.95 * self.speed + 0.05 * speed
        self.loss = figures["loss"] if self.loss != self.loss else 0.95 * self.loss + 0.05 * figures["loss"]
        text = f"{step}/{steps}  loss {self.loss:.3f}  {self.speed:,.0f} tokens/s"
        self.bar.update(self.task, completed=step, total=steps, figures=text)

    def evaluated(self, step: int, metrics: dict[str, float]) -> None:
        from seqlab.runs.comparison import UNITS

        unit = next(name for name in UNITS if name in metrics)
        deciding = next(iter(metrics))
        shown = [unit] if deciding in UNITS else [unit, deciding]
        figures = ", ".join(f"{name.replace('_', ' ')} {metrics[name]:.4f}" for name in shown)
        self.said(f"step {step}: held-out {figures}")
        self.clock = time.perf_counter()

    def said(self, message: str) -> None:
        if not self.quiet:
            self.console.print(Text.assemble((self.name, "dim"), " ", message), soft_wrap=True)

    # ------------------------------------------------------------ work other than training

    def begin(self, what: str, total: int | None) -> None:
        self.what, self.done, self.told, self.clock = what, 0, False, time.perf_counter()
        self.work = self.bar.add_task(what, total=total, figures="")

    def advance(self, done: int) -> None:
        self.done = done
        if self.work is not None:
            self.bar.update(self.work, completed=done, figures=size(done))
        if self.lines and not self.told and time.perf_counter() - self.clock > PATIENCE:
            self.told = True
            self.said(f"{self.what} …")

    def end(self) -> None:
        if self.work is not None:
            self.bar.remove_task(self.work)
            self.work = None
        seconds = time.perf_counter() - self.clock
        if seconds > PATIENCE:
            self.said(f"{self.what}: {size(self.done)} in {seconds:.1f} s")
        self.clock = time.perf_counter()
