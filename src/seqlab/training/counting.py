"""Models that are counted rather than trained (n-grams): one pass over the text, resulting in a normal run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from seqlab.data.batching.batches import Split
from seqlab.objectives.objective import Objective
from seqlab.recipe import TrainingSettings
from seqlab.tasks.task import Task
from seqlab.training.checkpoint import Checkpoints, Snapshot
from seqlab.training.distributed import Ranks
from seqlab.training.log import Log
from seqlab.training.measuring import measured
from seqlab.training.tensorboard import Board
from seqlab.training.trainer import Watcher


@dataclass
class Counting:
    """Takes the same arguments as `Trainer`; its only checkpoint is that of step 1."""

    objective: Objective
    task: Task
    splits: tuple[Split, Split]
    settings: TrainingSettings
    folder: Path
    watcher: Watcher
    sample: Callable[[], list[str]] | None
    ranks: Ranks

    def run(self) -> None:
        """Count the training split, unless this is done already."""
        checkpoints = Checkpoints(self.folder, warn=self.watcher.said)
        if not self.ranks.first or checkpoints.newest() is not None:
            return
        tokens = cast(Any, self.splits[0]).tokens
        device = next(self.objective.buffers()).device
        start = time.perf_counter()
        cast(Any, self.objective.body).fit(tokens, self.folder / ".draft-counts")
        seconds = time.perf_counter() - start
        self.objective.to(device)
        metrics = measured(self.objective, self.task, self.splits[1], self.settings.batch_size, device)
        self._report(len(tokens), seconds, metrics)
        self.watcher.evaluated(1, {self.task.metric: metrics[self.task.metric], **metrics})
        best = metrics[self.task.metric]
        checkpoints.save(Snapshot.of_finished(self.objective.state_dict(), len(tokens), best))

    def _report(self, tokens: int, seconds: float, metrics: dict[str, float]) -> None:
        log, timing, samples = (Log(self.folder / f"{name}.jsonl") for name in ("log", "timing", "samples"))
        for file in (log, timing, samples):
            file.cut(0)  # remove what an interrupted run has written
        speed = {"tokens_per_second": round(tokens / seconds, 1), "seconds": round(seconds, 4)}
        texts = self.sample() if self.sample is not None else []
        entries: list[tuple[Log, dict[str, Any]]] = [
            (log, {"step": 1, "tokens": tokens, "valid": metrics}),
            (timing, {"step": 1, **speed}),
            *((samples, {"step": 1, "text": text}) for text in texts),
        ]
        with Board(self.folder, self.settings.tensorboard) as board:
            board.cut(0)
            for file, entry in entries:
                file.write(entry)
                board.write(entry)
