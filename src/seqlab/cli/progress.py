"""Progress for people: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text


class Bar:
    """Watches a training."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        self.name, self.quiet = name, quiet
        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not sys.stderr.isatty(),
        )
        self.task = self.bar.add_task(name, total=None, figures="")
        self.loss, self.speed = float("nan"), 0.0
        self.clock = time.perf_counter()

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def stepped(self, step: int, steps: int, figures: dict[str, float]) -> None:
        now = time.perf_counter()
        speed, self.clock = figures["tokens"] / max(now - self.clock, 1e-9), now
        self.speed = speed if not self.speed else 0.95 * self.speed + 0.05 * speed
        self.loss = figures["loss"] if self.loss != self.loss else 0.95 * self.loss + 0.05 * figures["loss"]
        text = f"loss {self.loss:.3f}  {self.speed:,.0f} tokens/s"
        self.bar.update(self.task, completed=step, total=steps, figures=text)

    def evaluated(self, step: int, metrics: dict[str, float]) -> None:
        unit = "bits_per_character" if "bits_per_character" in metrics else "loss"
        self.said(f"step {step}: held-out {unit.replace('_', ' ')} {metrics[unit]:.4f}")
        self.clock = time.perf_counter()

    def said(self, message: str) -> None:
        if not self.quiet:
            self.console.print(Text.assemble((self.name, "dim"), " ", message), soft_wrap=True)
