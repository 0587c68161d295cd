"""Ranks: the processes that `torchrun` starts, or just this one; and how a training is spread over them."""

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
    """Which of how many processes this one is."""

    rank: int = 0
    world: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Ranks:
        """Meet the other processes, if `torchrun` started any; the cores are divided between them."""
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
        """Each number summed over the ranks."""
        if self.world == 1:
            return numbers
        on = device if device.type == "cuda" else torch.device("cpu")  # gloo speaks of the CPU's tensors only
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
    """How weights, gradients and the rows of a batch are spread over ranks. The training loop asks for nothing else."""

    ranks: Ranks

    @abstractmethod
    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective as this rank calls it."""

    @abstractmethod
    def pieces(self, indices: Indices, accumulate: int) -> list[Indices]:
        """The rows of a batch that this rank reads, in so many pieces; some of them may have none."""

    @abstractmethod
    def gathering(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Around all pieces of a batch but the last: gradients are only added up."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """What gradients have to be multiplied by to be sums over all ranks."""

    @abstractmethod
    def norm(self, gradients: Sequence[Tensor]) -> float:
        """‖g‖ of all gradients together."""


@dataclass(frozen=True)
class Replicated(Strategy):
    """Every rank has all weights and reads its share of the rows; gradients are averaged (DDP)."""

    ranks: Ranks

    def wrap(self, objective: nn.Module) -> nn.Module:
        """Looking for unused parameters also keeps the buckets as they are: DDP would otherwise rearrange them after
        the first step of a process, and a resumed run would add its gradients in another order."""
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
    """Whether this process is the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
