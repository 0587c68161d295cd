"""Summaries of states: what they are of each row alone, whatever lies in the padding."""

import pytest
import torch
from tolerance import close

from seqlab.models.recurrent_encoder import RecurrentEncoder
from seqlab.nn.summary import AttentionSummary, ClassHead, LastSummary, summary

KINDS = ["last", "max", "mean", "attention"]
LENGTHS = [5, 1, 3]


@pytest.fixture
def padded():
    torch.manual_seed(0)
    states = torch.randn(3, 5, 6, dtype=torch.double)
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    return states, mask


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing_exactly(kind, directions, padded):
    states, mask = padded
    part = summary(kind, 6, directions).double()
    noisy = states.masked_fill(~mask[..., None], 1e9).requires_grad_()
    together = part(noisy, mask)
    for row, length in enumerate(LENGTHS):
        alone = part(states[row : row + 1, :length], mask[row : row + 1, :length])
        close(together[row : row + 1], alone)
    together.sum().backward()
    assert (noisy.grad[~mask] == 0).all()
    assert noisy.grad[mask].isfinite().all()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("last", lambda h: torch.cat([h[-1, :3], h[0, 3:]])),
        ("max", lambda h: h.max(0).values),
        ("mean", lambda h: h.mean(0)),
    ],
)
def test_what_each_one_is(kind, expected, padded):
    states, mask = padded
    for row, length in enumerate(LENGTHS):
        found = summary(kind, 6, directions=2)(states, mask)[row]
        close(found, expected(states[row, :length]))


def test_the_last_state_of_one_direction_is_whole(padded):
    states, mask = padded
    assert torch.equal(LastSummary()(states, mask)[2], states[2, 2])


def test_attention_takes_shares_and_learns_where_to_look(padded):
    states, mask = padded
    part = AttentionSummary(6).double()
    shares = part.shares(states, mask)
    close(shares.sum(1), torch.ones(3, dtype=torch.double))
    assert (shares[~mask] == 0).all()
    close(part(states, mask)[0], shares[0] @ states[0])
    torch.nn.init.zeros_(part.query.weight)  # a query of nothing looks everywhere alike
    close(part(states, mask)[2], states[2, :3].mean(0))


def test_last_of_both_ways_has_read_all_of_a_text():
    """A change of any token changes both halves."""
    torch.manual_seed(0)
    body = RecurrentEncoder(RecurrentEncoder.Settings(kind="recurrent-encoder", width=5), vocab_size=9).eval()
    assert body.directions == 2
    tokens, mask = torch.tensor([[1, 2, 3, 4, 0, 0]]), torch.tensor([[True] * 4 + [False] * 2])

    def seen(tokens):
        states, real, _ = body({"tokens": tokens, "mask": mask})
        return LastSummary(2)(states, real)[0].detach()

    before = seen(tokens)
    for place in range(6):
        other = tokens.clone()
        other[0, place] = 7
        changed = seen(other) != before
        assert changed[:5].any() == changed[5:].any() == bool(mask[0, place])


def test_the_head_drops_only_in_training(padded):
    states, mask = padded
    head = ClassHead(summary("mean", 6), 0.5, 6, 3).double()
    assert not torch.equal(head(states, mask), head(states, mask))
    head.eval()
    close(head(states, mask), head.linear(head.summary(states, mask)))
