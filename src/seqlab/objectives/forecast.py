"""Forecasting losses: the distance between forecasts and the true values.

B rows · T steps · H horizon · O variables that are forecast
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch
from seqlab.models.forecasters import Forecaster
from seqlab.models.language_model import State
from seqlab.nn.summary import last
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings

LOSSES: dict[str, Callable[..., Tensor]] = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}


class Forecast(Objective):
    """Σ (ŷ − y)² over what follows the last step of each window, or each of its steps; every number counts as one.

    Evaluations also sum the errors after the last step for each variable, in the units of the data, and those of the
    naive forecast.
    """

    class Settings(PartSettings):
        loss: Literal["mse", "mae", "huber"] = "mse"
        """The error: squared, absolute, or Huber (squared below 1, absolute above)."""

    body_type = Forecaster
    body: Forecaster

    def __init__(self, settings: Settings, body: Forecaster, head: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.loss = body, LOSSES[settings.loss]

    def forward(self, batch: Batch, state: State | None = None) -> Loss:
        targets, mask = batch["targets"], batch.get("mask")
        every = targets.dim() == 4
        forecasts = self.body(batch["inputs"], mask, every)
        if not every:
            targets = targets[:, None]
        parts = {} if self.training else _errors(forecasts, targets, mask if every else None, batch)
        if every and mask is not None:
            forecasts, targets = forecasts[mask], targets[mask]
        total = self.loss(forecasts, targets, reduction="sum")
        return Loss(total, torch.tensor(targets.numel(), device=targets.device), parts)


def _errors(forecasts: Tensor, targets: Tensor, mask: Tensor | None, batch: Batch) -> dict[str, Tensor]:
    """Sum the errors after the last step of each window, in the units of the data; `squared.0` is the sum of the first
    variable. `numbers` is the count over all variables together."""
    truth, spread = last(targets, mask), batch["spread"]
    errors = (last(forecasts, mask) - truth) * spread  # (B, H, O)
    naive = (batch["naive"][:, None] - truth) * spread
    sizes = {"squared": errors.square(), "absolute": errors.abs(), "naive_squared": naive.square()}
    sums = {name: size.movedim(-1, 0).flatten(1).sum(1) for name, size in sizes.items()}
    each = {f"{name}.{place}": total for name, totals in sums.items() for place, total in enumerate(totals)}
    return {**each, "numbers": torch.tensor(truth.numel(), device=truth.device)}
