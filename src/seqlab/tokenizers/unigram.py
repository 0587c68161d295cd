"""Unigram: each piece has a probability, and a text is cut in the most probable way, or in a sampled one.

Kudo 2018, "Subword regularization", https://arxiv.org/abs/1804.10959
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Self

import numpy as np
from pydantic import Field

from seqlab.errors import DataError
from seqlab.recipe import PartSettings
from seqlab.tokenizers.lattice import Arc, Arcs, Sampler, Step, best_path
from seqlab.tokenizers.sentencepiece import SPACE, SentencePieceTokenizer, train_model, training_lines
from seqlab.tokenizers.tokenizer import (
    END,
    UNKNOWN,
    ByteStream,
    Encoding,
    Tokenizer,
    decode_bytes,
    distinct_strings,
    only_keys,
    readable_bytes,
    refuse_surrogates,
)

WORD = re.compile(r" ?[^ \n]+|[ \n]")
"""Where a text may be cut before it is looked up: pieces begin with a space or have none, and know no \\n."""
PENALTY = 10.0
"""How much less than the rarest piece an unknown character scores, as in SentencePiece."""
CACHED_WORDS = 1 << 17
LONGEST_CACHED = 64
BYTES = [bytes([value]) for value in range(256)]


class UnigramTokenizer(Tokenizer):
    """P(pieces) = Π p(piece). `<end>`, then the 256 bytes (or `<unk>`), then the pieces, most probable first.

    Learning is SentencePiece's: all frequent substrings, then by turns EM for their probabilities and throwing
    away those that cost least likelihood. Its trainer repeats on one thread; that of the `tokenizers` library does
    not repeat at all. Cutting is done here, word by word: a sampled cut must repeat from a key, which neither
    library's does, and with the words remembered it is no slower (figures in docs/tokenizers.md).
    """

    class Settings(PartSettings):
        kind: str = "unigram"
        vocab_size: int = Field(default=1024, gt=2)
        byte_fallback: bool = True
        """Characters without a piece become bytes, which takes 256 ids; otherwise `<unk>`."""
        sample: float | None = Field(default=None, gt=0)
        """Train on sampled cuts, drawn anew in each epoch with probability ∝ P^sample: 0.1 to 0.5 are usual."""

    kind = "unigram"

    def __init__(self, texts: Sequence[str], scores: Sequence[float], byte_fallback: bool) -> None:
        self.texts, self.scores, self.byte_fallback = list(texts), list(scores), byte_fallback
        self.unknown_id = None if byte_fallback else 1
        unknown = BYTES if byte_fallback else ["\N{REPLACEMENT CHARACTER}".encode()]
        self.first = 1 + len(unknown)
        self.pieces = [b"", *unknown, *(text.encode() for text in texts)]
        known = zip(texts, range(self.first, len(self.pieces)), scores, strict=True)
        self.known = {text: ((token,), score) for text, token, score in known}
        self.longest = max(map(len, texts), default=1)
        self.unknown_score = min(scores, default=0.0) - PENALTY
        self.cache: dict[str, list[Step]] = {}
        self.samplers: dict[tuple[str, float], Sampler] = {}

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        room = settings.vocab_size - (1 + 256 if settings.byte_fallback else 2)
        if room < 1:
            what = f"'vocab_size' {settings.vocab_size} leaves no room beside 256 bytes and `<end>`"
            raise DataError(what, where="tokenizer", hint="make it larger, or set byte_fallback=false")
        lines = training_lines(texts, room, "identity")
        lossless = {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False}
        learned = SentencePieceTokenizer(train_model(lines, "unigram", room + 2, **lossless)).processor
        found = range(2, learned.get_piece_size())
        pieces = [learned.id_to_piece(index).replace(SPACE, " ") for index in found]
        return cls(pieces, [learned.get_score(index) for index in found], settings.byte_fallback)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for start, steps in self._best(text):
            for arc, stop in steps:
                ids += arc.tokens
                offsets += [(start + arc.start, start + stop)] * len(arc.tokens)
        return Encoding(ids, offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[id for _, steps in self._best(text) for arc, _ in steps for id in arc.tokens] for text in texts]

    def sample(self, text: str, generator: np.random.Generator, alpha: float) -> list[int]:
        """The ids of a cut drawn with probability ∝ P(cut)^alpha: 0 makes all alike, large ones give the best.

        >>> tokenizer.sample(text, Key(seed=0, epoch=3).generator(example=17), alpha=0.2)
        """
        refuse_surrogates(text)
        numbers = iter(generator.random(len(text)).tolist())  # a piece has at least a character
        ids: list[int] = []
        for word in WORD.findall(text):
            for arc, _ in self._sampler(word, alpha).draw(numbers):
                ids += arc.tokens
        return ids

    def resample(self, ids: Sequence[int], generator: np.random.Generator, alpha: float) -> list[int]:
        """The text of these ids cut anew. What is no piece (bytes, `<end>`) stays: it can be cut in one way only."""
        cut: list[int] = []
        for is_text, run in groupby(ids, lambda index: index >= self.first):
            same = list(run)
            cut += self.sample(self.decode(same), generator, alpha) if is_text else same
        return cut

    def log_probability(self, ids: Iterable[int]) -> float:
        """log P of a cut; `-inf` where it has bytes or unknown characters, which have no probability."""
        return sum(self.scores[index - self.first] if index >= self.first else -math.inf for index in ids)

    def _best(self, text: str) -> Iterator[tuple[int, list[Step]]]:
        """The best cut of each word, and where the word begins."""
        refuse_surrogates(text)
        start = 0
        for word in WORD.findall(text):
            steps = self.cache.get(word)
            if steps is None:
                steps = best_path(self._arcs(word))
                _remember(self.cache, word, steps, len(word))
            yield start, steps
            start += len(word)

    def _sampler(self, word: str, alpha: float) -> Sampler:
        sampler = self.samplers.get((word, alpha))
        if sampler is None:
            sampler = Sampler.over(self._arcs(word), alpha)
            _remember(self.samplers, (word, alpha), sampler, len(word))
        return sampler

    def _arcs(self, word: str) -> Arcs:
        arcs = []
        for stop in range(1, len(word) + 1):
            starts = range(max(0, stop - self.longest), stop)
            ending = [Arc(start, *self.known[word[start:stop]]) for start in starts if word[start:stop] in self.known]
            if not ending or ending[-1].start < stop - 1:  # the character is no piece
                ending.append(Arc(stop - 1, self._spelt(word[stop - 1]), self.unknown_score))
            arcs.append(ending)
        return arcs

    def _spelt(self, character: str) -> tuple[int, ...]:
        return tuple(1 + value for value in character.encode()) if self.byte_fallback else (1,)

    def decode(self, ids: Iterable[int]) -> str:
        return decode_bytes(self.pieces, ids)

    def token(self, index: int) -> str:
        if index == self.end_id:
            return END
        return UNKNOWN if index == self.unknown_id else readable_bytes(self.pieces[index])

    def stream(self) -> ByteStream:
        return ByteStream(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        return {"pieces": self.texts, "scores": self.scores, "byte_fallback": self.byte_fallback}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "pieces", "scores", "byte_fallback")
        texts, scores = distinct_strings(data, "pieces"), data["scores"]
        if not isinstance(scores, list) or not all(isinstance(score, float) for score in scores):
            raise ValueError("'scores' is not a list of numbers")
        if not isinstance(data["byte_fallback"], bool) or "" in texts or any(WORD.fullmatch(t) is None for t in texts):
            raise ValueError("'byte_fallback' is neither true nor false, or a piece goes over the end of a word")
        return cls(texts, scores, data["byte_fallback"])


def _remember(cache: dict[Any, Any], key: Any, value: Any, length: int) -> None:
    """Long words (texts without blanks) hardly come back, and would fill the memory."""
    if length > LONGEST_CACHED:
        return
    if len(cache) >= CACHED_WORDS:
        cache.clear()
    cache[key] = value
