"""One token per byte of UTF-8: nothing to learn, nothing unknown, in any language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.special import TokenizerSettings, learnt_special, read_names, saved_names
from seqlab.tokenizers.tokenizer import (
    ByteStream,
    Tokenizer,
    decode_bytes,
    only_keys,
    readable_bytes,
    surrogate_error,
)

PIECES = [b"", *(bytes([value]) for value in range(256))]


class ByteTokenizer(Tokenizer):
    """`<end>` is 0 and byte b is b + 1."""

    class Settings(TokenizerSettings):
        kind: str = "byte"

    kind = "byte"

    def __init__(self, added: Sequence[str] = ()) -> None:
        self.added, self.special = list(added), learnt_special(len(PIECES), added, unknown=False)
        self.pieces = PIECES + [b""] * len(added)

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        return cls(settings.added)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        values = self._bytes(text)
        starts_character = (values & 0b1100_0000) != 0b1000_0000  # all but the first byte of a character are 10xxxxxx
        stops = np.cumsum(starts_character)
        return Encoding((values + 1).tolist(), list(zip((stops - 1).tolist(), stops.tolist(), strict=True)))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [(self._bytes(text) + 1).tolist() for text in texts]

    def _bytes(self, text: str) -> NDArray[np.int16]:
        try:
            return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int16)
        except UnicodeEncodeError as error:
            raise surrogate_error(error) from None

    def decode(self, ids: Iterable[int]) -> str:
        return decode_bytes(self.pieces, ids)

    def token(self, index: int) -> str:
        return self.special.names.get(index) or readable_bytes(self.pieces[index])

    def stream(self) -> ByteStream:
        return ByteStream(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        return saved_names(self.added)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data)
        return cls(read_names(data))
