"""Tags that are fed back: all positions at once where the right ones are known, one by one where they are its own."""

import pytest
import torch
from tolerance import close
from torch.nn import functional as F

from seqlab.data.batching.batches import Batch
from seqlab.models.encoder import Encoded, Encoder
from seqlab.objectives.feedback import FedBackTags
from seqlab.objectives.tags import TagScores

pytestmark = pytest.mark.usefixtures("double")

ROWS, LENGTH, WIDTH, NAMES = 3, 6, 5, ["a", "b", "c", "d"]
MASK = torch.arange(LENGTH) < torch.tensor([[6], [2], [4]])


class Given(Encoder):
    width = WIDTH

    def forward(self, batch):
        return Encoded(batch["states"], batch["mask"])


@pytest.fixture
def batch():
    torch.manual_seed(0)
    states = torch.randn(ROWS, LENGTH, WIDTH).masked_fill(~MASK[..., None], 99.0)
    return Batch(states=states, mask=MASK, tags=torch.randint(4, (ROWS, LENGTH)).where(MASK, 0))


def objective(**forcing):
    torch.manual_seed(1)
    settings = FedBackTags.Settings(kind="fed-back-tags", forcing=forcing)
    return FedBackTags(settings, Given(), TagScores(WIDTH, NAMES))


def by_hand(one, batch, fed):
    """Scores of each real position in turn; `fed` says which tag goes into the next one."""
    for row in range(ROWS):
        before = 4
        for t in range(int(MASK[row].sum())):
            a = torch.tanh(batch["states"][row, t] + one.head.feedback.weight[before])
            scores = one.head.scores.weight @ a + one.head.scores.bias
            yield row, t, scores
            before = fed(row, t, scores)


def test_learning_follows_the_right_tags(batch):
    one = objective()
    tags = batch["tags"]
    expected = sum(
        F.cross_entropy(scores, tags[row, t])
        for row, t, scores in by_hand(one, batch, lambda row, t, scores: tags[row, t])
    )
    loss = one.train()(batch)
    close(loss.sum, expected)
    assert int(loss.count) == 12
    close(one.eval()(batch).sum, expected)


def test_in_use_it_follows_its_own(batch):
    one = objective().eval()
    own = {}
    for row, t, scores in by_hand(one, batch, lambda row, t, scores: int(scores.argmax())):
        own[row, t] = NAMES[int(scores.argmax())]
    answers = one.best(Batch({name: batch[name] for name in ("states", "mask")}))
    assert {(row, t): tag for row, tags in enumerate(answers) for t, tag in enumerate(tags)} == own
    right = sum(NAMES[batch["tags"][row, t]] == tag for (row, t), tag in own.items())
    assert int(one(batch).parts["right"]) == right  # the right ones are known here, and not looked at


def test_free_running_is_use(batch):
    """With as many passes as there are positions, own tags are found exactly."""
    one = objective(own=1.0, shape="constant", passes=LENGTH, choose="best").train()
    expected = sum(
        F.cross_entropy(scores, batch["tags"][row, t])
        for row, t, scores in by_hand(one, batch, lambda row, t, scores: int(scores.argmax()))
    )
    close(one(batch).sum, expected)


def test_a_tag_that_is_not_known_is_as_if_nothing_were_there(batch):
    one = objective().eval()
    batch["tags"][0, 2] = -1
    scores = one.scores(batch["states"], batch["tags"])
    a = torch.tanh(batch["states"][0, 3] + one.head.feedback.weight[4])
    close(scores[0, 3], one.head.scores(a))
