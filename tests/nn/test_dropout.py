"""What a mask of dropout covers, how much it drops, and that it keeps the mean."""

import pytest
import torch
from tolerance import close

from seqlab.nn.dropout import Dropout, EmbeddingDropout, VariationalDropout, dropout


def test_a_new_mask_for_each_position():
    torch.manual_seed(0)
    dropped = dropout(0.5)(torch.ones(3, 50, 40)) == 0
    assert (dropped != dropped[:, :1]).any()


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_variational_masks_are_one_for_a_sequence(rate):
    torch.manual_seed(0)
    out = VariationalDropout(rate)(torch.ones(200, 7, 50))
    assert torch.equal(out, out[:, :1].expand_as(out))
    assert (out == 0).float().mean() == pytest.approx(rate, abs=0.02)
    assert out.mean() == pytest.approx(1, abs=0.03)
    assert (out[0] != out[1]).any()  # rows have masks of their own


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_embedding_dropout_drops_words(rate):
    torch.manual_seed(0)
    tokens = torch.randint(2000, (40, 100))
    out = EmbeddingDropout(rate, 2000)(torch.ones(40, 100, 3), tokens)
    assert torch.equal(out[..., 0], out[..., 2])
    by_word = {}
    for token, value in zip(tokens.flatten().tolist(), out[..., 0].flatten().tolist(), strict=True):
        assert by_word.setdefault(token, value) == value
    values = torch.tensor(list(by_word.values()))
    assert (values == 0).float().mean() == pytest.approx(rate, abs=0.04)
    assert values.max() == pytest.approx(1 / (1 - rate))


@pytest.mark.parametrize("part", [dropout(0.0, "sequence"), dropout(0.9, "sequence").eval()])
def test_nothing_is_dropped_at_rate_zero_and_outside_of_training(part):
    x = torch.randn(2, 3, 4)
    assert torch.equal(part(x), x)


def test_words_stay_outside_of_training():
    x = torch.randn(2, 3, 4)
    assert torch.equal(EmbeddingDropout(0.9, 5).eval()(x, torch.ones(2, 3).long()), x)


def test_each_number_is_dropped_by_chance_and_the_mean_stays():
    torch.manual_seed(0)
    for rate in (0.1, 0.3, 0.5, 0.9):
        drop, x = Dropout(rate), torch.ones(301, 1001)
        y = drop(x)
        assert (y == 0).float().mean().item() == pytest.approx(rate, abs=0.005)
        assert y.mean().item() == pytest.approx(1, abs=0.01)
        assert len(y.unique()) == 2
        rows, columns = (y == 0).float().mean(1), (y == 0).float().mean(0)
        assert (rows - rate).abs().max() < 0.08
        assert (columns - rate).abs().max() < 0.14
        assert torch.equal(drop.eval()(x), x)


def test_its_gradient_is_its_mask_and_a_seed_repeats_it():
    x = torch.randn(7, 5, requires_grad=True)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(Dropout(0.4)(x))
    assert torch.equal(*found)
    (slope,) = torch.autograd.grad(found[0].sum(), x)
    close(slope * x, found[0], steps=2)
    half = Dropout(0.4)(torch.ones(8, dtype=torch.bfloat16))
    assert half.dtype == torch.bfloat16
