"""The attention of a translator and the hypotheses of its search, as plain data.

T target tokens · N source tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqlab.decoding.beam import BeamNode, Hypothesis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from seqlab.tokenizers import Tokenizer


@dataclass(frozen=True)
class History:
    """Row t: the attention of target token t to each source token, averaged over layers and heads."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]


@dataclass(frozen=True)
class Branch:
    """A step that the search considered; `ids` are those of `before` and of `token`."""

    ids: list[int]
    before: list[str]
    token: str
    log_probability: float
    fate: str


@dataclass(frozen=True)
class BeamTree:
    """The results of a search, and all the steps it considered."""

    found: list[dict[str, Any]]
    branches: list[Branch]


def history(weights: Tensor, source: list[str], target: list[str]) -> History:
    return History(source, target, [[round(value, 6) for value in row] for row in weights.tolist()])


def branches(nodes: Sequence[BeamNode], pieces: Callable[[Sequence[int]], list[str]]) -> list[Branch]:
    found = []
    for node in nodes:
        ids = [*node.before, node.token]
        *before, token = pieces(ids)
        found.append(Branch(ids, before, token, round(node.log_probability, 4), node.fate))
    return found


def described(found: Sequence[Hypothesis], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    return [
        {
            "text": tokenizer.decode(one.tokens),
            "log_probability": round(one.log_probability, 4),
            "rank": round(one.rank, 4),
        }
        for one in found
    ]
