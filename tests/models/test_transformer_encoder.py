"""A Transformer that reads: against the library's layer, and what a position may look at."""

from functools import partial

import pytest
import torch
from tolerance import close
from torch.nn import functional as F

from seqlab.models.transformer_encoder import TransformerEncoder
from seqlab.nn.positions import sinusoids

pytestmark = pytest.mark.usefixtures("double")

TOKENS = torch.tensor([[5, 3, 2, 7], [4, 6, 0, 0]])
MASK = torch.tensor([[True] * 4, [True, True, False, False]])


def encoder(**settings):
    torch.manual_seed(0)
    own = TransformerEncoder.Settings(kind="transformer-encoder", width=12, heads=3, depth=2, **settings)
    return TransformerEncoder(own, vocab_size=8).eval()


@pytest.mark.parametrize("both_ways", [True, False])
def test_equals_the_librarys_layers(both_ways):
    ours = encoder(both_ways=both_ways)
    gelu = partial(F.gelu, approximate="tanh")
    theirs = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(12, 3, 48, 0.0, gelu, batch_first=True, norm_first=True),
        num_layers=2,
        norm=torch.nn.LayerNorm(12),
        enable_nested_tensor=False,
    ).eval()
    names = {
        "self_attn.in_proj_": "attend.query_key_value.",
        "self_attn.out_proj": "attend.output",
        "linear1": "feed.expand",
        "linear2": "feed.contract",
        "norm1": "norm_attend",
        "norm2": "norm_feed",
        "layers": "blocks",
    }
    weights = {}
    for name in theirs.state_dict():
        mine = name
        for old, new in names.items():
            mine = mine.replace(old, new)
        weights[name] = dict(ours.named_parameters())[mine]
    theirs.load_state_dict(weights)
    x = ours.embedding(TOKENS) * 12**0.5 + sinusoids(torch.arange(4), 12, torch.zeros(12))
    causal = None if both_ways else torch.nn.Transformer.generate_square_subsequent_mask(4)
    expected = theirs(x, mask=causal, src_key_padding_mask=torch.zeros(2, 4).masked_fill(~MASK, -torch.inf))
    close(ours({"tokens": TOKENS, "mask": MASK}).states[MASK], expected[MASK])


@pytest.mark.parametrize("both_ways", [True, False])
def test_padding_changes_nothing_and_what_follows_only_if_it_may(both_ways):
    model = encoder(both_ways=both_ways)
    states = model({"tokens": TOKENS, "mask": MASK}).states
    alone = model({"tokens": TOKENS[1:, :2], "mask": MASK[1:, :2]}).states
    close(states[1:, :2], alone)
    changed = torch.where(torch.arange(4) == 3, 1, TOKENS)
    other = model({"tokens": changed, "mask": MASK}).states
    assert torch.allclose(other[0, 0], states[0, 0]) == (not both_ways)


def test_sinusoids_as_in_the_paper():
    found = sinusoids(torch.arange(50), 7, torch.zeros(7, dtype=torch.float32))
    near = {"steps": 12, "size": 50}  # a rate is exp of up to 9, and an angle up to 50 of them
    for t, i in ((0, 0), (3, 1), (49, 3)):
        angle = torch.tensor(t / 10_000 ** (2 * i / 7))
        close(found[t, 2 * i], angle.sin(), **near)
        if 2 * i + 1 < 7:
            close(found[t, 2 * i + 1], angle.cos(), **near)
