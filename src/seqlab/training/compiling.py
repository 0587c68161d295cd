"""Compiled objectives (`training.compile`): PyTorch fuses the operations between matrix products into kernels.

Compilation is optional, because its results differ from the uncompiled ones in the last bits. Each kernel is compiled
for one kind of batch, never for "any shape", so that the kernel used for a batch does not depend on earlier batches.
Otherwise a resumed run would end with other bits.
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
"""Maximum number of kinds of batches in a run; each takes seconds to compile."""


class Compiled(nn.Module):
    """A compiled objective for training. It shares its weights with the original, which evaluates and is saved."""

    def __init__(self, objective: Objective, device: torch.device, tell: Callable[[float], None]) -> None:
        """`tell` is called with the seconds that each new kind of batch took to compile."""
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
    """Check for a C++ compiler on the CPU, where kernels are C++."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        if device.type == "cpu":
            get_cpp_compiler()
    except InvalidCxxCompiler:
        raise RecipeError(
            "there is no C++ compiler on this machine",
            where="training.compile",
            hint="install g++, set the variable CXX to a compiler, or set training.compile=false",
        ) from None
