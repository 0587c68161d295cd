"""Every model that reads a source, small, with weights far from zero: what the contracts are tested on."""

import copy
from collections.abc import Sequence
from functools import cache, partial

import pytest
import torch
from tolerance import SMALL_NET, rounding

from seqlab import registry
from seqlab.decoding.beam import Hypothesis
from seqlab.decoding.compiled import library
from seqlab.models.language_model import LanguageModel
from seqlab.models.recurrent_translator import RecurrentDecoder
from seqlab.recipe import part_settings
from seqlab.recipe_tree import RecipeTree

VOCAB, LABELS = 23, 3


def _made(kind: str, loudness: float, **settings) -> LanguageModel:
    model = registry.find("model", kind)(
        part_settings("model", RecipeTree({"kind": kind, **settings})), VOCAB, conditions=LABELS
    )
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(loudness)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model


def _recurrent(attention=None, **more) -> LanguageModel:
    return _made("recurrent-translator", 1.5, width=20, attention=attention, **more)


def _transformer(**more) -> LanguageModel:
    return _made("transformer", 1.2, width=24, depth=2, heads=3, **more)


BUCKETS = {"kind": "buckets", "buckets": 6, "farthest": 5}

ENCODERS = [
    {"kind": "transformer-encoder", "width": 24, "depth": 1, "heads": 3},
    {"kind": "recurrent-encoder", "width": 9, "cell": "gru"},
    {"kind": "convolutional-encoder", "width": 20, "depth": 1},
]
DECODERS = [
    {"kind": "recurrent", "width": 18, "cell": "gru", "attention": "additive"},
    {"kind": "convolutional", "width": 16, "depth": 1},
    {"kind": "transformer", "width": 24, "depth": 1, "heads": 2},
]
"""Each joined to the encoder in its place, which is of another kind and width."""


def _joined(encoder, decoder) -> LanguageModel:
    return _made("translator", 1.5, encoder=encoder, decoder=decoder)


BUILDERS = {
    "v1": _recurrent,
    "v1-depth-2-gru": lambda: _recurrent(depth=2, cell="gru"),
    "v2": lambda: _recurrent("additive"),
    "v3": lambda: _recurrent("additive", both_ways="first"),
    "v4": lambda: _recurrent("additive", both_ways="first", depth=3),
    "v6": lambda: _recurrent("additive", both_ways="first", depth=4, connections="residual"),
    "asks-before": lambda: _recurrent({"kind": "additive", "asks": "before"}, depth=2, both_ways="all"),
    "feeding": lambda: _recurrent({"kind": "dot", "feeding": True}),
    "coverage": lambda: _recurrent({"kind": "additive", "coverage": True}),
    "coverage-before": lambda: _recurrent({"kind": "bilinear", "coverage": True, "asks": "before"}),
    "bilinear-gated": lambda: _recurrent({"kind": "bilinear", "gated": True}),
    "dot": lambda: _recurrent("dot"),
    "scaled-dot-sparse": lambda: _recurrent({"kind": "scaled-dot", "form": "sparse"}),
    "additive-hard": lambda: _recurrent({"kind": "additive", "form": "hard"}),
    "additive-local": lambda: _recurrent({"kind": "additive", "form": "local"}),
    "separate": lambda: _recurrent("separate"),
    "uniform": lambda: _recurrent("uniform"),
    "encoder-of-its-own": lambda: _recurrent("additive", shared=False, encoder_depth=2),
    "convolutional": lambda: _made("convolutional-translator", 1.2, width=24, depth=2),
    "convolutional-wide": lambda: _made(
        "convolutional-translator", 1.2, width=24, depth=3, kernel_size=5, shared=False
    ),
    "transformer": _transformer,
    "transformer-2017": lambda: _transformer(norm_first=False, activation="relu", hidden_width=40),
    "transformer-rotary": lambda: _transformer(position="rotary", norm="rms", gated=True, key_heads=1),
    "transformer-quiet-buckets": lambda: _transformer(position=BUCKETS, scores="quiet", bias=False),
    "transformer-six-heads": lambda: _made("transformer", 1.2, width=96, depth=2, heads=6),
    "transformer-learned": lambda: _transformer(position={"kind": "learned", "length": 2000}),
    "transformer-causal-encoder": lambda: _joined({**ENCODERS[0], "width": 48, "both_ways": False}, DECODERS[2]),
    **{
        f"{encoder['kind']}-{decoder['kind']}": partial(_joined, encoder, decoder)
        for encoder, decoder in zip(ENCODERS, DECODERS, strict=True)
    },
    "transformer-shallow-decoder": lambda: _transformer(encoder_depth=3, activation="swish", shared=False),
}


def build(name: str, seed: int = 1) -> LanguageModel:
    """A new model; the same seed gives the same weights."""
    torch.manual_seed(seed)
    return BUILDERS[name]().eval()


@cache
@torch.inference_mode(False)  # whoever asks first
def shipped(name: str) -> LanguageModel:
    """One that tests share and do not change."""
    return build(name)


@cache
@torch.inference_mode(False)  # whoever asks first
def exact(name: str) -> LanguageModel:
    """The same in double precision."""
    return copy.deepcopy(shipped(name)).double()


def assert_same(found: Sequence[Hypothesis], alone: Sequence[Hypothesis], name: str, long: bool = False) -> None:
    """To the bit. Where nothing can be compiled, the attention of recurrent decoders, any that is no plain softmax, and
    all attention to a `long` source (more than 192 keys) multiply by the library, whose last bits depend on the rows:
    then up to rounding errors."""
    by_library = long or isinstance(shipped(name).decoder, RecurrentDecoder) or "quiet" in name
    if library() is not None or not by_library:
        assert found == alone
        return
    assert [one.tokens for one in found] == [one.tokens for one in alone]
    near = max(len(one.tokens) for one in alone) * rounding(SMALL_NET, 10)
    assert [one.rank for one in found] == pytest.approx([one.rank for one in alone], abs=near)


def some_sources(lengths, seed: int = 0) -> dict[str, torch.Tensor]:
    """A label and words; padding is junk."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCAB, (len(lengths), max(lengths)), generator=generator)
    tokens[:, 0] = VOCAB + torch.randint(LABELS, (len(lengths),), generator=generator)
    return {"tokens": tokens, "mask": torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]}


def row_of(source, row: int) -> dict[str, torch.Tensor]:
    """One source by itself, without its padding."""
    length = int(source["mask"][row].sum())
    return {name: tensor[row : row + 1, :length] for name, tensor in source.items()}
