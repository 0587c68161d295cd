"""Alignments: which source tokens a model attended to when it chose each target token.

T target tokens · N source tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from seqlab.errors import RunError
from seqlab.models.language_model import LanguageModel
from seqlab.nn.attention import CrossAttention
from seqlab.nn.recording import Place, Tape, record
from seqlab.nn.source_attention import SourceAttention


@torch.no_grad()
def attention_to_source(
    model: LanguageModel, source: Mapping[str, Tensor], tokens: Sequence[int], begin: int
) -> Tensor:
    """Return the attention behind each target token for one source (1, N): (T, N), averaged over layers and heads."""
    read = torch.tensor([[begin, *tokens[:-1]]], device=source["tokens"].device)
    places = source_weights(model)
    if not places:
        raise RunError(
            "this model has no attention", hint="use a run such as translation/gnmt-v2, or leave alignments out"
        )
    with record(model, *places) as tape:
        model(read, None, None, source)
    return mean_weights(tape)[0, :, : source["tokens"].shape[1]]


def source_weights(model: nn.Module) -> list[Place]:
    """Return the places where parts note their attention to the source."""
    parts = model.named_modules()
    return [(path, "weights") for path, part in parts if isinstance(part, CrossAttention | SourceAttention)]


def mean_weights(tape: Tape) -> Tensor:
    """Average the weights of all heads and layers recorded in one call: (B, T, N)."""
    layers = [_mean(one.unbind(1)) for notes in tape.values() for one in notes["weights"]]
    return _mean(layers)


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """Add one after another, so that the bits of a row do not depend on its neighbours, as those of `mean` do."""
    return sum(tensors[1:], tensors[0]) / len(tensors)


def most(weights: Tensor) -> str:
    """Return the source token with the most attention for each target token: `source-target` pairs, counted from 0."""
    return " ".join(f"{there}-{here}" for here, there in enumerate(weights.argmax(1).tolist()))
