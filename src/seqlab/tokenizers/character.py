"""One token per character: the smallest vocabulary that reads like text, the longest sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seqlab.errors import DataError
from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.special import END, UNKNOWN, TokenizerSettings, learnt_special, read_names, saved_names
from seqlab.tokenizers.tokenizer import (
    TextStream,
    Tokenizer,
    distinct_strings,
    most_frequent,
    only_keys,
    readable,
    refuse_surrogates,
    surrogate_error,
)

SPECIALS = (END, UNKNOWN)
CODE_POINTS = 0x110000


class CharacterTokenizer(Tokenizer):
    """`<end>`, `<unk>`, then the characters (Unicode code points) that were seen, sorted."""

    class Settings(TokenizerSettings):
        kind: str = "character"
        vocab_size: int | None = Field(default=None, gt=len(SPECIALS))
        """Maximum size of the vocabulary: the rarest characters become `<unk>`. Null keeps all."""
        not_inherited = frozenset({"vocab_size"})  # a size for word pieces does not suit characters

    kind = "character"

    def __init__(self, characters: Sequence[str], added: Sequence[str] = ()) -> None:
        self.characters, self.added = list(characters), list(added)
        pieces = ["", "\N{REPLACEMENT CHARACTER}", *characters]
        self.special = learnt_special(len(pieces), added, unknown=True)
        codes = np.array([ord(character) for character in characters], dtype=np.int64)
        self.id_of_code = np.full(CODE_POINTS, self.special["unknown"], dtype=np.int32)
        self.id_of_code[codes] = np.arange(len(SPECIALS), len(pieces))
        self.pieces = pieces + [""] * len(added)

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        counts: Counter[str] = Counter()
        for text in texts:
            refuse_surrogates(text)
            counts.update(text)
        if not counts:
            raise DataError("the training texts are empty: no characters to learn")
        return cls(sorted(most_frequent(counts, settings.room(len(SPECIALS)))), settings.added)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        ids = self._ids(text).tolist()
        return Encoding(ids, list(pairwise(range(len(ids) + 1))))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._ids(text).tolist() for text in texts]

    def _ids(self, text: str) -> NDArray[np.int32]:
        """In UTF-32 a character is one number, and a table lookup encodes all of them at once."""
        try:
            codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        except UnicodeEncodeError as error:
            raise surrogate_error(error) from None
        ids: NDArray[np.int32] = self.id_of_code[codes]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return "".join([self.pieces[token] for token in ids])

    def token(self, index: int) -> str:
        return self.special.names.get(index) or readable(self.pieces[index])

    def stream(self) -> CharacterStream:
        return CharacterStream(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        return {"characters": self.characters, **saved_names(self.added)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "characters")
        return cls(distinct_strings(data, "characters"), read_names(data))


class CharacterStream(TextStream):
    """Each token is a whole character: nothing is held back."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces

    def push(self, token: int) -> str:
        return self.pieces[token]

    def finish(self) -> str:
        return ""
