"""The norm stabilizer: a closed form, and training only."""

import pytest
import torch
from tolerance import close

from seqlab.data.batching.batches import Batch
from seqlab.models.rnn import RecurrentLanguageModel
from seqlab.objectives.next_token import NextToken, norm_changes


def test_norm_changes_by_hand():
    states = torch.tensor([[[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]]])  # norms 5, 1, 10
    assert norm_changes(states, None) == 16 + 81
    assert norm_changes(states, torch.tensor([[True, True, False]])) == 16


@pytest.mark.usefixtures("double")
def test_the_penalty_is_added_in_training_only():
    torch.manual_seed(0)
    body = RecurrentLanguageModel(RecurrentLanguageModel.Settings(kind="recurrent", width=8), 7)
    batch = Batch({"tokens": torch.randint(7, (2, 9)), "targets": torch.randint(7, (2, 9))})
    plain, steady = (NextToken(NextToken.Settings(kind="next-token", norm_stabilizer=b), body) for b in (0.0, 2.0))
    penalty = norm_changes(body(batch["tokens"]).states, None)
    close(steady(batch).sum, plain(batch).sum + 2 * penalty)
    close(steady.eval()(batch).sum, plain.eval()(batch).sum)
