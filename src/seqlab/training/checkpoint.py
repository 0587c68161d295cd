"""Atomic checkpoints: a folder is filled under another name, its manifest last, and then renamed."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqlab import renamed
from seqlab.errors import RunError
from seqlab.training.distributed import ALONE, Ranks
from seqlab.training.manifest import as_json, run_name, sha256, write, write_whole

Tensors = dict[str, Tensor]


@dataclass
class Snapshot:
    """The complete state of training at one step."""

    model: Tensors
    optimizer: Tensors
    state: Tensors
    """The state of each rank: generators, and states carried by streams."""
    facts: dict[str, Any]
    """Step, cursor, best so far, running sums, length of the log, ..."""

    @classmethod
    def of_finished(cls, model: Tensors, tokens: int = 0, best: float | None = None) -> Self:
        """Snapshot of a model made in one step rather than trained: counted, imported, mixed. `best` is its figure."""
        value = None if best is None else {"step": 1, "value": best}
        return cls(dict(model), {}, {}, {"step": 1, "best": value, "finished": True, "tokens": tokens})


class Damaged(Exception):
    """A checkpoint that differs from what was written."""


class Checkpoints:
    """The checkpoints of a run folder."""

    def __init__(self, run: Path, keep: int = 2, warn: Callable[[str], None] = lambda message: None) -> None:
        self.run, self.folder, self.keep, self.warn = run, run / "checkpoints", keep, warn
        self.passing: int | None = None
        """A step whose checkpoint is removed as soon as there is a newer one."""

    @cached_property
    def run_name(self) -> str | None:
        """The name of the run in the manifests of its checkpoints; None if it was made before runs had names."""
        return run_name(self.run)

    def save(self, snapshot: Snapshot, ranks: Ranks = ALONE) -> None:
        """Write a checkpoint, point `best` at the best one, and remove those that are neither new nor best."""
        step = int(snapshot.facts["step"])
        draft = self.folder / f".draft-{step:08d}"
        try:
            if ranks.first:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._clear_drafts()
                draft.mkdir()
            ranks.wait()
            _write_tensors(draft / _state_name(ranks.rank), snapshot.state)
            ranks.wait()
            if ranks.first:
                _write_tensors(draft / "model.safetensors", snapshot.model)
                _write_tensors(draft / "optimizer.safetensors", snapshot.optimizer)
                write(draft / "state.json", as_json(snapshot.facts))
                sums = {path.name: sha256(path) for path in sorted(draft.iterdir())}
                whole = sums if self.run_name is None else {"run": self.run_name, "files": sums}
                write(draft / "MANIFEST.json", as_json(whole))
                self._publish(draft, step)
                self._point_best(snapshot.facts)
                self._prune(snapshot.facts)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            last = self.steps()[-1:]
            left = f"the checkpoint of step {last[0]} is intact" if last else "there is no checkpoint yet"
            raise RunError(
                f"could not save step {step} ({error.strerror or error}); {left}",
                where=str(self.folder),
                hint="free disk space, then continue with --resume",
            ) from None
        ranks.wait()

    def steps(self) -> list[int]:
        """Return the steps with a checkpoint, intact or damaged, in order."""
        names = [path.name for path in self.folder.glob("step-*")] if self.folder.is_dir() else []
        return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d{8,}", name))

    def whole(self) -> Iterator[Snapshot]:
        """Yield the intact checkpoints, newest first; damaged ones are reported and skipped."""
        for step in reversed(self.steps()):
            try:
                yield self._read(step)
            except FileNotFoundError:
                continue
            except Damaged as error:
                self.warn(f"{error} and skipped")

    def newest(self, rank: int = 0) -> Snapshot | None:
        """Return the newest intact checkpoint."""
        steps = self.steps()[::-1]
        found, faults = self._first_whole(steps, rank)
        if found is None and not faults and steps != self.steps()[::-1]:
            return self.newest(rank)  # training has just removed all of them, and there are newer ones
        return self._told(found, faults)

    def best(self) -> Snapshot | None:
        """Return the checkpoint that `best` names; if it is damaged or missing, the newest intact one."""
        named = self._named_best()
        steps = sorted(self.steps(), key=lambda step: (step == named, step), reverse=True)
        found, faults = self._first_whole(steps)
        if found is None and not faults and set(steps) != set(self.steps()):
            return self.best()  # training has just removed all of them, and there are newer ones
        if found is not None and found.facts["step"] != named:
            if named != self._named_best():
                return self.best()  # training has just found a better one and removed this one
            if named not in steps:
                what = "names no checkpoint" if named is None else f"names step {named}, which is missing"
                faults = [f"{self.run / 'best'} {what}", *faults]
        return self._told(found, faults)

    def at(self, step: int) -> Snapshot:
        """Return the checkpoint of a step; the error for a missing one lists the steps that exist."""
        there = ", ".join(map(str, self.steps()))
        try:
            return self._read(step)
        except FileNotFoundError:
            hint = f"there are checkpoints of steps {there}" if there else "continue with --resume"
            raise RunError(f"has no checkpoint of step {step}", where=str(self.run), hint=hint) from None
        except Damaged as error:
            raise RunError(str(error), hint=f"there are checkpoints of steps {there}") from None

    def tidy(self, facts: dict[str, Any]) -> None:
        """Prepare a run to be resumed: drop damaged checkpoints, and complete an interrupted `save`."""
        self._clear_drafts()
        for later in [step for step in self.steps() if step > facts["step"]]:
            self._remove(later)
        self._point_best(facts)
        self._prune(facts)

    def _first_whole(self, steps: Sequence[int], rank: int = 0) -> tuple[Snapshot | None, list[str]]:
        """Return the first intact checkpoint, and the faults of those before it."""
        faults: list[str] = []
        for step in steps:
            try:
                return self._read(step, rank), faults
            except FileNotFoundError:
                continue
            except Damaged as error:
                faults.append(str(error))
        return None, faults

    def _told(self, found: Snapshot | None, faults: list[str]) -> Snapshot | None:
        for fault in faults:
            self.warn(fault if found is None else f"{fault}; step {found.facts['step']} is used instead")
        return found

    def _read(self, step: int, rank: int = 0) -> Snapshot:
        folder = self.folder / f"step-{step:08d}"
        try:
            sums = self._sums(folder)
            for name in sorted({"model.safetensors", "optimizer.safetensors", "state.json", _state_name(rank), *sums}):
                if sha256(folder / name) != sums.get(name):
                    raise ValueError(f"{name} differs from the manifest")
            return Snapshot(
                renamed.weights(load_file(folder / "model.safetensors")),
                load_file(folder / "optimizer.safetensors"),
                load_file(folder / _state_name(rank)),
                json.loads((folder / "state.json").read_text(encoding="utf-8")),
            )
        except (OSError, ValueError, TypeError, AttributeError, SafetensorError) as error:
            if not folder.exists():
                raise FileNotFoundError(str(folder)) from None
            reason = f"{error.strerror}: {Path(error.filename or '').name}" if isinstance(error, OSError) else error
            raise Damaged(f"checkpoint {folder} is damaged ({reason})") from None

    def _sums(self, folder: Path) -> dict[str, str]:
        """Return the hash of each file of a checkpoint, which must belong to this run."""
        manifest = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8"))
        if manifest.keys() == {"run", "files"}:
            own, sums = manifest["run"], manifest["files"]
        elif "model.safetensors" in manifest:  # made before runs had names
            own, sums = None, manifest
        else:
            raise ValueError("MANIFEST.json lists no files")
        if own != self.run_name:
            what, hint = "is a checkpoint of another run", "remove it, or restore those of this run"
            if self.run_name is None:
                what, hint = f"{what}, or the run has lost its MANIFEST.json", f"see `seqlab accept {self.run}`"
            raise RunError(what, where=str(folder), hint=hint)
        return dict(sums)

    def _publish(self, draft: Path, step: int) -> None:
        """Give a finished folder its name, and make sure the name is on the disk."""
        if step in self.steps():
            self._remove(step)
        draft.rename(self.folder / f"step-{step:08d}")
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _named_best(self) -> int | None:
        try:
            return int((self.run / "best").read_text(encoding="utf-8").strip().removeprefix("step-"))
        except (OSError, ValueError):
            return None

    def _point_best(self, facts: dict[str, Any]) -> None:
        name = f"step-{(facts.get('best') or facts)['step']:08d}\n"
        best = self.run / "best"
        if not best.exists() or best.read_text(encoding="utf-8") != name:
            write_whole(best, name.encode())

    def _prune(self, facts: dict[str, Any]) -> None:
        """Keep the newest and the best; in a finished run, also the one that would be best if the run continued."""
        wanted = {self._named_best(), ((facts.get("before_end") or {}).get("best") or {}).get("step")}
        if self.passing in self.steps()[:-1] and self.passing not in wanted:
            self._remove(self.passing)
        for step in self.steps()[: -self.keep]:
            if step not in wanted:
                self._remove(step)

    def _remove(self, step: int) -> None:
        """Rename before removing, so that readers find all of a checkpoint or nothing."""
        aside = self.folder / f".draft-removed-{step:08d}"
        (self.folder / f"step-{step:08d}").rename(aside)
        shutil.rmtree(aside)

    def _clear_drafts(self) -> None:
        for draft in self.folder.glob(".draft-*"):
            shutil.rmtree(draft)


def optimizer_tensors(optimizer: torch.optim.Optimizer, module: nn.Module) -> Tensors:
    """Return an optimizer's state by the names of a module's weights: `body.embedding.weight.exp_avg`.

    Learning rates and the like are settings, not state.
    """
    names = _weight_names(optimizer, module)
    state = optimizer.state_dict()["state"]
    return {
        f"{names[weight]}.{name}": torch.as_tensor(value)
        for weight, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, module: nn.Module, tensors: Tensors) -> None:
    names = _weight_names(optimizer, module)
    numbers = {name: number for number, name in enumerate(names)}
    numbers |= {str(count): numbers[name] for count, name in enumerate(renamed.counted(names))}
    state: dict[int, Tensors] = {}
    for name, value in tensors.items():
        weight, _, key = renamed.weight(name).rpartition(".")
        if weight not in numbers:
            raise RunError(f"the optimizer's '{name}' belongs to no weight", hint="use a checkpoint of the same model")
        state.setdefault(numbers[weight], {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _weight_names(optimizer: torch.optim.Optimizer, module: nn.Module) -> list[str]:
    """Return the names of an optimizer's weights, in its own order."""
    names = {id(weight): name for name, weight in module.named_parameters()}
    return [names[id(weight)] for group in optimizer.param_groups for weight in group["params"]]


def _state_name(rank: int) -> str:
    return f"state-{rank}.safetensors" if rank else "state.safetensors"


def _whole(tensors: Tensors) -> Tensors:
    """Move tensors to the CPU, each with its own memory: a weight with two names is written under both."""
    whole: Tensors = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        whole[name] = plain.clone() if memory in seen else plain
        seen.add(memory)
    return whole


def _write_tensors(path: Path, tensors: Tensors) -> None:
    """Write tensors directly from their memory: serialising to bytes first would need twice that memory in addition."""
    path.touch()
    mode = path.stat().st_mode  # safetensors creates files only their owner can read
    try:
        save_file(_whole(tensors), path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, os.strerror(int(number[1])) if number else str(error)) from None
    path.chmod(mode)
    with path.open("rb+") as file:
        os.fsync(file.fileno())
