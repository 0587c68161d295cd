"""Functions of the library whose bits depend on where a number stands: in a whole vector, or among the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

UNSTEADY = {torch.sigmoid, Tensor.sigmoid, F.sigmoid, F.silu, F.gelu, F.softplus, F.mish}


class Unsteady(TorchFunctionMode):
    """Notes the names of those that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in UNSTEADY:
            self.called.add(func.__name__)
        return func(*args, **(kwargs or {}))
