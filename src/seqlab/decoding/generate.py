"""Generation: writes texts token by token.

B rows · V vocabulary
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from seqlab.decoding.choose import Choose, Greedy
from seqlab.decoding.engine import Engine, Grown, Request, succeeded
from seqlab.decoding.reading import Reading, log_probabilities
from seqlab.models.language_model import LanguageModel

GREEDY = Greedy()


class Token(NamedTuple):
    """A new token of one row."""

    row: int
    id: int
    log_probability: float


class Writing(Request):
    """A text that ends with a token of `stop` or after `limit` tokens. `number` selects the noise for sampling."""

    def __init__(
        self,
        prompt: Sequence[int],
        choose: Choose = GREEDY,
        limit: int = 100,
        stop: frozenset[int] = frozenset(),
        number: int = 0,
    ) -> None:
        if limit < 1:
            raise ValueError(f"a limit of {limit} tokens; write at least one")
        self.prompt, self.choose, self.limit, self.stop, self.number = prompt, choose, limit, stop, number
        self.tokens: list[int] = []
        self.log_probabilities: list[float] = []

    @property
    def group(self) -> Hashable:
        return cast(Hashable, self.choose)

    @classmethod
    def grow(cls, requests: Sequence[Writing], reading: Reading) -> list[Grown]:
        chances = log_probabilities(reading.logits)
        about = torch.tensor([(one.number, len(one.tokens)) for one in requests], device=chances.device)
        chosen = requests[0].choose(reading.logits, *about.unbind(1))
        scores = chances.gather(1, chosen[:, None])[:, 0]
        new = zip(requests, chosen.tolist(), scores.tolist(), strict=True)
        return [one._written(token, score) for one, token, score in new]

    def _written(self, token: int, score: float) -> Grown:
        self.tokens.append(token)
        self.log_probabilities.append(score)
        done = token in self.stop or len(self.tokens) >= self.limit
        return [] if done else [(0, token)]

    def text(self, row: int) -> Sequence[int]:
        return [*self.prompt, *self.tokens]


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    choose: Choose = GREEDY,
    tokens: int | Sequence[int] = 100,
    stop: frozenset[int] = frozenset(),
    source: Mapping[str, Tensor] | None = None,
    requests: Sequence[int] | None = None,
) -> Iterator[list[Token]]:
    """Yield, at each step, the new tokens of all unfinished rows. A row ends with a token of `stop` or after `tokens`
    tokens.

    A prompt begins as texts do, with `<end>`. `requests` number the rows for the noise of sampling.
    """
    limits = [tokens] * len(prompts) if isinstance(tokens, int) else tokens
    each = zip(prompts, limits, range(len(prompts)) if requests is None else requests, strict=True)
    texts = [Writing(prompt, choose, limit, stop, number) for prompt, limit, number in each]
    engine = Engine(model)
    engine.admit(texts, source)
    while moved := set(map(id, succeeded(engine.step()))):
        yield [
            Token(row, text.tokens[-1], text.log_probabilities[-1])
            for row, text in enumerate(texts)
            if id(text) in moved
        ]
