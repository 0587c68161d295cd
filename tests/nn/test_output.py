"""Output layers: sampled and adaptive softmax against the whole softmax."""

from decimal import Decimal, localcontext

import pytest
import torch
from tolerance import close, rounding
from torch.nn import functional as F

from seqlab.errors import RecipeError
from seqlab.nn.embedding import TokenEmbedding
from seqlab.nn.output import AdaptiveSoftmax, SampledSoftmax, Softmax, output_layer

VOCAB, WIDTH = 50, 16


def sampled(samples, tied=True, vocab_size=VOCAB):
    torch.manual_seed(0)
    embedding = TokenEmbedding(vocab_size, WIDTH)
    settings = SampledSoftmax.Settings(kind="sampled", samples=min(samples, vocab_size), tied=tied)
    layer = SampledSoftmax(settings, WIDTH, vocab_size, embedding)
    layer.samples = samples  # a recipe may ask for as many as there are tokens; limits need more
    layer.bias.data.normal_()
    return layer, embedding


@pytest.mark.parametrize("tied", [True, False])
def test_many_samples_come_close_to_the_whole_softmax(tied):
    layer, embedding = sampled(200_000, tied)
    states, targets = torch.randn(20, WIDTH) * 0.5, torch.randint(VOCAB, (20,))
    with torch.no_grad():
        estimated = layer.train().losses(states, targets, embedding)
        exact = layer.eval().losses(states, targets, embedding)
    torch.testing.assert_close(estimated, exact, atol=0.02, rtol=0)
    whole = F.cross_entropy(layer.logits(states, embedding), targets, reduction="none")
    close(exact, whole, steps=WIDTH + VOCAB, size=10)


def test_the_estimate_of_the_sum_is_unbiased():
    """exp(loss + own score) is the estimate of Z: its mean over many draws is Z."""
    layer, embedding = sampled(20)
    states, targets = torch.randn(1, WIDTH) * 0.5, torch.tensor([3])
    with torch.no_grad():
        scores = layer.logits(states, embedding)[0]
        draws = torch.stack([layer.train().losses(states, targets, embedding)[0] for _ in range(4000)])
    assert (draws + scores[3]).exp().mean() == pytest.approx(scores.exp().sum().item(), rel=0.03)


def test_samples_follow_the_stated_distribution():
    layer, _ = sampled(400_000)
    drawn = torch.bincount(layer._draw(torch.device("cpu")), minlength=VOCAB) / 400_000
    chance = layer._chance(torch.arange(VOCAB))
    assert chance.sum() == pytest.approx(1, abs=rounding(VOCAB))
    torch.testing.assert_close(drawn, chance, atol=0.003, rtol=0)


def test_chances_are_exact_in_a_large_vocabulary():
    """Against 40 digits, down to the last ids: in float32 (k+2)/(k+1) has one or two digits left there."""
    size = 5_000_000
    layer = SampledSoftmax(SampledSoftmax.Settings(kind="sampled", tied=False), 1, size, None)
    ids = [0, 1, 2, 1000, 123_456, size - 3, size - 2, size - 1]
    with localcontext() as context:
        context.prec = 40
        exact = [float((Decimal(k + 2) / (k + 1)).ln() / Decimal(size + 1).ln()) for k in ids]
    assert layer._chance(torch.tensor(ids)).tolist() == pytest.approx(exact, rel=rounding(3))
    assert layer._chance(torch.arange(size)).double().sum().item() == pytest.approx(1, abs=rounding(3))


def test_only_the_sampled_rows_have_gradients():
    layer, embedding = sampled(3, vocab_size=1000)
    layer.train().losses(torch.randn(2, WIDTH), torch.tensor([7, 500]), embedding).sum().backward()
    touched = embedding.weight.grad.abs().sum(1) > 0
    assert touched[[7, 500]].all()
    assert touched.sum() <= 5


@pytest.mark.usefixtures("double")
def test_adaptive_probabilities_sum_to_one_and_rare_words_have_narrow_vectors():
    settings = AdaptiveSoftmax.Settings(kind="adaptive", cutoffs=[10, 30, 900], shrink=4)
    layer = AdaptiveSoftmax(settings, WIDTH, VOCAB, None)
    states = torch.randn(5, 2, WIDTH)
    chances = layer.logits(states, None).exp()
    close(chances.sum(-1), torch.ones(5, 2))
    assert [tail[0].out_features for tail in layer.clusters.tail] == [4, 1]  # 900 is beyond the vocabulary


@pytest.mark.parametrize(
    ("settings", "width", "message"),
    [
        ({"kind": "softmax"}, WIDTH + 1, "as wide as the embeddings"),
        ({"kind": "adaptive", "cutoffs": [900]}, WIDTH, "inside the vocabulary of 50"),
        ({"kind": "adaptive", "cutoffs": [9, 20, 30], "shrink": 4}, 8, r"shrink: 3 clusters, .* nothing of width 8"),
        ({"kind": "sampled", "samples": 51}, WIDTH, r"samples: 51 samples exceed the vocabulary of 50 tokens"),
        ({"kind": "sampled", "samples": 10**12}, WIDTH, "use fewer"),
    ],
)
def test_what_does_not_fit_is_refused(settings, width, message):
    layers = {"softmax": Softmax, "sampled": SampledSoftmax, "adaptive": AdaptiveSoftmax}
    made = layers[settings["kind"]].Settings(**settings)
    with pytest.raises(RecipeError, match=message):
        output_layer(made, width, VOCAB, TokenEmbedding(VOCAB, WIDTH))


def test_tied_weights_need_embeddings():
    with pytest.raises(RecipeError, match="tied=false"):
        output_layer(Softmax.Settings(kind="softmax"), WIDTH, VOCAB, None)


def test_cutoffs_must_grow():
    with pytest.raises(ValueError, match="increasing ids"):
        AdaptiveSoftmax.Settings(kind="adaptive", cutoffs=[30, 10])
