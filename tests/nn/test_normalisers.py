"""Normalisers and their gradients, also where scores are equal."""

import pytest
import torch

from seqlab.nn.normalisers import entmax

SCORES = {
    "ties": [0.0, 0.0, -2.0, -2.0],
    "all equal": [1.0, 1.0, 1.0],
    "one wins": [5.0, 0.0, -3.0],
    "masked": [0.3, -torch.inf, 0.1, -torch.inf],
    "usual": [0.7, 0.2, -0.1, 0.5, -1.4],
}


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_gradients_of_entmax(scores):
    """J = diag(s) − s sᵀ / Σ s with s = √p; Peters et al. 2019, https://arxiv.org/abs/1905.05702"""
    x = torch.tensor(scores, dtype=torch.float64)
    root = entmax(x).sqrt()
    assert entmax(x).sum() == pytest.approx(1, abs=1e-12)
    expected = root.diag() - root[:, None] * root / root.sum()
    torch.testing.assert_close(torch.autograd.functional.jacobian(entmax, x), expected, rtol=0, atol=1e-9)
