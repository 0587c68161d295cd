"""Against the sum and the maximum over all sequences, one by one, in double precision.

B rows · T positions · N tags
"""

from itertools import pairwise, product

import pytest
import torch
from tolerance import close
from torch import nn

from seqlab.nn.crf import CRF
from seqlab.objectives.tags import EachAlone, TagScores, allowed_by

B, T, N = 4, 5, 3
LENGTHS = [5, 1, 3, 4]
MASK = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
NAMES = ["B-X", "I-X", "O"]


def made(rules=False):
    torch.manual_seed(3)
    crf = CRF(N, allowed_by(TagScores(2, NAMES, "BIO")) if rules else None).double()
    for weight in crf.parameters():
        nn.init.normal_(weight)
    return crf, torch.randn(B, T, N, dtype=torch.double)


def score(crf, scores, path):
    """The equation, term by term; −∞ for what is forbidden."""
    outside = N
    total = crf.first[path[0]] + crf.last[path[-1]] + sum(scores[t, tag] for t, tag in enumerate(path))
    total = total + sum(crf.transitions[a, b] for a, b in pairwise(path))
    pairs = zip([outside, *path], [*path, outside], strict=True)
    return total if not any(crf.forbidden[a, b] for a, b in pairs) else torch.tensor(-torch.inf, dtype=torch.double)


def all_scores(crf, scores, length):
    return {path: score(crf, scores, path) for path in product(range(N), repeat=length)}


@pytest.mark.parametrize("rules", [False, True])
def test_the_forward_algorithm_sums_over_all_sequences(rules):
    crf, scores = made(rules)
    found = crf.log_partition(scores, MASK)
    for row, length in enumerate(LENGTHS):
        whole = torch.stack([*all_scores(crf, scores[row], length).values()]).logsumexp(0)
        close(found[row], whole)


@pytest.mark.parametrize("rules", [False, True])
def test_probabilities_of_all_sequences_sum_to_one(rules):
    crf, scores = made(rules)
    for row, length in enumerate(LENGTHS):
        paths = torch.tensor(list(product(range(N), repeat=length)))
        repeated = scores[row : row + 1, :length].expand(len(paths), -1, -1)
        mask = torch.ones_like(paths, dtype=torch.bool)
        probabilities = (-crf.losses(repeated, paths, mask)).exp()
        assert probabilities.sum().item() == pytest.approx(1, abs=1e-12)
        assert torch.equal(crf.possible(paths, mask), probabilities > 0)
        for path, found in zip(paths.tolist(), probabilities, strict=True):
            expected = (score(crf, scores[row], path) - crf.log_partition(scores, MASK)[row]).exp()
            close(found, expected)


@pytest.mark.parametrize("rules", [False, True])
def test_viterbi_finds_the_best_of_all_sequences(rules):
    crf, scores = made(rules)
    for turn in range(10):
        torch.manual_seed(turn)
        scores = 2 * torch.randn(B, T, N, dtype=torch.double)
        found = crf.best(scores, MASK).tolist()
        for row, length in enumerate(LENGTHS):
            every = all_scores(crf, scores[row], length)
            assert tuple(found[row][:length]) == max(every, key=lambda path: every[path].item())
            assert found[row][length:] == [0] * (T - length)


def test_nothing_forbidden_is_ever_chosen():
    """Even where the scores ask for nothing else."""
    crf, _ = made(rules=True)
    scores = torch.zeros(B, T, N, dtype=torch.double)
    scores[..., 1] = 50.0  # I-X everywhere
    assert 1 not in crf.best(scores, MASK)[:, 0]
    assert crf.possible(crf.best(scores, MASK), MASK).all()


def test_gradients():
    crf, scores = made(rules=True)
    tags = torch.tensor([[0, 1, 1, 2, 0], [2, 0, 0, 0, 0], [2, 0, 1, 0, 0], [0, 0, 1, 1, 0]])
    assert crf.possible(tags, MASK).all()
    weights = [weight.detach().requires_grad_() for weight in crf.parameters()]

    def losses(scores, *weights):
        named = dict(zip(dict(crf.named_parameters()), weights, strict=True))
        return torch.func.functional_call(crf, named, (scores,), {"tags": tags, "mask": MASK})

    crf.forward = crf.losses
    assert torch.autograd.gradcheck(losses, (scores.requires_grad_(), *weights))


def test_padding_changes_nothing():
    crf, scores = made()
    tags = torch.zeros(B, T, dtype=torch.long)
    before = crf.losses(scores, tags, MASK)
    other = torch.where(MASK[..., None], scores, torch.randn_like(scores) * 100)
    assert torch.equal(crf.losses(other, torch.where(MASK, tags, 2), MASK), before)
    cuts = [(slice(row, row + 1), slice(length)) for row, length in enumerate(LENGTHS)]
    alone = [crf.losses(scores[cut], tags[cut], MASK[cut]) for cut in cuts]
    close(torch.cat(alone), before)


def test_without_transitions_it_is_a_softmax_for_each():
    crf, scores = CRF(N).double(), made()[1]
    tags = torch.randint(N, (B, T))
    close(crf.losses(scores, tags, MASK), EachAlone().losses(scores, tags, MASK))
    assert torch.equal(crf.best(scores, MASK), EachAlone().best(scores, MASK))


def test_no_rows_at_all():
    crf, scores = made()
    assert crf.losses(scores[:0], torch.zeros(0, T, dtype=torch.long), MASK[:0]).shape == (0,)
