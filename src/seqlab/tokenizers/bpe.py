"""Byte-pair encoding over bytes, as in GPT-2: lossless on any text, a vocabulary of any size from 257."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

import tokenizers
from pydantic import Field
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from seqlab.tokenizers.dictionary import DICTIONARY, count_words
from seqlab.tokenizers.library import LibraryTokenizer
from seqlab.tokenizers.merges import MOST_SYMBOLS, known_first, learn_merges
from seqlab.tokenizers.special import (
    END,
    Declarations,
    TokenizerSettings,
    check_roles,
    published_special,
    read_names,
    read_roles,
    roles_by_name,
    saved_names,
    saved_roles,
)
from seqlab.tokenizers.tokenizer import (
    ByteStream,
    decode_bytes,
    distinct_strings,
    only_keys,
    readable_bytes,
)


def _byte_of_sign() -> dict[str, int]:
    """The library writes each byte as a visible character: its own in Latin-1 if visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in visible]
    return {chr(value): value for value in visible} | {chr(256 + i): value for i, value in enumerate(hidden)}


BYTE_OF_SIGN = _byte_of_sign()
# A word with the space before it, or whitespace: the library splits it the same way alone as in its text.
# The library does not count U+001C to U+001F as whitespace, unlike Python.
BLANK, SIGN = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]"
UNIT = re.compile(rf" ?{SIGN}+|{BLANK}+(?!{SIGN})|{BLANK}")
MIN_FREQUENCY = 2


DIGIT = re.compile("([0-9])")


class ByteBPETokenizer(LibraryTokenizer):
    """Start from the 256 bytes; while there is room, the most frequent pair of neighbours becomes a token.

    Text is first split into words, each with the space before it, and pairs are counted only within words. Ties go
    to the pair with the smallest ids. The `tokenizers` library splits and encodes. Training gives the same result as
    its trainer (there is a test), but is faster and needs bounded memory: it splits each distinct word once.

    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2
    """

    class Settings(TokenizerSettings):
        kind: str = "bpe"
        vocab_size: int = Field(default=1024, ge=257, le=MOST_SYMBOLS)
        """Maximum size of the vocabulary. Pairs seen only once are not merged."""
        vocab: str | None = None
        """A folder with GPT-2's `vocab.json` and `merges.txt`, or its `tokenizer.json`. If set, nothing is learnt."""
        dictionary: int = Field(default=DICTIONARY, gt=0)
        """Total characters of the distinct words to learn from; if there are more, the rarest words are left out."""
        single_digits: bool = False
        """Whether to make every digit a separate token, so that a model can copy and compute with any number."""

    kind = "bpe"

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[tuple[str, str]],
        added: Sequence[str] = (),
        declared: Declarations | None = None,
    ) -> None:
        self.tokens, self.merges, self.added = [*tokens, *added], list(merges), list(added)
        # Special tokens are neither bytes nor merges. They are in the vocabulary but not "added tokens": the library
        # never looks for them in a text, and no merge makes them.
        text = BYTE_OF_SIGN.keys() | {left + right for left, right in merges}
        self.pieces = [bytes(map(BYTE_OF_SIGN.__getitem__, token)) if token in text else b"" for token in self.tokens]
        names = {index: token for index, token in enumerate(self.tokens) if token not in text}
        roles, said = dict(roles_by_name(names)), dict(declared or {})
        for each in (roles, said):
            each.pop("unknown", None)  # all bytes are known
        self.special, self.declared = published_special(names, roles, said)
        ids = {token: index for index, token in enumerate(self.tokens)}
        self.encoder = tokenizers.Tokenizer(BPE(vocab=ids, merges=self.merges))
        self.encoder.pre_tokenizer = ByteLevel(add_prefix_space=False)

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        if settings.vocab is not None:
            from seqlab.tokenizers.published import load_published

            return load_published(settings.vocab, cls, settings.special)
        words: Counter[str] = Counter()
        cutter = ByteLevel(add_prefix_space=False)
        for unit, count in count_words(texts, UNIT.findall, settings.dictionary).items():
            for word, _ in cutter.pre_tokenize_str(unit):
                for piece in DIGIT.split(word) if settings.single_digits else [word]:  # merges never cross a cut
                    words[piece] += count
        words.pop("", None)
        alphabet = sorted(BYTE_OF_SIGN)
        room = settings.room(1, least=len(alphabet))
        merges = learn_merges(words.items(), alphabet, room, MIN_FREQUENCY, known_first(alphabet))
        made = dict.fromkeys(left + right for left, right in merges)  # two pairs can make the same token
        return cls([END, *alphabet, *made], merges, settings.added)

    def decode(self, ids: Iterable[int]) -> str:
        return decode_bytes(self.pieces, ids)

    def token(self, index: int) -> str:
        return readable_bytes(self.pieces[index]) or self.tokens[index]

    def stream(self) -> ByteStream:
        return ByteStream(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        tokens = self.tokens[: len(self.tokens) - len(self.added)]
        merges = [f"{left} {right}" for left, right in self.merges]
        return {"tokens": tokens, "merges": merges, **saved_names(self.added), **saved_roles(self.declared)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "tokens", "merges", optional=("added", "special"))
        tokens, known, added = distinct_strings(data, "tokens"), set(data["tokens"]), read_names(data)
        if not known.issuperset(BYTE_OF_SIGN):
            raise ValueError("a byte is missing")
        merges = [(left, right) for left, right in (line.split(" ") for line in distinct_strings(data, "merges"))]
        if not all({left, right, left + right} <= known for left, right in merges):
            raise ValueError("a merge gives an unknown token")
        if not known.isdisjoint(added):
            raise ValueError("an added token is already in the vocabulary")
        tokenizer = cls(tokens, merges, added, read_roles(data))
        check_roles(tokenizer.special)
        return tokenizer
