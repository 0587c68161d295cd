"""Checkpoints: whole or not there. A folder is filled under another name, its manifest last, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from seqlab.errors import RunError
from seqlab.training.distributed import ALONE, Ranks

Tensors = dict[str, Tensor]


@dataclass
class Snapshot:
    """All that a training is made of at one step."""

    model: Tensors
    optimizer: Tensors
    state: Tensors
    """What each rank has of its own: states of generators, states carried by streams."""
    facts: dict[str, Any]
    """Step, cursor, best so far, running sums, length of the log, ..."""

    @classmethod
    def of_finished(cls, model: Tensors, tokens: int = 0, best: float | None = None) -> Self:
        """Of a model that was made in one step and not trained: counted, imported, mixed. `best` is its figure."""
        value = None if best is None else {"step": 1, "value": best}
        return cls(dict(model), {}, {}, {"step": 1, "best": value, "finished": True, "tokens": tokens})


class Checkpoints:
    """The checkpoints of a run folder."""

    def __init__(self, run: Path, keep: int = 2, warn: Callable[[str], None] = lambda message: None) -> None:
        self.run, self.folder, self.keep, self.warn = run, run / "checkpoints", keep, warn

    def save(self, snapshot: Snapshot, ranks: Ranks = ALONE) -> None:
        """Write a checkpoint and point `best` at the best one; then remove what is neither new nor best."""
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
                _write(draft / "state.json", _json(snapshot.facts))
                sums = {path.name: _sha256(path) for path in sorted(draft.iterdir())}
                _write(draft / "MANIFEST.json", _json(sums))
                _publish(draft, self.folder / draft.name.replace(".draft-", "step-"))
                self._point_best(snapshot.facts)
                self._prune()
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            (self.run / ".draft-best").unlink(missing_ok=True)
            last = self.steps()[-1:]
            left = f"the checkpoint of step {last[0]} is whole" if last else "there is none yet"
            raise RunError(
                f"could not save step {step} ({error.strerror or error}); {left}",
                where=str(self.folder),
                hint="make room, then go on with --resume",
            ) from None
        ranks.wait()

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, whole or not, in order."""
        names = [path.name for path in self.folder.glob("step-*")] if self.folder.is_dir() else []
        return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))

    def whole(self, rank: int = 0) -> Iterator[Snapshot]:
        """The newest first; damaged ones are named and passed over."""
        for step in reversed(self.steps()):
            snapshot = self._read(step, rank)
            if snapshot is not None:
                yield snapshot

    def newest(self, rank: int = 0) -> Snapshot | None:
        return next(self.whole(rank), None)

    def best(self) -> Snapshot | None:
        """The checkpoint that `best` names, or the newest whole one."""
        try:
            step = int((self.run / "best").read_text(encoding="utf-8").strip().removeprefix("step-"))
        except (OSError, ValueError):
            return self.newest()
        snapshot = self._read(step, 0) if step in self.steps() else None
        return snapshot or self.newest()

    def tidy(self, facts: dict[str, Any]) -> None:
        """Before a resumed run goes on: drop damaged checkpoints, and end a `save` that was killed on the way."""
        for later in [step for step in self.steps() if step > facts["step"]]:
            shutil.rmtree(self.folder / f"step-{later:08d}")
        self._clear_drafts()
        self._point_best(facts)
        self._prune()

    def _read(self, step: int, rank: int) -> Snapshot | None:
        folder = self.folder / f"step-{step:08d}"
        try:
            manifest = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8"))
            needed = {"model.safetensors", "optimizer.safetensors", "state.json", _state_name(rank)}
            for name in sorted({*needed, *manifest}):
                if _sha256(folder / name) != manifest.get(name):
                    raise ValueError(f"{name} differs from the manifest")
            return Snapshot(
                load_file(folder / "model.safetensors"),
                load_file(folder / "optimizer.safetensors"),
                load_file(folder / _state_name(rank)),
                json.loads((folder / "state.json").read_text(encoding="utf-8")),
            )
        except (OSError, ValueError, TypeError, AttributeError, SafetensorError) as error:
            reason = f"{error.strerror}: {Path(error.filename or '').name}" if isinstance(error, OSError) else error
            self.warn(f"checkpoint {folder} is damaged ({reason}) and passed over")
            return None

    def _point_best(self, facts: dict[str, Any]) -> None:
        name = f"step-{(facts.get('best') or facts)['step']:08d}\n"
        best, draft = self.run / "best", self.run / ".draft-best"
        if not best.exists() or best.read_text(encoding="utf-8") != name:
            _write(draft, name.encode())
            draft.replace(best)

    def _prune(self) -> None:
        steps = self.steps()
        best = (self.run / "best").read_text(encoding="utf-8").strip()
        for step in steps[: -self.keep]:
            if f"step-{step:08d}" != best:
                shutil.rmtree(self.folder / f"step-{step:08d}")

    def _clear_drafts(self) -> None:
        for draft in self.folder.glob(".draft-*"):
            shutil.rmtree(draft)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    """An optimizer's state as named tensors. Rates and the like are settings, not state."""
    state = optimizer.state_dict()["state"]
    return {
        f"{weight}.{name}": torch.as_tensor(value)
        for weight, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    state: dict[int, Tensors] = {}
    for name, value in tensors.items():
        weight, _, key = name.partition(".")
        state.setdefault(int(weight), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _state_name(rank: int) -> str:
    return f"state-{rank}.safetensors" if rank else "state.safetensors"


def _whole(tensors: Tensors) -> Tensors:
    """On the CPU, each with memory of its own: a weight that has two names is written under both."""
    whole: Tensors = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        whole[name] = plain.clone() if memory in seen else plain
        seen.add(memory)
    return whole


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, sort_keys=True) + "\n").encode()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_tensors(path: Path, tensors: Tensors) -> None:
    """Straight from where the tensors are: as bytes in memory they would take their room twice more."""
    path.touch()
    mode = path.stat().st_mode  # the library's own files are the owner's alone
    try:
        save_file(_whole(tensors), path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, os.strerror(int(number[1])) if number else str(error)) from None
    path.chmod(mode)
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _publish(draft: Path, final: Path) -> None:
    """Give a finished folder its name, and make the name last."""
    if final.exists():
        shutil.rmtree(final)
    draft.rename(final)
    handle = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
