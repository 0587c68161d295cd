"""Optimizers by name, from PyTorch. Weight decay applies to matrices only, never to biases and norms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn

from seqlab.recipe import PartSettings

Smoothing = Annotated[float, Field(ge=0, lt=1)]
"""The share of a running average that is kept at each step."""


class OptimizerSettings(PartSettings):
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of matrices, never of biases and norms. Added to the gradient; decoupled with AdamW and Muon."""


def groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return two groups of weights: matrices, which decay, and the rest, which do not."""
    weights = [p for p in module.parameters() if p.requires_grad]
    return [
        {"params": [p for p in weights if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in weights if p.dim() <= 1], "weight_decay": 0.0},
    ]


def fused(module: nn.Module) -> bool:
    """Whether PyTorch has fused (one-pass) kernels for the module."""
    return all(p.device.type in ("cpu", "cuda", "mps") and p.is_floating_point() for p in module.parameters())


class SGD:
    """w ← w − η ∇"""

    class Settings(OptimizerSettings):
        pass

    def build(self, module: nn.Module, rate: float, settings: Settings) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups(module, settings.weight_decay), rate)


class Momentum:
    """m ← μ m + ∇, w ← w − η m"""

    class Settings(OptimizerSettings):
        momentum: float = Field(default=0.9, ge=0, lt=1)

    def build(self, module: nn.Module, rate: float, settings: Settings) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups(module, settings.weight_decay), rate, momentum=settings.momentum)


class Nesterov:
    """Nesterov momentum, which looks ahead: w ← w − η (∇ + μ m)"""

    class Settings(Momentum.Settings):
        pass

    def build(self, module: nn.Module, rate: float, settings: Settings) -> torch.optim.Optimizer:
        decayed = groups(module, settings.weight_decay)
        return torch.optim.SGD(decayed, rate, momentum=settings.momentum, nesterov=True)


class RMSProp:
    """v ← α v + (1 − α) ∇², w ← w − η ∇ / √v"""

    class Settings(OptimizerSettings):
        smoothing: float = Field(default=0.99, ge=0, lt=1)

    def build(self, module: nn.Module, rate: float, settings: Settings) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(groups(module, settings.weight_decay), rate, alpha=settings.smoothing)


class Adam:
    """m ← β₁ m + (1 − β₁) ∇, v ← β₂ v + (1 − β₂) ∇², w ← w − η m̂ / (√v̂ + ε); decay is added to the gradient.

    Kingma & Ba 2015, https://arxiv.org/abs/1412.6980
    """

    class Settings(OptimizerSettings):
        betas: tuple[Smoothing, Smoothing] = (0.9, 0.999)
        epsilon: float = Field(default=1e-8, gt=0)

    def build(self, module: nn.Module, rate: float, settings: Settings) -> torch.optim.Optimizer:
        decayed = groups(module, settings.weight_decay)
        return torch.optim.Adam(decayed, rate, settings.betas, settings.epsilon, fused=fused(module))


class AdamW:
    """Adam with decoupled weight decay. Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101"""

    class Settings(Adam.Settings):
        betas: tuple[Smoothing, Smoothing] = (0.9, 0.99)
        weight_decay: float = Field(default=0.1, ge=0)

    def build(self, module: nn.Module, rate: float, settings: Settings) -> torch.optim.Optimizer:
        decayed = groups(module, settings.weight_decay)
        return torch.optim.AdamW(decayed, rate, settings.betas, settings.epsilon, fused=fused(module))


class Muon:
    """Orthogonalised momentum for the matrices of hidden layers (an approximate second-order step); AdamW for
    embeddings, output layers, biases and norms.

    Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/
    """

    class Settings(AdamW.Settings):
        momentum: float = Field(default=0.95, ge=0, lt=1)

    def build(self, module: nn.Module, rate: float, settings: Settings) -> torch.optim.Optimizer:
        outer = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
        outer |= {id(p) for name, p in module.named_parameters() if re.match(r"head\.|\w+\.output\.", name)}
        weights = [p for p in module.parameters() if p.requires_grad]
        hidden = [p for p in weights if p.dim() == 2 and id(p) not in outer]
        rest = [p for p in weights if p.dim() != 2 or id(p) in outer]
        members: list[torch.optim.Optimizer] = []
        if hidden:
            # scaled to match AdamW's step size, so that one learning rate serves both
            members += [
                torch.optim.Muon(hidden, rate, settings.weight_decay, settings.momentum, adjust_lr_fn="match_rms_adamw")
            ]
        if rest:
            betas, epsilon = settings.betas, settings.epsilon
            members += [torch.optim.AdamW(rest, rate, betas, epsilon, weight_decay=0.0, fused=fused(module))]
        return Together(members)


class Together(torch.optim.Optimizer):
    """Several optimizers as one, each with its own share of the weights."""

    def __init__(self, members: Sequence[torch.optim.Optimizer]) -> None:
        self.members = members
        super().__init__([group for member in members for group in member.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Share groups and state, so that changes of the learning rate and checkpoints reach every member."""
        given = iter(self.param_groups)
        for member in self.members:
            member.param_groups = [next(given) for _ in member.param_groups]
            member.state = self.state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for member in self.members:
            member.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()
