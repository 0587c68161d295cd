"""Which source tokens a model looked at while it chose each target token.

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
    """Of one source (1, N): the attention that chose each token, (T, N), the mean of layers and heads."""
    read = torch.tensor([[begin, *tokens[:-1]]], device=source["tokens"].device)
    places = source_weights(model)
    if not places:
        raise RunError(
            "this model has no attention", hint="give a run of translation/gnmt-v2, say, or ask for no alignments"
        )
    with record(model, *places) as tape:
        model(read, None, None, source)
    return mean_weights(tape)[0, :, : source["tokens"].shape[1]]


def source_weights(model: nn.Module) -> list[Place]:
    """Where parts that look at a source note how much."""
    parts = model.named_modules()
    return [(path, "weights") for path, part in parts if isinstance(part, CrossAttention | SourceAttention)]


def mean_weights(tape: Tape) -> Tensor:
    """Of all heads of all layers that were recorded in one call: (B, T, N)."""
    return torch.stack([one.mean(1) for notes in tape.values() for one in notes["weights"]]).mean(0)


def most(weights: Tensor) -> str:
    """For each target token the source token it looked at most: `source-target` pairs, counted from 0."""
    return " ".join(f"{there}-{here}" for here, there in enumerate(weights.argmax(1).tolist()))
