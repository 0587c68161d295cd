"""The training loop, independent of the model: batches, one objective, gradients, a step, reports on a grid of steps.

A snapshot contains everything a step depends on. A run that is killed at any moment and resumed therefore ends with the
same bits as one that is not (on the same machine, with the same numbers of threads and ranks).
"""

from __future__ import annotations

import math
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import nn

from seqlab import registry
from seqlab.data.batching.batches import Batch, Split
from seqlab.data.batching.order import BEGINNING, Cursor, Indices
from seqlab.data.randomness import Key, mix
from seqlab.errors import RecipeError, RunError, SeqlabError
from seqlab.models.language_model import State
from seqlab.nn.recording import remarks
from seqlab.objectives.objective import Objective, checked
from seqlab.recipe import TrainingSettings
from seqlab.tasks.task import Task
from seqlab.training.checkpoint import Checkpoints, Snapshot, load_optimizer, optimizer_tensors
from seqlab.training.compiling import Compiled
from seqlab.training.distributed import ALONE, Ranks, Replicated, Strategy
from seqlab.training.log import Log
from seqlab.training.measuring import measured
from seqlab.training.moving_average import Average
from seqlab.training.schedules import WarmUp
from seqlab.training.tensorboard import Board


class Interrupted(SeqlabError):
    """Ctrl-C or SIGTERM: the run was saved and can be resumed."""


class Diverged(RunError):
    """The loss or a gradient is NaN or infinite."""


class Watcher(Protocol):
    """Receives the progress of training."""

    def stepped(self, step: int, steps: int, figures: dict[str, float]) -> None: ...

    def evaluated(self, step: int, metrics: dict[str, float]) -> None:
        """The figure that chooses the best checkpoint comes first."""

    def said(self, message: str) -> None: ...


class Silence:
    """A watcher that ignores everything."""

    def stepped(self, step: int, steps: int, figures: dict[str, float]) -> None: ...

    def evaluated(self, step: int, metrics: dict[str, float]) -> None: ...

    def said(self, message: str) -> None: ...


@dataclass
class Progress:
    """The progress of training; with the weights and the generators, everything the next step depends on."""

    step: int = 0
    cursor: Cursor = BEGINNING
    tokens: int = 0
    best: dict[str, float] | None = None
    """Step and value of the best evaluation so far."""
    stale: int = 0
    """Number of evaluations since the best one."""
    sums: dict[str, float] = field(default_factory=lambda: {"loss": 0.0, "count": 0.0, "norm": 0.0, "steps": 0.0})
    """Sums since the last report."""
    finished: bool = False
    before_end: dict[str, Any] | None = None
    """Values that the last step changed only because it was the last; `Trainer._go_on` restores them."""


class MicroBatch(NamedTuple):
    """Rows of a batch that are read together, and their weight: 0 if the rank has no rows of its own."""

    batch: Batch
    weight: float


