"""One token a word: short sequences, a large vocabulary, and words it has never seen."""

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
    TextStream,
    Tokenizer,
    distinct_strings,
    most_frequent,
    only_keys,
    readable,
    refuse_surrogates,
)

SPECIALS = (END, UNKNOWN)

# What is cut off from words: ASCII signs but `_`; signs of Latin-1; Arabic, Indic and typographic punctuation
# (not the joiners U+200C and U+200D, which hold words and emoji together); arrows, mathematics; CJK and
# full-width signs. Said as a list of signs, because `\w` would cut Indic words at their vowel signs.
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

NO_SPACE_BEFORE = frozenset(",.;:!?)]}%’”»…،؛؟।॥、。，．！？：；）］｝」』")
NO_SPACE_AFTER = frozenset("([{$£€#“‘«¿¡（［｛「『")


class WordTokenizer(Tokenizer):
    """`<end>`, `<unk>`, then words by frequency. A literal `<unk>` in a text is the unknown too."""

    class Settings(PartSettings):
        kind: str = "word"
        vocab_size: int | None = Field(default=None, gt=len(SPECIALS))
        """Keeps the most frequent words; the others become `<unk>`. None keeps all."""
        split: Literal["whitespace", "punctuation"] = "punctuation"
        """Cut at blanks only (text that is tokenised already), or also before and after punctuation."""
        lowercase: bool = False

    kind = "word"
    unit = "word"
    unknown_id = 1

    def __init__(self, words: Sequence[str], split: str, lowercase: bool) -> None:
        self.words, self.split, self.lowercase = list(words), split, lowercase
        self.pieces = ["", UNKNOWN, *words]
        self.ids = {word: index for index, word in enumerate(self.pieces) if index >= len(SPECIALS)}
        self.pattern = SPLITS[split]

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        counts: Counter[str] = Counter()
        pattern = SPLITS[settings.split]
        for text in texts:
            refuse_surrogates(text)
            words = pattern.findall(text)
            counts.update(map(str.lower, words) if settings.lowercase else words)
        del counts[UNKNOWN]
        if not counts:
            raise DataError("the training texts are empty: there is no word to learn")
        room = None if settings.vocab_size is None else settings.vocab_size - len(SPECIALS)
        return cls(most_frequent(counts, room), settings.split, settings.lowercase)

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

    def _ids(self, words: list[str]) -> list[int]:
        """Words are lowered one by one, not the text: lowering can change its length, and offsets with it."""
        if self.lowercase:
            words = [word.lower() for word in words]
        return [self.ids.get(word, self.unknown_id) for word in words]

    def decode(self, ids: Iterable[int]) -> str:
        stream = self.stream()
        return "".join([stream.push(token) for token in ids])

    def token(self, index: int) -> str:
        return SPECIALS[index] if index < len(SPECIALS) else readable(self.pieces[index])

    def stream(self) -> WordStream:
        return WordStream(self.pieces, attach=self.split == "punctuation")

    def to_dict(self) -> dict[str, Any]:
        return {"words": self.words, "split": self.split, "lowercase": self.lowercase}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "words", "split", "lowercase")
        if not isinstance(data["lowercase"], bool):
            raise ValueError("'lowercase' is neither true nor false")
        return cls(distinct_strings(data, "words"), data["split"], data["lowercase"])


class WordStream(TextStream):
    """A space before every word but the first; if `attach`, punctuation goes where a printer would set it."""

    def __init__(self, pieces: Sequence[str], attach: bool) -> None:
        self.pieces, self.attach = pieces, attach
        self.space = False  # before the next word
        self.quoted = False  # inside straight quotes: they look the same at both ends

    def push(self, token: int) -> str:
        word = self.pieces[token]
        if not word:
            return ""
        closes = self.attach and (word in NO_SPACE_BEFORE or (word == '"' and self.quoted))
        text = f" {word}" if self.space and not closes else word
        if word == '"':
            self.quoted = not self.quoted
        opens = self.attach and (word in NO_SPACE_AFTER or (word == '"' and self.quoted))
        self.space = not opens
        return text

    def finish(self) -> str:
        return ""
