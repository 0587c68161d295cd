"""The common base of tokenizers in which every match of a pattern is one token."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.special import END, UNKNOWN, learnt_special
from seqlab.tokenizers.tokenizer import (
    TextStream,
    Tokenizer,
    most_frequent,
    readable,
    refuse_surrogates,
)

SPECIALS = (END, UNKNOWN)

NO_SPACE_BEFORE = frozenset(",.;:!?)]}%’”»…،؛؟।॥、。，．！？：；）］｝」』")
NO_SPACE_AFTER = frozenset("([{$£€#“‘«¿¡（［｛「『")


class PatternTokenizer(Tokenizer):
    """`<end>`, `<unk>`, then the `known` tokens by frequency. A literal `<unk>` in a text is also the unknown token."""

    def __init__(self, known: Sequence[str], pattern: re.Pattern[str], lowercase: bool, added: Sequence[str]) -> None:
        self.known, self.pattern, self.lowercase, self.added = list(known), pattern, lowercase, list(added)
        pieces = ["", UNKNOWN, *known]
        self.special = learnt_special(len(pieces), added, unknown=True)
        self.ids = {piece: index for index, piece in enumerate(pieces) if index >= len(SPECIALS)}
        self.pieces = pieces + [""] * len(added)

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

    def _ids(self, pieces: list[str]) -> list[int]:
        """Return ids. Pieces are lower-cased one by one, because lower-casing can change lengths, and so offsets."""
        if self.lowercase:
            pieces = [piece.lower() for piece in pieces]
        unknown = self.special["unknown"]
        return [self.ids.get(piece, unknown) for piece in pieces]

    def decode(self, ids: Iterable[int]) -> str:
        stream = self.stream()
        return "".join([stream.push(token) for token in ids])

    def token(self, index: int) -> str:
        return self.special.names.get(index) or readable(self.pieces[index])


def learn_known(texts: Iterable[str], pattern: re.Pattern[str], room: int | None, lowercase: bool) -> list[str]:
    """Return the most frequent matches, at most `room` of them; None: all."""
    counts: Counter[str] = Counter()
    for text in texts:
        refuse_surrogates(text)
        pieces = pattern.findall(text)
        counts.update(map(str.lower, pieces) if lowercase else pieces)
    del counts[UNKNOWN]
    return most_frequent(counts, room)


class SpacedStream(TextStream):
    """Puts a space before every word but the first; if `attach`, punctuation is spaced as in print."""

    def __init__(self, pieces: Sequence[str], attach: bool) -> None:
        self.pieces, self.attach = pieces, attach
        self.space = False  # before the next word
        self.quoted = False  # inside straight quotes, which look the same at both ends

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
