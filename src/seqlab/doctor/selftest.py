"""The self-test: small cells and models on a device, in float32, against the CPU in double precision.

The tolerance follows from the arithmetic. A float32 computation rounds every product by up to ε / 2 of its size, as if
each weight were off by that much. So the test perturbs the weights by noise of that size, in double precision, and
measures how much the result changes. It allows `ROOM` times this change, plus `ROUNDINGS` roundings of the largest
number for everything that is not a product. No float32 kernel takes part in this, so a broken kernel cannot raise its
own tolerance. But the gradients of unitary nets are less exact than that in plain float32 (the cause was not found), so
eight times the error of plain float32 on the CPU is also allowed, as long as half of the digits are right.
"""

from __future__ import annotations

import copy
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from seqlab import registry
from seqlab.decoding.compiled import library
from seqlab.doctor.subjects import CellSubject, ModelSubject, Values, cell_names, model_names, moved
from seqlab.errors import SeqlabError
from seqlab.nn.recording import remarks
from seqlab.training.routing import route

EPSILON = torch.finfo(torch.float32).eps
DRAWS = 3
ROOM = 16.0
ROUNDINGS = 32.0
STEPS = 2
"""Steps of the training that is repeated."""


@dataclass(frozen=True)
class Check:
    """One line of the self-test. Errors are relative to the largest of the numbers compared."""

    subject: str
    name: str
    error: float
    allowed: float
    ok: bool
    note: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Left:
    """A subject that could not be tested."""

    subject: str
    reason: str


def not_covered() -> list[str]:
    """List the classes of one's own that the self-test does not cover."""
    covered = {*(("cell", name) for name in cell_names()), *(("model", name) for name in model_names())}
    return [f"{family} '{name}'" for family, name in registry.own_names() if (family, name) not in covered]


def self_test(device: torch.device) -> Iterator[Check | Left]:
    """Yield the result of every check as soon as it is done."""
    subjects: list[tuple[Any, Any, str]] = [(CellTest, CellSubject, name) for name in cell_names()]
    subjects += [(ModelTest, ModelSubject, name) for name in model_names()]
    own = registry.own_names()
    subjects.sort(key=lambda one: (one[1].family, one[2]) not in own)  # a person's own classes come first
    with _as_trained(device):
        for kind, make, name in subjects:
            try:
                subject = make(name)
            except (SeqlabError, TypeError, ValueError) as error:  # a custom class that needs more than sizes
                yield Left(f"{make.family} {name}", _first_line(error))
                continue
            for check in kind(subject, device).checks():
                yield _checked(subject.name, check)


class _Test:
    """A subject on a device. Each check is a method that returns a deviation, its tolerance and a note."""

    def __init__(self, subject: CellSubject | ModelSubject, device: torch.device) -> None:
        self.subject: Any = subject
        self.device = device

    @cached_property
    def net(self) -> Any:
        """On the CPU, all linear maps are computed by the kernels of training, if there are any."""
        net = moved(self.subject.net, self.device)
        route(net, 0)
        return net

    @cached_property
    def exact(self) -> Values:
        return self.subject.exactly(copy.deepcopy(self.subject.net).double())  # type: ignore[no-any-return]

    @cached_property
    def allowed(self) -> dict[str, float]:
        """The tolerance of each value, as explained above."""
        plain = self.subject.exactly(copy.deepcopy(self.subject.net))
        spread = dict.fromkeys(self.exact, 0.0)
        for draw in range(DRAWS):
            for name, value in self.subject.exactly(_shaken(self.subject.net, draw)).items():
                spread[name] = max(spread[name], _distance(value, self.exact[name]))
        gradients = [_size(value) for name, value in self.exact.items() if name.startswith("gradient")]
        floor = EPSILON * max(gradients, default=0.0)  # a gradient of zero carries the rounding errors of larger ones
        found = {}
        for name, value in self.exact.items():
            own = ROOM * spread[name] + ROUNDINGS * EPSILON * _size(value) + (floor if "gradient" in name else 0.0)
            library = min(8 * _distance(plain[name], value), math.sqrt(EPSILON) * _size(value))
            found[name] = max(own, library)
        return found

    def values(self) -> Deviation:
        said: list[str] = []
        with remarks(said.append):
            found = self.subject.compute(self.net)
        return self._worst(found, "; ".join(one.partition(": ")[2] for one in said))

    def one_by_one(self) -> Deviation:
        return self._worst(self.subject.one_by_one(self.net))

    def _worst(self, found: Values, note: str = "") -> Deviation:
        """Return the value that deviates most, relative to its tolerance."""
        missing = [name for name in found if name not in self.exact]
        if missing:
            return Deviation(math.inf, 0.0, f"no {missing[0]} in double precision")
        for name, value in [*self.exact.items(), *found.items()]:
            if not value.isfinite().all():
                return Deviation(math.inf, 0.0, f"{name}: not finite")
        name = max(found, key=lambda name: _distance(found[name], self.exact[name]) / (self.allowed[name] or EPSILON))
        size = _size(self.exact[name]) or 1.0
        error = _distance(found[name], self.exact[name])
        where = "" if error <= self.allowed[name] else f"{name}: not the same"
        return Deviation(error / size, self.allowed[name] / size, where or note)


