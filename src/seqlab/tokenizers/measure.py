"""How well a tokenizer fits a text, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from seqlab.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Measure:
    """What a tokenizer makes of some text. Words are what stands between blanks."""

    kind: str
    vocab_size: int
    words: int
    bytes: int
    tokens: int
    unknown: int
    pieces: list[str]
    """How the first words are cut."""

    @property
    def tokens_per_word(self) -> float:
        return self.tokens / self.words if self.words else 0.0

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / self.tokens if self.tokens else 0.0


def measure(tokenizer: Tokenizer, texts: Iterable[str], first_words: int = 8) -> Measure:
    """Texts are read once, one at a time."""
    words = size = tokens = unknown = 0
    pieces: list[str] = []
    for text in texts:
        ids = tokenizer.encode_batch([text])[0]
        if not pieces:
            beginning = " ".join(text.split()[:first_words])
            pieces = [tokenizer.token(index) for index in tokenizer.encode(beginning).ids]
        words += len(text.split())
        size += len(text.encode("utf-8"))
        tokens += len(ids)
        if tokenizer.unknown_id is not None:
            unknown += ids.count(tokenizer.unknown_id)
    return Measure(tokenizer.kind, tokenizer.vocab_size, words, size, tokens, unknown, pieces)
