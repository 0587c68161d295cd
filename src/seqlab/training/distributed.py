"""Ranks: the processes started by `torchrun`, or just this one; and how training is spread over them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from seqlab.data.batching.order import Indices


@dataclass(frozen=True)
class Ranks:
    """The number of this process, and the number of processes."""

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Ranks:
        """Connect to the other processes, if `torchrun` started any, and divide the cores between them."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        if not dist.is_initialized():
            if device.type == "cuda":
                torch.cuda.set_device(device)
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
            if "OMP_NUM_THREADS" not in os.environ or os.environ["OMP_NUM_THREADS"] == "1":
                local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
                torch.set_num_threads(max(1, _cores() // local))
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, numbers: list[float], device: torch.device) -> list[float]:
        """Sum each number over the ranks."""
        if self.world == 1:
            return numbers
        on = device if device.type == "cuda" else torch.device("cpu")  # gloo handles only CPU tensors
        total = torch.tensor(numbers, dtype=torch.float64, device=on)
        dist.all_reduce(total)
        return [float(number) for number in total.tolist()]

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()

    def leave(self) -> None:
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


class Strategy(ABC):
    """How the rows of a batch and the sums of gradients are spread over ranks.

    The trainer, its averaged weights and its checkpoints also assume that every rank has all weights.
    """

    ranks: Ranks

    @abstractmethod
    def wrap(self, objective: nn.Module) -> nn.Module:
        """Return the objective as this rank calls it."""

    @abstractmethod
    def pieces(self, indices: Indices, accumulate: int) -> list[Indices]:
        """Return the rows of a batch that this rank reads, in `accumulate` pieces, some of which may be empty."""

    @abstractmethod
    def gathering(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Return the context for all pieces of a batch but the last, in which gradients are only accumulated."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """The factor that turns gradients into sums over all ranks."""

    @abstractmethod
    def norm(self, gradients: Sequence[Tensor]) -> float:
        """Return ‖g‖ of all gradients together."""


@dataclass(frozen=True)
class Replicated(Strategy):
    """Data parallelism: every rank has all weights and reads its share of the rows; DDP averages the gradients."""

    ranks: Ranks

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Wrap the objective in DDP. `find_unused_parameters` also keeps the buckets fixed; otherwise DDP rearranges
        them after the first step of a process, and a resumed run adds its gradients in another order."""
        if self.ranks.world == 1:
            return objective
        return DistributedDataParallel(objective, find_unused_parameters=True)

    def pieces(self, indices: Indices, accumulate: int) -> list[Indices]:
        return np.array_split(indices, self.ranks.world * accumulate)[self.ranks.rank :: self.ranks.world]

    def gathering(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        return wrapped.no_sync() if isinstance(wrapped, DistributedDataParallel) else nullcontext()

    @property
    def scale(self) -> float:
        return float(self.ranks.world)

    def norm(self, gradients: Sequence[Tensor]) -> float:
        return float(nn.utils.get_total_norm(gradients))


ALONE = Ranks()


def is_first() -> bool:
    """Whether this process is the one that prints."""
    return os.environ.get("RANK", "0") == "0"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
