"""Ranks: the processes that `torchrun` starts, or just this one."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


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

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective with its gradients averaged over the ranks.

        Looking for unused parameters also keeps the buckets as they are: DDP would otherwise rearrange them after
        the first step of a process, and a resumed run would add its gradients in another order.
        """
        if self.world == 1:
            return objective
        return DistributedDataParallel(objective, find_unused_parameters=True)

    def unsynchronised(self, objective: nn.Module) -> AbstractContextManager[None]:
        """While gradients are only being gathered."""
        return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()

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


ALONE = Ranks()


def is_first() -> bool:
    """Whether this process is the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
