"""One token per symbol, for sequences other than text: notes, clicks, moves, instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from seqlab.errors import DataError
from seqlab.tokenizers.pattern import SPECIALS, PatternTokenizer, SpacedStream, learn_known
from seqlab.tokenizers.special import TokenizerSettings, read_names, saved_names
from seqlab.tokenizers.tokenizer import distinct_strings, only_keys

SPLITS = {"whitespace": re.compile(r"\S+"), "comma": re.compile(r"[^\s,]+")}


class SymbolTokenizer(PatternTokenizer):
    """`<end>`, `<unk>`, then symbols by frequency. A literal `<unk>` in the data is also the unknown token.

    A symbol is a string between spaces ("C4 E4 G4"), or an element of a list. Decoding puts one space between symbols.
    """

    class Settings(TokenizerSettings):
        kind: str = "symbols"
        vocab_size: int | None = Field(default=None, gt=len(SPECIALS))
        """Maximum size of the vocabulary: the rarest symbols become `<unk>`. Null keeps all."""
        not_inherited = frozenset({"vocab_size"})  # a size for word pieces does not suit symbols
        split: Literal["whitespace", "comma"] = "whitespace"
        """What separates symbols: whitespace only, or commas as well (comma)."""

    kind = "symbols"
    unit = "symbol"

    def __init__(self, symbols: Sequence[str], split: str, added: Sequence[str] = ()) -> None:
        super().__init__(symbols, SPLITS[split], lowercase=False, added=added)
        self.split = split

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        symbols = learn_known(texts, SPLITS[settings.split], settings.room(len(SPECIALS)), lowercase=False)
        if not symbols:
            raise DataError("the training sequences are empty: no symbols to learn")
        return cls(symbols, settings.split, settings.added)

    def stream(self) -> SpacedStream:
        return SpacedStream(self.pieces, attach=False)

    def to_dict(self) -> dict[str, Any]:
        return {"symbols": self.known, "split": self.split, **saved_names(self.added)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "symbols", "split")
        return cls(distinct_strings(data, "symbols"), data["split"], read_names(data))
