"""Which source tokens a model looked at while it chose each target token.

T target tokens · N source tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from seqlab.errors import RunError
from seqlab.models.language_model import LanguageModel
from seqlab.nn.recording import record


@torch.no_grad()
def looked_at(model: LanguageModel, source: Mapping[str, Tensor], tokens: Sequence[int], begin: int) -> Tensor:
    """Of one source (1, N): the attention that chose each token, (T, N), the mean of layers and heads."""
    read = torch.tensor([[begin, *tokens[:-1]]], device=source["tokens"].device)
    with record() as tape:
        model(read, None, None, source)
    if not tape["attention"]:
        raise RunError(
            "this model has no attention", hint="give a run of translation/gnmt-v2, say, or ask for no alignments"
        )
    return torch.stack([one[0].mean(1) for one in tape["attention"]]).mean(0)[:, : source["tokens"].shape[1]]


def most(weights: Tensor) -> str:
    """For each target token the source token it looked at most: `source-target` pairs, counted from 0."""
    return " ".join(f"{there}-{here}" for here, there in enumerate(weights.argmax(1).tolist()))