class Trainer:
    """Trains an objective on a split and writes into a run folder."""

    def __init__(
        self,
        objective: Objective,
        task: Task,
        splits: tuple[Split, Split],
        settings: TrainingSettings,
        folder: Path,
        watcher: Watcher | None = None,
        sample: Callable[[], list[str]] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        assert settings.steps is not None
        self.objective, self.task, self.settings, self.ranks = objective, task, settings, ranks
        self.steps = settings.steps
        self.train_split, self.valid_split = splits
        self.order = self.train_split.order(settings.batch_size, settings.seed)
        self.watcher = watcher or Silence()
        self.sample = sample
        self.device = next(objective.parameters()).device
        self.strategy: Strategy = Replicated(ranks)
        called = Compiled(objective, self.device, self._compiled) if settings.compile else objective
        self.wrapped = self.strategy.wrap(called)
        self.weights = [p for p in objective.parameters() if p.requires_grad]
        optimizer = registry.find("optimizer", settings.optimizer.kind)()
        self.optimizer = optimizer.build(objective, settings.learning_rate, settings.optimizer)
        self.average = Average(objective, settings.average) if settings.average is not None else None
        self.schedule = registry.find("schedule", settings.schedule.kind)(settings.schedule, self.steps)
        self.checkpoints = Checkpoints(folder, settings.keep, self.watcher.said)
        self.log, self.samples = Log(folder / "log.jsonl"), Log(folder / "samples.jsonl")
        self.timing = Log(folder / "timing.jsonl")
        self.board = Board(folder, settings.tensorboard)
        self.progress = Progress()
        self.clock, self.clock_tokens = time.perf_counter(), 0
        self.carried: list[State | None] = [None] * settings.accumulate
        self.updates = 0  # weight updates per batch; unknown before the first
        self.asked = False  # to stop, by a signal to this process
        self.stopping = False  # some rank was asked to stop; all ranks know it from the same step on
        if self.device.type == "cuda":
            torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(mix(settings.seed, ranks.rank) % 2**63)  # dropout; data has its own keys

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Train to the end, from the state of the run folder."""
        self.restore()
        self.objective.train()
        batches = self.order.walk(self.progress.cursor)
        self.clock, self.clock_tokens = time.perf_counter(), self.progress.tokens
        with self._signals(), self.board, remarks(self._remarked):
            while not self.progress.finished:
                cursor, indices = next(batches)
                figures = self.learn(cursor, indices)
                self.watcher.stepped(self.progress.step, self.steps, figures)
                self._report_on_grid()
                if self.stopping:
                    raise Interrupted(
                        f"stopped and saved at step {self.progress.step} of {self.steps}",
                        hint="continue with --resume",
                    )

    def _remarked(self, sentence: str) -> None:
        """Report how a part computes, which is worth knowing when training is slow."""
        self.watcher.said(sentence)
        self._write(self.timing, {"step": self.progress.step, "path": sentence})

    def learn(self, cursor: Cursor, indices: Indices) -> dict[str, float]:
        """Take one step: learn from one global batch, usually with one update of the weights."""
        self.objective.progress = self.progress.step / self.steps
        rate = self.settings.learning_rate * self.schedule(self.progress.step + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        updates = [self._update(pieces, cursor) for pieces in self._experience(cursor, indices)]
        loss, count, norm = (sum(figures) / len(updates) for figures in zip(*updates, strict=True))
        self._advance(cursor, loss, count, norm)
        if self.average is not None:
            self.average.update(self.progress.step)
        return {"loss": loss, "rate": rate, "norm": norm, "tokens": count}

    def _experience(self, cursor: Cursor, indices: Indices) -> list[list[MicroBatch]]:
        """Return, for each update, this rank's pieces of the batch to learn from."""
        key = Key(self.settings.seed, cursor.epoch)
        plain = type(self.objective).experience is Objective.experience
        turns: list[list[MicroBatch]] = []
        for own in self.strategy.pieces(indices, self.settings.accumulate):
            weight = 1.0 if len(own) else 0.0  # a piece without rows reads one that does not count
            batch = self.train_split.batch(own if len(own) else indices[:1], key).to(self.device)
            learnt = [batch] if plain else self._experienced(batch)
            turns.append([MicroBatch(one, weight) for one in learnt])
        return [list(pieces) for pieces in zip(*turns, strict=True)]

    @torch.no_grad()
    def _experienced(self, batch: Batch) -> Sequence[Batch]:
        self.objective.eval()
        found = self.objective.experience(batch)
        self.objective.train()
        self.updates = self.updates or len(found)
        if not found or len(found) != self.updates:
            what = f"{len(found)} batches to learn from" + (
                f", but {self.updates} the first time" if self.updates else ""
            )
            hint = "return the same number of batches every time, at least one"
            raise RecipeError(what, where="objective.experience", hint=hint)
        if self.updates > 1 and self.order.carries:
            what = "this objective makes several updates per batch, but a stream carries only one state"
            raise RecipeError(what, where="task.reading", hint="use windows")
        return found

    def _update(self, pieces: list[MicroBatch], cursor: Cursor) -> tuple[float, float, float]:
        """Update the weights once; return the loss, the count it is the mean over, and the norm of its gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        total, count = self._gradients(pieces, cursor)
        total, count, asked = self.ranks.sum([total, count, float(self.asked)], self.device)
        self.stopping = asked > 0
        loss = total / max(count, 1.0)
        self._finite(loss, "loss")
        norm = self._clip(self.strategy.scale / max(count, 1.0))  # from a sum over pieces and ranks to the mean
        self._finite(norm, "gradient")
        self.optimizer.step()
        return loss, count, norm

    def _gradients(self, pieces: list[MicroBatch], cursor: Cursor) -> tuple[float, float]:
        """Compute the gradients of this rank's pieces; return the sum of the losses and their count."""
        ratios = self._ratios(pieces)
        sums = torch.zeros(2, device=self.device)
        for number, (batch, weight) in enumerate(pieces):
            state = self.carried[number] if self.order.carries and cursor.batch else None
            more = number < len(pieces) - 1  # ranks exchange gradients with the last piece only
            waiting = self.strategy.gathering(self.wrapped) if more else nullcontext()
            with waiting, _precision(self.settings.precision, self.device):
                loss = checked(self.wrapped(batch, state), self.objective)
                total = loss.sum
                for name, mean in loss.others.items():
                    total = total + self._ratio(ratios, name) * mean.sum
                (total * weight).backward()  # type: ignore[no-untyped-call]
            self.carried[number] = loss.state.detach() if self.order.carries and loss.state else None
            sums += torch.stack([total.detach().float(), loss.count.float()]) * weight
        return float(sums[0]), float(sums[1])

    def _ratios(self, pieces: list[MicroBatch]) -> dict[str, float]:
        """Return N / M for each of the other means of a loss: over all pieces and ranks, the loss is over N things and
        the mean over M.

        A sum times this ratio, divided by N like the loss, is the mean.
        """
        each = [self.objective.counts(batch) for batch, _ in pieces]
        if "count" not in each[0]:
            return {}
        own = [
            sum(float(one[name]) * piece.weight for one, piece in zip(each, pieces, strict=True)) for name in each[0]
        ]
        counts = dict(zip(each[0], self.ranks.sum(own, self.device), strict=True))
        return {name: max(counts["count"], 1.0) / max(count, 1.0) for name, count in counts.items()}

    def _ratio(self, ratios: Mapping[str, float], name: str) -> float:
        if name not in ratios:
            what = f"the objective adds the mean '{name}' without a count"
            raise RecipeError(what, where="objective.counts", hint=f"return 'count' and '{name}'")
        return ratios[name]

    def _clip(self, scale: float) -> float:
        """Scale and clip the gradients; return their norm before clipping.

        Both take one pass: g ← g · scale · min(1, limit / ‖g · scale‖).
        """
        gradients = [p.grad for p in self.weights if p.grad is not None]
        limit = self.settings.clip_norm if self.settings.clip_norm is not None else math.inf
        if self.settings.clip_value is not None:
            torch._foreach_mul_(gradients, scale)
            nn.utils.clip_grad_value_(self.weights, self.settings.clip_value)
            scale = 1.0
        norm = scale * self.strategy.norm(gradients)
        factor = scale * min(1.0, limit / (norm + 1e-6))
        if factor != 1.0:
            torch._foreach_mul_(gradients, factor)
        return norm

    def _finite(self, value: float, name: str) -> None:
        if not math.isfinite(value):
            step = self.progress.step + 1
            lower = "lower training.learning_rate or training.clip_norm"
            raise Diverged(
                f"the {name} became {value} at step {step}; nothing after that was kept",
                hint=lower if step > 1 else "no weight was changed before: check the data and the model's own code",
            )

    def _advance(self, cursor: Cursor, loss: float, count: float, norm: float) -> None:
        own = self.progress
        own.step += 1
        own.cursor = cursor._replace(batch=cursor.batch + 1)
        own.tokens += int(count)
        for name, value in {"loss": loss * count, "count": count, "norm": norm, "steps": 1.0}.items():
            own.sums[name] += value

    # ------------------------------------------------------- reports on a step grid

    def _report_on_grid(self) -> None:
        own, step = self.progress, self.progress.step
        last = step >= self.steps

        def due(every: int | None) -> bool:
            return last or self._on_grid(every)

        if last:
            sums = {} if self._on_grid(self.settings.report_every) else {"sums": dict(own.sums)}
            best = {} if self._on_grid(self.settings.evaluate_every) else {"best": own.best, "stale": own.stale}
            own.before_end = {**sums, **best} or None
        if due(self.settings.report_every):
            self._report()
        better = False
        if due(self.settings.evaluate_every):
            better = self._evaluate()
        if self.sample is not None and due(self.settings.sample_every):
            self._sample(self.sample)
        patience = self.settings.patience
        own.finished = last or (patience is not None and own.stale >= patience)
        if due(self.settings.checkpoint_every) or better or own.finished or self.stopping:
            self.save()

    def _on_grid(self, every: int | None) -> bool:
        return self.progress.step % (every or self.steps) == 0

    def _report(self) -> None:
        own, sums = self.progress, self.progress.sums
        entry = {
            "step": own.step,
            "epoch": own.cursor.epoch,
            "tokens": own.tokens,
            "loss": sums["loss"] / max(sums["count"], 1.0),
            "gradient_norm": sums["norm"] / sums["steps"],
            "learning_rate": self.settings.learning_rate * self.schedule(own.step),
        }
        own.sums = dict.fromkeys(sums, 0.0)
        self._write(self.log, entry)
        now = time.perf_counter()
        seconds, tokens = now - self.clock, own.tokens - self.clock_tokens
        self.clock, self.clock_tokens = now, own.tokens
        unit = 1 if sys.platform == "darwin" else 1024
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        speed = {"tokens_per_second": round(tokens / seconds, 1), "seconds": round(seconds, 4)}
        self._write(self.timing, {"step": own.step, **speed, "peak_memory": memory, "device": str(self.device)})

    def _evaluate(self) -> bool:
        """Evaluate on held-out data; return whether the result is the best so far."""
        own = self.progress
        start = time.perf_counter()
        with self._averaged():
            rows, split = self.settings.batch_size, self.valid_split
            metrics = measured(self.objective, self.task, split, rows, self.device, self.ranks)
        self._write(self.log, {"step": own.step, "valid": metrics})
        self.clock += time.perf_counter() - start  # tokens/s counts training only
        value, higher = metrics[self.task.metric], self.task.better == "higher"
        self.watcher.evaluated(own.step, {self.task.metric: value, **metrics})
        if not math.isfinite(value):
            self.watcher.said(f"'{self.task.metric}' is {value} at step {own.step}: not taken for the best checkpoint")
        better = math.isfinite(value) and (
            own.best is None or (value > own.best["value"] if higher else value < own.best["value"])
        )
        if better:
            own.best = {"step": own.step, "value": value}
        own.stale = 0 if better else own.stale + 1
        return better

    def _sample(self, sample: Callable[[], list[str]]) -> None:
        start = time.perf_counter()
        if self.ranks.first:
            self.objective.eval()
            with self._averaged():
                for text in sample():
                    self._write(self.samples, {"step": self.progress.step, "text": text})
            self.objective.train()
        self.clock += time.perf_counter() - start

    def _averaged(self) -> AbstractContextManager[None]:
        return nullcontext() if self.average is None else self.average.in_use()

    def _compiled(self, seconds: float) -> None:
        self.watcher.said(f"compiled in {seconds:.1f} s")
        self._write(self.timing, {"step": self.progress.step, "compile_seconds": round(seconds, 4)})
        self.clock += seconds

    def _write(self, log: Log, entry: dict[str, Any]) -> None:
        if self.ranks.first:
            log.write(entry)
            self.board.write(entry)

    # --------------------------------------------------------------- save and restore

    def snapshot(self) -> Snapshot:
        own = self.progress
        state = {"generator": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["generator.cuda"] = torch.cuda.get_rng_state(self.device)
        if self.device.type == "mps":
            state["generator.mps"] = torch.mps.get_rng_state()
        for number, carried in enumerate(self.carried):
            if carried is not None:
                state |= {f"carried.{number}.{name}": t for name, t in carried.tensors().items()}
        facts = {
            **own.__dict__,
            "cursor": list(own.cursor),
            "sums": dict(own.sums),
            "log": self.log.size,
            "samples": self.samples.size,
        }
        if own.before_end is None:
            del facts["before_end"]
        optimizer = optimizer_tensors(self.optimizer, self.objective)
        if self.average is not None:  # `model` then holds the average, which is what people use
            optimizer |= {f"weights.{name}": weight for name, weight in self.average.others.items()}
        return Snapshot(dict(self.objective.state_dict()), optimizer, state, facts)

    def save(self) -> None:
        self.board.flush()
        with self._averaged():
            self.checkpoints.save(self.snapshot(), self.ranks)

    def restore(self) -> None:
        """Continue from the newest intact checkpoint, if there is one."""
        snapshot = self.checkpoints.newest(self.ranks.rank)
        if snapshot is None and self.checkpoints.steps():
            raise RunError(
                "all checkpoints are damaged", where=str(self.checkpoints.folder), hint="remove them to start again"
            )
        self._check_trained(snapshot)
        if self.ranks.first:
            self.log.cut(0 if snapshot is None else snapshot.facts["log"])
            self.samples.cut(0 if snapshot is None else snapshot.facts["samples"])
            self.board.cut(0 if snapshot is None else snapshot.facts["step"])
        if snapshot is None:
            return
        facts = dict(snapshot.facts)
        self.progress = Progress(
            **{name: facts[name] for name in ("step", "tokens", "best", "stale", "sums", "finished")},
            cursor=Cursor(*facts["cursor"]),
            before_end=facts.get("before_end"),
        )
        if facts["finished"] and not is_over(facts, self.settings):
            self._go_on()
        self.objective.load_state_dict(snapshot.model)
        last = {name: snapshot.optimizer.pop(name) for name in list(snapshot.optimizer) if name.startswith("weights.")}
        if self.average is not None:
            self.average.restore({name.removeprefix("weights."): weight for name, weight in last.items()})
        load_optimizer(self.optimizer, self.objective, snapshot.optimizer)
        torch.set_rng_state(snapshot.state["generator"])
        if "generator.cuda" in snapshot.state:
            torch.cuda.set_rng_state(snapshot.state["generator.cuda"], self.device)
        if "generator.mps" in snapshot.state:
            torch.mps.set_rng_state(snapshot.state["generator.mps"])
        for number in range(len(self.carried)):
            prefix = f"carried.{number}."
            # a copy, since matrix products may give other bits if memory is not aligned, as in a mapped file
            own = {
                name.removeprefix(prefix): tensor.to(self.device, copy=True)
                for name, tensor in snapshot.state.items()
                if name.startswith(prefix)
            }
            self.carried[number] = State.from_tensors(own) if own else None
        self.ranks.wait()
        if self.ranks.first:
            self.checkpoints.tidy({**facts, **self.progress.__dict__})
        self.ranks.wait()

    def _go_on(self) -> None:
        """Continue a finished run that is given more steps: undo what it did only because it ended.

        Reports, evaluations and samples that are not on their grids would not exist if it had not ended.
        """
        own = self.progress
        for name, value in (own.before_end or {}).items():
            setattr(own, name, value)
        own.finished, own.before_end = False, None
        if not self._on_grid(self.settings.checkpoint_every) and (own.best or {}).get("step") != own.step:
            self.checkpoints.passing = own.step
        if self.ranks.first:
            report, evaluation, sample = map(
                self._on_grid,
                (self.settings.report_every, self.settings.evaluate_every, self.settings.sample_every),
            )

            def before(entry: dict[str, Any], on_grid: bool) -> bool:
                return bool(entry["step"] < own.step or (entry["step"] == own.step and on_grid))

            self.log.keep(lambda entry: before(entry, evaluation if "valid" in entry else report))
            self.samples.keep(lambda entry: before(entry, sample))

    def _check_trained(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None and "cursor" not in snapshot.facts:
            hint = "train a new run with another --out"
            raise RunError("was mixed, averaged or imported, not trained", where=str(self.checkpoints.run), hint=hint)

    def check_prolonged(self, steps: int, snapshot: Snapshot | None) -> None:
        """Raise an error unless the steps taken so far, out of `steps`, equal the first steps of this training.

        They do if the learning rate, and whatever else depends on the total, is the same for each of them.
        """
        self._check_trained(snapshot)
        done = 0 if snapshot is None else int(snapshot.facts["step"])
        settings = cast(WarmUp, self.settings.schedule)
        before = registry.find("schedule", settings.kind)(settings, steps)
        what, hint = f"training.steps cannot be raised from {steps} to {self.steps}", "train again with another --out"
        if any(before(step) != self.schedule(step) for step in range(1, done + 1)):
            on = f"schedule '{settings.kind}', warmup {settings.warmup}"
            raise RunError(
                f"{what}: the learning rate of the steps so far depends on the total ({on})",
                where=str(self.checkpoints.run),
                hint=f"{hint}; a run with 'training.schedule={{kind: constant, warmup: 100}}' can be extended",
            )
        pace = self.objective.pace
        if any(pace(step / steps) != pace(step / self.steps) for step in range(done)):
            raise RunError(
                f"{what}: the objective of the steps so far depends on the total (objective.forcing)",
                where=str(self.checkpoints.run),
                hint=f"{hint}; a run with objective.forcing.shape=constant can be extended",
            )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop after the current step on Ctrl-C or SIGTERM; a second Ctrl-C stops at once."""

        def ask(number: int, frame: object) -> None:
            if self.asked and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.asked = True

        try:
            before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: signals do not arrive here
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, cast(Any, handler))


def is_over(facts: Mapping[str, Any], settings: TrainingSettings) -> bool:
    """Whether a finished run is over: it is not if its recipe now has more steps."""
    if "cursor" not in facts:
        return bool(facts["finished"])  # made in one step: counted, mixed, averaged
    stale = (facts.get("before_end") or {}).get("stale", facts["stale"])
    early = settings.patience is not None and stale >= settings.patience
    return bool(facts["finished"]) and (early or facts["step"] >= (settings.steps or 0))


def _precision(name: str, device: torch.device) -> Any:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=name == "bfloat16")
