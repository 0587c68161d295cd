"""Numbers that are already ids: pixels, codes of a quantiser, tokens from another program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Self, cast

from pydantic import Field

from seqlab.errors import DataError
from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.pattern import SpacedStream
from seqlab.tokenizers.special import TokenizerSettings, learnt_special, read_names, saved_names
from seqlab.tokenizers.tokenizer import Tokenizer, only_keys

NUMBER = re.compile(r"[0-9]{1,20}")  # int() would accept much more: +1, 1_000, the digits of other scripts
PART = re.compile(r"[^\s,]+")
LOOKED_UP = 1 << 16
MOST = 2**32 - 1
"""The token store keeps ids in 32 bits."""


class IdTokenizer(Tokenizer):
    """`<end>` is 0 and the number n is n + 1. Numbers are separated by spaces (or commas): "0 255 7"."""

    class Settings(TokenizerSettings):
        kind: str = "ids"
        vocab_size: int | None = Field(default=None, gt=1, le=MOST)
        """Number of ids plus one for `<end>`: 257 for bytes. If null, the largest number in the data decides."""
        not_inherited = frozenset({"vocab_size"})  # a size for word pieces does not suit symbols

    kind = "ids"
    unit = "symbol"

    def __init__(self, count: int, added: Sequence[str] = ()) -> None:
        self.count, self.added = count, list(added)
        self.special = learnt_special(count + 1, added, unknown=False)
        self.pieces = _Decimals(count, len(added))
        self.known = {str(number): number + 1 for number in range(min(count, LOOKED_UP))}

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        largest, seen = -1, set[str]()
        for text in texts:
            fresh = set(_parts(text)) - seen  # each number is parsed once
            seen |= fresh
            largest = max(largest, max(map(_number, fresh), default=-1))
        if largest < 0:
            raise DataError("the training sequences are empty: no numbers in them")
        if largest >= MOST - 1:
            raise DataError(f"{largest} is too large for an id", hint="renumber the symbols, starting from 0")
        room = settings.room(1)
        count = largest + 1 if room is None else room
        if largest >= count:
            own = 1 + len(settings.added)
            what = f"{largest} is in the data, but 'tokenizer.vocab_size' {count + own} has room for 0 to {count - 1}"
            why = "one is for <end>" if own == 1 else f"{own} are special tokens"
            raise DataError(what, hint=f"it must be at least {largest + 1 + own}: {why}")
        return cls(count, settings.added)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        return Encoding(self._ids(text), [match.span() for match in PART.finditer(text)])

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._ids(text) for text in texts]

    def _ids(self, text: str) -> list[int]:
        parts = _parts(text)
        try:
            return list(map(self.known.__getitem__, parts))  # a look-up is four times as fast as parsing
        except KeyError:
            numbers = list(map(_number, parts))
        if (largest := max(numbers)) >= self.count:
            hint = "train on data that has it, or set tokenizer.vocab_size"
            raise DataError(f"{largest} is not in the vocabulary, which is 0 to {self.count - 1}", hint=hint)
        return [number + 1 for number in numbers]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(filter(None, map(self.pieces.__getitem__, ids)))

    def token(self, index: int) -> str:
        return self.special.names.get(index) or cast(str, self.pieces[index])

    def stream(self) -> SpacedStream:
        return SpacedStream(self.pieces, attach=False)

    def to_dict(self) -> dict[str, Any]:
        return {"count": self.count, **saved_names(self.added)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "count")
        if type(data["count"]) is not int or not 0 < data["count"] < MOST:
            raise ValueError("'count' is not a valid number of ids")
        return cls(data["count"], read_names(data))


class _Decimals(Sequence[str]):
    """The text of each token, made on demand because there may be millions. Special tokens have none."""

    def __init__(self, numbers: int, added: int) -> None:
        self.numbers, self.added = numbers, added

    def __len__(self) -> int:
        return self.numbers + 1 + self.added

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return str(index - 1) if 0 < index <= self.numbers else ""


def _parts(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _number(part: str) -> int:
    if not NUMBER.fullmatch(part):
        hint = "ids are whole numbers, 0 or greater; for other symbols, set tokenizer.kind=symbols"
        raise DataError(f"'{part[:40]}' is not an id", hint=hint)
    return int(part)
