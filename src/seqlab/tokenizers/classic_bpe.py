"""Byte-pair encoding over the characters of words, as first used for translation.

Sennrich, Haddow and Birch 2016, https://arxiv.org/abs/1508.07909
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Self

from pydantic import Field

from seqlab.errors import DataError
from seqlab.tokenizers.dictionary import DICTIONARY, count_words
from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.merges import MOST_SYMBOLS, WORD_END, Pair, apply_merges, learn_merges, shown, split_word
from seqlab.tokenizers.special import END, UNKNOWN, TokenizerSettings, learnt_special, read_names, saved_names
from seqlab.tokenizers.tokenizer import (
    TextStream,
    Tokenizer,
    distinct_strings,
    most_frequent,
    only_keys,
    readable,
    refuse_surrogates,
)

WORD = re.compile(r"\S+")
SPECIALS = (END, UNKNOWN, WORD_END)
CACHED_WORDS = 1 << 17


class ClassicBPETokenizer(Tokenizer):
    """Start from the characters of words; while there is room, the most frequent pair becomes a symbol.

    The symbols of a word mark its end, so that decoding can restore words. In "glued" mode, as in the authors'
    program, the end is attached to the last character from the start (`t h e</w>`). In "apart" mode, as in the
    paper, it is a symbol that is merged like the others (`t h e </w>`). Ties go to the lexicographically largest
    pair. The first ids are `<end>`, `<unk>` and a bare `</w>`, which also follows a character that was never seen at
    the end of a word.
    """

    class Settings(TokenizerSettings):
        kind: str = "classic-bpe"
        vocab_size: int | None = Field(default=1024, gt=len(SPECIALS), le=MOST_SYMBOLS)
        """Maximum size of the vocabulary; if it is too small, the rarest characters become `<unk>`. If null,
        merging stops only when no pair is frequent enough."""
        min_frequency: int = Field(default=2, ge=1)
        """Minimum number of occurrences for a pair to be merged."""
        word_end: Literal["glued", "apart"] = "glued"
        """Whether the end-of-word mark is part of the last symbol (glued) or a separate symbol (apart)."""
        dictionary: int = Field(default=DICTIONARY, gt=0)
        """Total characters of the distinct words to learn from; if there are more, the rarest words are left out."""

    kind = "classic-bpe"

    def __init__(
        self, symbols: Sequence[str], merges: Sequence[Pair], word_end: str, added: Sequence[str] = ()
    ) -> None:
        self.symbols, self.merges, self.word_end, self.added = list(symbols), list(merges), word_end, list(added)
        pieces = ["", "\N{REPLACEMENT CHARACTER}", WORD_END, *symbols]
        self.special = learnt_special(len(pieces), added, unknown=True)
        self.ids = {symbol: index for index, symbol in enumerate(pieces) if index >= 2}
        self.pieces = pieces + [""] * len(added)
        self.ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        self.cache: dict[str, tuple[list[int], list[int]]] = {}

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        counts = count_words(texts, str.split, settings.dictionary)
        if not counts:
            raise DataError("the training texts are empty: no words to learn")
        room = settings.room(len(SPECIALS))
        alphabet = _alphabet(counts, settings.word_end, room)
        words = ((split_word(word, settings.word_end), count) for word, count in counts.items())
        merges = learn_merges(words, alphabet, room, settings.min_frequency)
        made = dict.fromkeys(left + right for left, right in merges)  # two pairs can make the same symbol
        return cls([*alphabet, *made], merges, settings.word_end, settings.added)

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        refuse_surrogates(text)
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for match in WORD.finditer(text):
            word_ids, stops = self._encode_word(match[0])
            ids += word_ids
            offsets += ((match.start() + start, match.start() + stop) for start, stop in pairwise([0, *stops]))
        return Encoding(ids, offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        for text in texts:
            refuse_surrogates(text)
        return [[token for word in text.split() for token in self._encode_word(word)[0]] for text in texts]

    def _encode_word(self, word: str) -> tuple[list[int], list[int]]:
        """Return the ids of a word, and where in the word each one ends."""
        if word in self.cache:
            return self.cache[word]
        ids: list[int] = []
        stops: list[int] = []
        stop = 0
        for symbol in apply_merges(split_word(word, self.word_end), self.ranks):
            characters = symbol.rstrip(WORD_END)
            stop += len(characters)
            if symbol in self.ids:
                ids.append(self.ids[symbol])
            elif symbol == characters:
                ids.append(self.special["unknown"])
            else:  # a character never seen at the end of a word
                ids += [self.ids.get(characters, self.special["unknown"]), self.ids[WORD_END]]
                stops.append(stop)
            stops.append(stop)
        if len(self.cache) >= CACHED_WORDS:
            self.cache.clear()
        self.cache[word] = ids, stops
        return ids, stops

    def decode(self, ids: Iterable[int]) -> str:
        stream = self.stream()
        return "".join([stream.push(token) for token in ids])

    def token(self, index: int) -> str:
        return self.special.names.get(index) or readable(shown(self.pieces[index]))

    def stream(self) -> SubwordStream:
        return SubwordStream(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        return {
            "symbols": self.symbols,
            "merges": [list(pair) for pair in self.merges],
            "word_end": self.word_end,
            **saved_names(self.added),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "symbols", "merges", "word_end")
        symbols, known = distinct_strings(data, "symbols"), {WORD_END, *data["symbols"]}
        if not isinstance(data["merges"], list):
            raise ValueError("'merges' is not a list")
        merges = [(left, right) for left, right in data["merges"]]
        if data["word_end"] not in ("glued", "apart") or "" in known:
            raise ValueError("'word_end' is neither glued nor apart, or a symbol is empty")
        if not all({left, right, left + right} <= known for left, right in merges):
            raise ValueError("a merge gives an unknown symbol")
        return cls(symbols, merges, data["word_end"], read_names(data))


def _alphabet(words: Mapping[str, int], word_end: str, room: int | None) -> list[str]:
    """Return the start symbols, sorted; only the most frequent if there are too many.

    Every character is also a symbol without an end mark, because it can occur anywhere in a word.
    """
    symbols: set[str] = set().union(*words)
    if word_end == "glued":
        symbols |= {word[-1] + WORD_END for word in words}
    if room is None or len(symbols) <= room:
        return sorted(symbols)
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for symbol in (*word, word[-1] + WORD_END):
            counts[symbol] += count
    return sorted(most_frequent({symbol: counts[symbol] for symbol in symbols}, room))


class SubwordStream(TextStream):
    """Holds back the space at the end of a word until another word follows."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces
        self.held = ""

    def push(self, token: int) -> str:
        text = self.held + self.pieces[token]
        whole = text.rstrip(WORD_END)
        self.held = text[len(whole) :]
        return whole

    def finish(self) -> str:
        return ""
