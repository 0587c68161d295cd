"""The sums of forecasts: by hand, for what follows a window and for what follows each step."""

import pytest
import torch

from seqlab.data.batching.batches import Batch
from seqlab.models.forecasters import Forecaster
from seqlab.objectives.forecast import Forecast
from seqlab.recipe import PartSettings


class Known(Forecaster):
    """Says what it was told."""

    Settings = PartSettings

    def __init__(self, forecasts):
        super().__init__()
        self.forecasts = forecasts

    def forward(self, inputs, mask=None, every=False):
        return self.forecasts


def loss_of(forecasts, kind="mse", **batch):
    objective = Forecast(Forecast.Settings(kind="forecast", loss=kind), Known(torch.tensor(forecasts))).eval()
    return objective(Batch({name: torch.tensor(value) for name, value in batch.items()}))


@pytest.mark.parametrize(("kind", "total"), [("mse", 1 + 9), ("mae", 1 + 3), ("huber", 0.5 + 2.5)])
def test_what_follows_a_window(kind, total):
    forecasts = [[[[1.0]]], [[[5.0]]]]
    batch = {"inputs": [[[0.0]], [[3.0]]], "targets": [[[2.0]], [[2.0]]], "naive": [[0.0], [3.0]], "spread": [10.0]}
    loss = loss_of(forecasts, kind, **batch)
    assert (loss.sum, loss.count) == (total, 2)
    parts = {name: float(value) for name, value in loss.parts.items()}
    assert parts == {"squared.0": 1000, "absolute.0": 40, "naive_squared.0": 500, "numbers": 2}


def test_what_follows_each_step_and_only_real_ones():
    forecasts = [[[[1.0]], [[2.0]]], [[[3.0]], [[99.0]]]]
    targets = [[[[0.0]], [[0.0]]], [[[1.0]], [[0.0]]]]
    mask = [[True, True], [True, False]]
    batch = {"inputs": [[[0.0]] * 2] * 2, "targets": targets, "mask": mask, "naive": [[1.0], [1.0]], "spread": [1.0]}
    loss = loss_of(forecasts, **batch)
    assert (loss.sum, loss.count) == (1 + 4 + 4, 3)
    parts = {name: float(value) for name, value in loss.parts.items()}
    assert parts == {"squared.0": 4 + 4, "absolute.0": 2 + 2, "naive_squared.0": 1 + 0, "numbers": 2}


def test_each_variable_has_sums_of_its_own():
    """Two rows, two steps ahead, two variables in units of 1 and 10."""
    forecasts = [[[[1.0, 1.0], [1.0, 2.0]]], [[[0.0, 0.0], [3.0, 0.0]]]]
    batch = {"inputs": [[[0.0, 0.0]]] * 2, "targets": [[[0.0] * 2] * 2] * 2, "naive": [[2.0, 1.0]] * 2}
    parts = {name: float(value) for name, value in loss_of(forecasts, **batch, spread=[1.0, 10.0]).parts.items()}
    assert [parts[f"{name}.0"] for name in ("squared", "absolute", "naive_squared")] == [1 + 1 + 9, 1 + 1 + 3, 4 * 4]
    assert [parts[f"{name}.1"] for name in ("squared", "absolute", "naive_squared")] == [100 + 400, 10 + 20, 4 * 100]
    assert parts["numbers"] == 8
