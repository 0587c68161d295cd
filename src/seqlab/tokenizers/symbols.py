"""One token a symbol, for sequences that are no text: notes, clicks, moves, instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from seqlab.errors import DataError
from seqlab.recipe import PartSettings
from seqlab.tokenizers.tokenizer import (
    END,
    UNKNOWN,
    Encoding,
    Tokenizer,
    distinct_strings,
    most_frequent,
    only_keys,
    readable,
    refuse_surrogates,
)
from seqlab.tokenizers.word import WordStream

SPECIALS = (END, UNKNOWN)
SPLITS = {"whitespace": re.compile(r"\S+"), "comma": re.compile(r"[^\s,]+")}


class SymbolTokenizer(Tokenizer):
    """`<end>`, `<unk>`, then symbols by frequency. A literal `<unk>` in the data is the unknown too.

    A symbol is what stands between blanks ("C4 E4 G4"), or an element of a list; one blank is between two of them
    when they are written.
    """

    class Settings(PartSettings):
        kind: str = "symbols"
        vocab_size: int | None = Field(default=None, gt=len(SPECIALS))
        """Keeps the most frequent symbols; the others become `<unk>`. None keeps all."""
        not_inherited = frozenset({"vocab_size"})  # a number of word pieces is no number of symbols
        split: Literal["whitespace", "comma"] = "whitespace"
        """Between symbols there are blanks; or commas, blanks or both."""

    kind = "symbols"
    unit = "symbol"
    unknown_id = 1

    def __init__(self, symbols: Sequence[str], split: str) -> None:
        self.symbols, self.split = list(symbols), split
        self.pieces = ["", UNKNOWN, *symbols]
        self.ids = {symbol: index for index, symbol in enumerate(self.pieces) if index >= len(SPECIALS)}
        self.pattern = SPLITS[split]

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        counts: Counter[str] = Counter()
        pattern = SPLITS[settings.split]
        for text in texts:
            refuse_surrogates(text)
            counts.update(pattern.findall(text))
        del counts[UNKNOWN]
        if not counts:
            raise DataError("the training sequences are empty: there is no symbol to learn")
        room = None if settings.vocab_size is None else settings.vocab_size - len(SPECIALS)
        return cls(most_frequent(counts, room), settings.split)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        refuse_surrogates(text)
        matches = list(self.pattern.finditer(text))
        return Encoding(self._ids([match[0] for match in matches]), [match.span() for match in matches])

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        for text in texts:
            refuse_surrogates(text)
        return [self._ids(self.pattern.findall(text)) for text in texts]

    def _ids(self, symbols: list[str]) -> list[int]:
        return [self.ids.get(symbol, self.unknown_id) for symbol in symbols]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join([self.pieces[token] for token in ids if token != self.end_id])

    def token(self, index: int) -> str:
        return SPECIALS[index] if index < len(SPECIALS) else readable(self.pieces[index])

    def stream(self) -> WordStream:
        return WordStream(self.pieces, attach=False)

    def to_dict(self) -> dict[str, Any]:
        return {"symbols": self.symbols, "split": self.split}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "symbols", "split")
        return cls(distinct_strings(data, "symbols"), data["split"])
