"""Backpropagation through time, step by step: the explicit formulas compared with autograd."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from seqlab.inspection.bptt import Explicit, explicit_gradients
from seqlab.nn.cells import Elman
from seqlab.nn.recurrent import Recurrent
from seqlab.studies.study import Report, Study, StudySettings, Watch, unwatched

Weights = tuple[Tensor, Tensor, Tensor]


class BPTT(Study):
    """A small Elman net on a random sequence, in double precision. Nothing is trained."""

    class Settings(StudySettings):
        steps: int = Field(default=5, gt=0, le=200)
        width: int = Field(default=3, gt=0, le=1000)
        hidden_width: int = Field(default=6, gt=0, le=1000)
        classes: int = Field(default=4, gt=0, le=1000)
        first: int = Field(default=0, ge=0)
        """The first output that is part of the cost."""
        scale: float = Field(default=1.0, gt=0, le=10)
        """Spectral radius of the recurrent matrix: below 1 the past fades, above 1 gradients may explode."""
        seed: int = Field(default=0, ge=0)

        @model_validator(mode="after")
        def _some_output(self) -> BPTT.Settings:
            if self.first >= self.steps:
                raise ValueError("'first' must be less than 'steps', or no output is left")
            return self

    settings: Settings

    def run(self, out: Path, code: str | os.PathLike[str] | None = None, watch: Watch = unwatched) -> Report:
        own = self.settings
        weights, x, y = self._problem()
        counted = list(range(own.first, own.steps))
        explicit = explicit_gradients(weights, x, y, counted)
        automatic = by_autograd(weights, x, y, counted)
        names = ("U (inputs)", "W (recurrence)", "V (outputs)")
        ours = (explicit.u, explicit.w, explicit.v)
        rows = [
            [name, f"{mine.norm():.6g}", f"{theirs.norm():.6g}", f"{(mine - theirs).abs().max():.1e}"]
            for name, mine, theirs in zip(names, ours, automatic[:3], strict=True)
        ]
        silent = explicit.outputs[: own.first].abs().sum() == 0 and automatic[3][: own.first].abs().sum() == 0
        notes = [
            f"last output: step {k} contributes {explicit.terms[own.steps - 1, k]:.3g} to the gradient of W"
            for k in range(own.steps - 1, -1, -1)
        ]
        if own.first:
            notes.append(f"the gradient at outputs 0 to {own.first - 1} is {'exactly 0' if silent else 'NOT zero'}")
        terms = [{"t": t, "k": k, "size": size} for (t, k), size in explicit.terms.items()]
        matrices = [dict(zip(("matrix", "explicit", "autograd", "difference"), row, strict=True)) for row in rows]
        data = {"gradients": matrices, "terms": terms}
        titles = ["gradient of", "norm by the formulas", "by autograd", "largest difference"]
        return Report(titles, rows, data, lambda path: _draw(explicit, own.steps, path), notes)

    def _problem(self) -> tuple[Weights, Tensor, Tensor]:
        own, random = self.settings, torch.Generator().manual_seed(self.settings.seed)
        shapes = [
            (own.hidden_width, own.width),
            (own.hidden_width, own.hidden_width),
            (own.classes, own.hidden_width),
            (own.steps, own.width),
        ]
        u, w, v, x = (torch.randn(shape, generator=random, dtype=torch.double) for shape in shapes)
        radius = torch.linalg.eigvals(w).abs().max()
        return (u, own.scale * w / radius, v), x, torch.randint(own.classes, (own.steps,), generator=random)


def by_autograd(weights: Weights, x: Tensor, y: Tensor, counted: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the same gradients, of U, W, V and the outputs, by autograd through the shipped cell and loop."""
    u, w, v = weights
    cell = Elman(u.shape[1], u.shape[0]).to(x.dtype)
    with torch.no_grad():
        cell.input.weight.copy_(u)
        cell.recurrent.weight.copy_(w)
    net, v = Recurrent([cell]), v.clone().requires_grad_()
    states, _ = net(x[None], net.start(1, x))
    outputs = states[0] @ v.T
    loss = F.cross_entropy(outputs[counted], y[counted], reduction="sum")
    return torch.autograd.grad(loss, (cell.input.weight, cell.recurrent.weight, v, outputs))  # type: ignore[return-value]


def _draw(explicit: Explicit, steps: int, path: Path) -> None:
    from seqlab.inspection.figures import contributions

    contributions(explicit.terms, steps, path)
