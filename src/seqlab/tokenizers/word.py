"""One token per word: short sequences and a large vocabulary, but some words are unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from seqlab.errors import DataError
from seqlab.tokenizers.pattern import SPECIALS, PatternTokenizer, SpacedStream, learn_known
from seqlab.tokenizers.special import UNKNOWN, TokenizerSettings, read_names, saved_names
from seqlab.tokenizers.tokenizer import distinct_strings, only_keys

# Characters to split from words: ASCII signs but `_`; Latin-1 signs; Arabic, Indic and typographic punctuation
# (not the joiners U+200C and U+200D, which hold words and emoji together); arrows, mathematics; CJK and
# full-width signs. They are listed because `\w` would split Indic words at their vowel signs.
SIGNS = (
    r"!-/:-@\[-^`{-~¡-©«-±´¶-¸»¿×÷،؛؟।॥"
    r"\u2010-\u2027\u2030-\u205e\u20a0-\u20c0\u2190-\u23ff\u27c0-\u27ef\u3001-\u3003\u3008-\u301f"
    r"！-／：-＠［-｀｛-･"
)
LETTERS = rf"[^\s{SIGNS}]+"

SPLITS = {
    "whitespace": re.compile(r"\S+"),
    # A hyphen, apostrophe or point between letters, and a comma between digits, belong to the word.
    "punctuation": re.compile(rf"{re.escape(UNKNOWN)}|{LETTERS}(?:(?:['’.-]|(?<=\d),(?=\d)){LETTERS})*|\S"),
}


class WordTokenizer(PatternTokenizer):
    """`<end>`, `<unk>`, then words by frequency. A literal `<unk>` in a text is also the unknown token."""

    class Settings(TokenizerSettings):
        kind: str = "word"
        vocab_size: int | None = Field(default=None, gt=len(SPECIALS))
        """Maximum size of the vocabulary: the rarest words become `<unk>`. Null keeps all."""
        not_inherited = frozenset({"vocab_size"})  # a size for word pieces does not suit words
        split: Literal["whitespace", "punctuation"] = "punctuation"
        """Split only at whitespace (for text that is already tokenised), or also around punctuation."""
        lowercase: bool = False

    kind = "word"
    unit = "word"

    def __init__(self, words: Sequence[str], split: str, lowercase: bool, added: Sequence[str] = ()) -> None:
        super().__init__(words, SPLITS[split], lowercase, added)
        self.split = split

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        words = learn_known(texts, SPLITS[settings.split], settings.room(len(SPECIALS)), settings.lowercase)
        if not words:
            raise DataError("the training texts are empty: no words to learn")
        return cls(words, settings.split, settings.lowercase, settings.added)

    def stream(self) -> SpacedStream:
        return SpacedStream(self.pieces, attach=self.split == "punctuation")

    def to_dict(self) -> dict[str, Any]:
        return {"words": self.known, "split": self.split, "lowercase": self.lowercase, **saved_names(self.added)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "words", "split", "lowercase")
        if not isinstance(data["lowercase"], bool):
            raise ValueError("'lowercase' is neither true nor false")
        return cls(distinct_strings(data, "words"), data["split"], data["lowercase"], read_names(data))
