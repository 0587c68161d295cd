"""Unigram: each piece has a probability, and a text is split in the most probable way, or in a sampled one.

Kudo 2018, "Subword regularization", https://arxiv.org/abs/1804.10959
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Self

import numpy as np
from pydantic import Field

from seqlab.tokenizers.lattice import Pieces, Sampler
from seqlab.tokenizers.sentencepiece import SentencePieceTokenizer
from seqlab.tokenizers.special import Declarations, TokenizerSettings
from seqlab.tokenizers.tokenizer import refuse_surrogates

WORD = re.compile(r" ?[^ \n]+|[ \n]")
"""Units that a text is cut into before lookup: a piece has a space only at its start, and never a \\n."""
PENALTY = 10.0
"""How far an unknown character scores below the rarest piece, as in SentencePiece."""
CACHED_WORDS = 1 << 17
LONGEST_CACHED = 64


class UnigramTokenizer(SentencePieceTokenizer):
    """P(split) = Π p(piece): `encode` returns the most probable split (Viterbi), `sample` draws one.

    The SentencePiece library trains and encodes. Training starts from all frequent substrings, then alternates between
    EM for their probabilities and removing those that cost the least likelihood. (Its trainer is reproducible on one
    thread; that of the `tokenizers` library never is.) Sampling is done here: to resume a training bit for bit, the
    splits must be reproducible from a key, and the library's are not.
    """

    class Settings(TokenizerSettings):
        kind: str = "unigram"
        vocab_size: int = Field(default=1024, gt=2)
        byte_fallback: bool = True
        """Whether characters without a piece become bytes, which takes 256 ids; otherwise they become `<unk>`."""
        sample: float | None = Field(default=None, gt=0)
        """If set, train on splits sampled anew in each epoch with probability ∝ P^sample; 0.1 to 0.5 are usual."""

    kind = "unigram"

    def __init__(self, model: bytes, added: Sequence[str] = (), declared: Declarations | None = None) -> None:
        super().__init__(model, added, declared)
        unknown = self.processor.unk_id()
        texts = {
            i: piece.decode() for i, piece in enumerate(self.pieces) if piece and i != unknown and not self.is_byte[i]
        }
        scores = {index: float(self.processor.get_score(index)) for index in texts}
        self.text_ids = frozenset(texts)
        self.lattice = Pieces(
            known={text: ((index,), scores[index]) for index, text in texts.items()},
            spell=self._spell,
            unknown_score=min(scores.values(), default=0.0) - PENALTY,
            longest=max(map(len, texts.values()), default=1),
        )
        self.samplers: dict[tuple[str, float], Sampler] = {}

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:  # type: ignore[override]
        shared = settings.model_dump(include={"vocab_size", "byte_fallback", "special"})
        return cls(SentencePieceTokenizer.fit(texts, SentencePieceTokenizer.Settings(**shared)).model, settings.added)

    def sample(self, text: str, generator: np.random.Generator, alpha: float) -> list[int]:
        """Return the ids of a split drawn with probability ∝ P(split)^alpha; 0 is uniform, large values give the best.

        >>> tokenizer.sample(text, Key(seed=0, epoch=3).generator(example=17), alpha=0.2)
        """
        refuse_surrogates(text)
        numbers = iter(generator.random(len(text)).tolist())  # a piece has at least a character
        paths = (self._sampler(word, alpha).draw(numbers) for word in WORD.findall(text))
        return [token for path in paths for arc in path for token in arc.tokens]

    def resample(self, ids: Sequence[int], generator: np.random.Generator, alpha: float) -> list[int]:
        """Split the text of these ids anew. Ids that are not pieces (bytes, `<end>`) stay, having only one split."""
        cut: list[int] = []
        for is_text, run in groupby(ids, self.text_ids.__contains__):
            same = list(run)
            cut += self.sample(self.decode(same), generator, alpha) if is_text else same
        return cut

    def _sampler(self, word: str, alpha: float) -> Sampler:
        sampler = self.samplers.get((word, alpha))
        if sampler is None:
            sampler = Sampler.over(self.lattice.arcs(word), alpha)
            if len(self.samplers) >= CACHED_WORDS:
                self.samplers.clear()
            if len(word) <= LONGEST_CACHED:  # longer ones, from texts without spaces, hardly recur
                self.samplers[word, alpha] = sampler
        return sampler

    def _spell(self, character: str) -> tuple[int, ...]:
        if self.unknown_id is not None:
            return (self.unknown_id,)
        first = self.is_byte.index(True)
        return tuple(first + value for value in character.encode())
