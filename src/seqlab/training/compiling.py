"""Compiled objectives (`training.compile`): the library fuses the passes between matrix products into its own kernels.

An option, because the last bits of a result differ from those of the plain path. Kernels are made for one kind of batch
each, never for "any shape", so that the kernel a batch meets does not depend on the batches before it: a resumed run
would otherwise end with other bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from seqlab.data.batching.batches import Batch
from seqlab.errors import RecipeError, RunError
from seqlab.models.language_model import State
from seqlab.objectives.objective import Loss, Objective

KINDS = 64
"""Kinds of batches that a run may have; each of them takes seconds to compile."""


class Compiled(nn.Module):
    """An objective as the trainer calls it; it shares its weights with the plain one, which evaluates and is saved."""

    def __init__(self, objective: Objective, device: torch.device, tell: Callable[[float], None]) -> None:
        """`tell` is given the seconds that each new kind of batch took."""
        super().__init__()
        need_compiler(device)
        torch._dynamo.config.recompile_limit = KINDS
        self.compiled = torch.compile(objective, fullgraph=True, dynamic=False)
        self.tell = tell
        self.seen: set[tuple[object, ...]] = set()

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        kind = (state is None, *((name, tensor.shape) for name, tensor in batch.items()))
        start = time.perf_counter()
        try:
            loss: Loss = self.compiled(batch, state)
        except (torch._dynamo.exc.TorchDynamoException, torch._inductor.exc.InductorError) as error:
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            what, hint = f"the model cannot be compiled ({first.strip()[:160]})", "set training.compile=false"
            raise RunError(what, where="training.compile", hint=hint) from None
        if kind not in self.seen:
            self.seen.add(kind)
            self.tell(time.perf_counter() - start)
        return loss


def need_compiler(device: torch.device) -> None:
    """On the CPU the kernels are C++."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        if device.type == "cpu":
            get_cpp_compiler()
    except InvalidCxxCompiler:
        raise RecipeError(
            "there is no C++ compiler on this machine",
            where="training.compile",
            hint="install g++, name a compiler in the variable CXX, or set training.compile=false",
        ) from None
