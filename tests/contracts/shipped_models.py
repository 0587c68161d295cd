"""Every language model that seqlab ships, small, with weights far from zero: what the contracts are tested on."""

import copy
from functools import cache

import numpy as np
import torch

from seqlab.models.conv import ConvolutionalLanguageModel
from seqlab.models.gpt import GPT
from seqlab.models.language_model import LanguageModel
from seqlab.models.mixture import Mixture
from seqlab.models.mlp import MLP
from seqlab.models.ngram import NGram
from seqlab.models.rnn import RecurrentLanguageModel

VOCAB = 23
CONTEXT = 128


def _ngram(smoothing: str, order: int = 3) -> LanguageModel:
    model = NGram(NGram.Settings(kind="ngram", order=order, smoothing=smoothing), VOCAB)
    generator = np.random.default_rng(5)
    model.fit(np.minimum(generator.geometric(0.15, 60_000) - 1, VOCAB - 1))  # skewed; 0 ends a document
    return model


def _recurrent(cell, depth: int = 1, output="softmax", loudness: float = 1.5, **more) -> LanguageModel:
    shape = {"cell": cell, "width": 20, "depth": depth, "output": output, **more}
    settings = RecurrentLanguageModel.Settings(kind="recurrent", **shape)
    return _loud(RecurrentLanguageModel(settings, VOCAB), loudness)


def _gpt(**more) -> LanguageModel:
    settings = GPT.Settings(kind="gpt", width=24, depth=2, heads=3, context=CONTEXT, **more)
    return _loud(GPT(settings, VOCAB), 6.0)


def _mlp(**more) -> LanguageModel:
    return _loud(MLP(MLP.Settings(kind="mlp", window=4, width=12, hidden_width=20, **more), VOCAB), 2.5)


def _conv(**more) -> LanguageModel:
    settings = ConvolutionalLanguageModel.Settings(kind="convolutional", width=20, depth=3, **more)
    return _loud(ConvolutionalLanguageModel(settings, VOCAB), 3.0)


def _mixture() -> LanguageModel:
    """A GPT beside an n-gram: floats and ids, caches and contexts."""
    parts = [_gpt(), _ngram("modified-kneser-ney")]
    settings = [{"kind": "gpt", "width": 24, "depth": 2, "heads": 3, "context": CONTEXT}, {"kind": "ngram", "order": 3}]
    model = Mixture(Mixture.Settings(kind="mixture", parts=settings), VOCAB)
    for own, part in zip(model.parts, parts, strict=True):
        own.load_state_dict(part.state_dict())
    model.weights.copy_(torch.tensor([0.7, 0.3]))
    return model


def _loud(model: LanguageModel, factor: float) -> LanguageModel:
    """Weights large enough that every part of the model matters to its output, biases and norms included."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(factor)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model


def _elman(activation: str):
    return {"kind": "elman", "activation": activation}


UNTIED = {"kind": "softmax", "tied": False}
ADAPTIVE = {"kind": "adaptive", "cutoffs": [5, 12], "shrink": 2}
LLAMA = {"position": "rotary", "norm": "rms", "gated": True, "activation": "swish", "bias": False, "key_heads": 1}
SAMPLED = {"kind": "sampled", "samples": 8}

BUILDERS = {
    "ngram-counts": lambda: _ngram("counts", order=2),
    "ngram-add-k": lambda: _ngram("add-k"),
    "ngram-stupid-backoff": lambda: _ngram("stupid-backoff"),
    "ngram-kneser-ney": lambda: _ngram("kneser-ney"),
    "ngram-modified-kneser-ney": lambda: _ngram("modified-kneser-ney", order=4),
    "ngram-unigram": lambda: _ngram("add-k", order=1),
    "mlp": _mlp,
    "mlp-one-hot": lambda: _mlp(input="one-hot", activation="sigmoid"),
    "lstm": lambda: _recurrent("lstm"),
    "lstm-untied": lambda: _recurrent("lstm", depth=2, output=UNTIED, embedding=8),
    "lstm-depth-2": lambda: _recurrent("lstm", depth=2),
    "lstm-adaptive": lambda: _recurrent("lstm", output=ADAPTIVE),
    "gru": lambda: _recurrent("gru"),
    "lstm-under-gru": lambda: _recurrent(["lstm", "gru"], depth=2),
    "gru-sampled": lambda: _recurrent("gru", depth=2, output=SAMPLED),
    "elman-tanh": lambda: _recurrent(_elman("tanh")),
    "elman-relu": lambda: _recurrent(_elman("relu"), loudness=0.9),  # above 1 its states grow without end
    "elman-sigmoid": lambda: _recurrent(_elman("sigmoid"), depth=2, output=UNTIED),
    "convolutional": _conv,
    "convolutional-contiguous": lambda: _conv(growth=1, kernel_size=4, output=UNTIED),
    "gpt": _gpt,
    "gpt-norm-after": lambda: _gpt(norm_first=False, activation="relu", hidden_width=40),
    "gpt-swish": lambda: _gpt(activation="swish"),
    "gpt-adaptive": lambda: _gpt(output=ADAPTIVE),
    "gpt-llama": lambda: _gpt(**LLAMA),
    "gpt-alibi": lambda: _gpt(position="alibi", bias=False),
    "gpt-buckets": lambda: _gpt(position={"kind": "buckets", "buckets": 8, "farthest": 20}, gated=True),
    "gpt-quiet": lambda: _gpt(position="none", scores="quiet"),
    "gpt-sparse": lambda: _gpt(position={"kind": "learned", "concatenate": 4}, scores="sparse", output=UNTIED),
    "mixture": _mixture,
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
    """The same in double precision; but n-grams look numbers up, and a mixture holds what its parts give as bits."""
    model = shipped(name)
    return model if isinstance(model, NGram | Mixture) else copy.deepcopy(model).double()


def learnable(name: str, gradient: torch.Tensor) -> torch.Tensor:
    """The rows of a weight's gradient, without the bias of keys: a softmax does not see what it adds to all scores of a
    query alike, so that its gradient is zero, or what rounding errors leave."""
    if name.endswith("query_key_value.bias"):
        query, _, value = gradient.chunk(3)
        gradient = torch.cat([query, value])
    elif name.endswith("key_value.bias"):
        gradient = gradient.chunk(2)[1]
    return gradient.abs().flatten(1).sum(1) if gradient.dim() > 1 else gradient.abs()


def some_tokens(rows: int, time: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCAB, (rows, time), generator=torch.Generator().manual_seed(seed))