class CellTest(_Test):
    def checks(self) -> list[Named]:
        return [
            ("values and gradients", self.values),
            ("one position at a time", self.one_by_one),
            ("alone and in a batch", self.alone),
            ("the same bits again", self.repeated),
        ]

    def alone(self) -> Deviation:
        """Compare rows alone and in a batch; each of the two may deviate from the exact values by the tolerance."""
        alone, together = (run(self.net)["outputs"] for run in (self.subject.alone, self.subject.together))
        size = _size(self.exact["outputs"]) or 1.0
        return Deviation(_distance(alone, together) / size, 2 * self.allowed["outputs"] / size)

    def repeated(self) -> Deviation:
        first, second = (self.subject.compute(self.net) for _ in range(2))
        return Deviation(max(_distance(first[name], second[name]) for name in first), 0.0)


class ModelTest(_Test):
    @cached_property
    def exact(self) -> Values:
        """N-gram tables, and mixtures with them, are always float32: their reference is the CPU's own result."""
        if self.subject.learns:
            return super().exact
        return self.subject.compute(self.subject.net)  # type: ignore[no-any-return]

    @cached_property
    def allowed(self) -> dict[str, float]:
        if self.subject.learns:
            return super().allowed
        return {name: 2 * ROUNDINGS * EPSILON * _size(value) for name, value in self.exact.items()}

    def checks(self) -> list[Named]:
        every: list[Named] = [
            ("loss and gradients" if self.subject.learns else "log-probabilities", self.values),
            ("one position at a time", self.one_by_one),
            ("greedy, alone and in a batch", self.greedy),
        ]
        return [*every, ("the same bits again", self.repeated)] if self.subject.learns else every

    def greedy(self) -> Deviation:
        """Compare texts decoded alone and in a batch, bit for bit where that is promised. Elsewhere, two tokens may be
        most probable up to rounding errors, and the texts differ from there on."""
        rows = range(len(self.subject.tokens))
        together = self.subject.written(self.net, rows)
        alone = [self.subject.written(self.net, [row])[0] for row in rows]
        bits = self.device.type == "cpu" and library() is not None
        size = _size(self.exact["log p"]) or 1.0
        allowed = 0.0 if bits else 2 * self.allowed["log p"] / size
        error = 0.0
        for one, other in zip(together, alone, strict=True):
            if len(one) != len(other):
                return Deviation(math.inf, allowed, "texts of different lengths")
            for a, b in zip(one, other, strict=True):
                error = max(error, _apart(a.log_probability, b.log_probability) / size)
                if a.id != b.id:
                    if bits:
                        return Deviation(math.inf, allowed, "different texts")
                    break
        return Deviation(error, allowed, "to the bit" if bits else "")

    def repeated(self) -> Deviation:
        """Run a short training twice with the same noise, and compare the weights."""
        first, second = (self._trained() for _ in range(2))
        pairs = zip(first.parameters(), second.parameters(), strict=True)
        return Deviation(max(_distance(a.detach().cpu(), b.detach().cpu()) for a, b in pairs), 0.0)

    def _trained(self) -> nn.Module:
        objective = self.subject.objective(copy.deepcopy(self.net)).train()
        kind = registry.find("optimizer", "adamw")
        optimizer = kind().build(objective, 1e-2, kind.Settings(kind="adamw"))
        batch = self.subject.batch().to(self.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            for _ in range(STEPS):
                optimizer.zero_grad(set_to_none=True)
                objective(batch).sum.backward()
                optimizer.step()
        return objective  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Deviation:
    error: float
    allowed: float
    note: str = ""


Named = tuple[str, Callable[[], Deviation]]


def _checked(subject: str, check: Named) -> Check:
    """Run a check. An exception, from an operation the device lacks or a faulty custom class, is a failed check."""
    name, run = check
    start = time.perf_counter()
    try:
        result = run()
    except Exception as error:
        result = Deviation(math.inf, 0.0, _first_line(error))
    if result.error == math.inf and not result.note:
        result = replace(result, note="not finite")
    good = math.isfinite(result.error) and result.error <= result.allowed
    return Check(subject, name, result.error, result.allowed, good, result.note, time.perf_counter() - start)


@contextmanager
def _as_trained(device: torch.device) -> Iterator[None]:
    """On CUDA, compute deterministically as in training, but without TF32, whose ten bits would hide mistakes."""
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    rounded = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = rounded


def _shaken(net: nn.Module, draw: int) -> nn.Module:
    """Copy a net in double precision, with each weight w replaced by w (1 + ε r / 2) for standard normal r."""
    twin, generator = copy.deepcopy(net).double(), torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for weight in twin.parameters():
            noise = torch.randn(weight.shape, dtype=torch.float64, generator=generator)
            weight.mul_(1 + noise * EPSILON / 2)
    return twin


def _distance(a: Tensor, b: Tensor) -> float:
    """Return the largest difference; infinite if either contains NaN, or if the shapes differ."""
    if a.shape != b.shape:
        return math.inf
    a, b = a.double(), b.double()
    difference = torch.where(a == b, 0.0, (a - b).abs())
    return float(difference.nan_to_num(math.inf, math.inf).max()) if difference.numel() else 0.0


def _apart(a: float, b: float) -> float:
    return _distance(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))


def _size(value: Tensor) -> float:
    finite = value[value.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _first_line(error: Exception) -> str:
    """Return the message of an error; its type and its place if it has none."""
    if line := next((line for line in str(error).splitlines() if line.strip()), None):
        return line[:160]
    *_, frame = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {os.path.basename(frame.filename)}, line {frame.lineno}"
