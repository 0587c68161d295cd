"""A budget becomes steps: training has nearly all of it, however long a pause for an evaluation takes."""

import pytest

from seqlab.runs.preparation import PAUSES, SHARE_OF_PAUSES, affordable


@pytest.mark.parametrize("budget", [1.0, 20.0, 600.0])
@pytest.mark.parametrize("pause", [0.001, 0.5, 30.0])
def test_training_has_most_of_a_budget(budget, pause):
    step = 0.01
    steps, pauses = affordable(budget, step, pause)
    assert 1 <= pauses <= PAUSES
    assert (1 - SHARE_OF_PAUSES) * budget <= steps * step <= budget
    if pauses > 1:
        assert steps * step + pauses * pause <= budget * (1 + 1e-9)
