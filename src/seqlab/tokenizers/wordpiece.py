"""WordPiece, the subwords of BERT: words are split into the longest known pieces, written ##so inside a word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import tokenizers
from pydantic import Field
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from seqlab.errors import DataError
from seqlab.tokenizers.dictionary import DICTIONARY, count_words
from seqlab.tokenizers.library import LibraryTokenizer
from seqlab.tokenizers.pattern import SPECIALS, SpacedStream
from seqlab.tokenizers.ratio_merges import CONTINUES, learn_pieces, split_word
from seqlab.tokenizers.special import (
    END,
    NAMES,
    Declarations,
    Special,
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
    TextStream,
    distinct_strings,
    most_frequent,
    only_keys,
    readable,
)

LONGEST_WORD = 100
"""Longer words are unknown, as in BERT: the time for a word grows with the square of its length."""
BLANKS = re.compile(r"[ \t\n\r]+")


@dataclass(frozen=True)
class Cleaning:
    """The cleaning of a text before it is split at spaces and punctuation (BERT's "basic" tokenizer).

    Control characters are always removed, and every kind of whitespace becomes a space.
    """

    lowercase: bool
    strip_accents: bool
    split_cjk: bool

    @classmethod
    def of(cls, lowercase: bool, strip_accents: bool | None, split_cjk: bool) -> Self:
        """As in BERT: if `strip_accents` is not set, it follows `lowercase`."""
        return cls(lowercase, lowercase if strip_accents is None else strip_accents, split_cjk)

    def normalizer(self) -> Any:
        return BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.split_cjk,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )

    def words(self, text: str) -> list[str]:
        return [word for word, _ in BertPreTokenizer().pre_tokenize_str(self.normalizer().normalize_str(text))]


class WordPieceTokenizer(LibraryTokenizer):
    """`<end>`, `<unk>`, the characters as first and as later letters of a word, then the pieces in the order made.

    A word becomes the longest piece that it begins with, then the longest ##piece that the rest begins with, and so
    on. A word that cannot be spelt this way is one `<unk>`. `ratio_merges` learns the pieces, and the `tokenizers`
    library encodes.

    Schuster and Nakajima 2012; Devlin et al. 2019, https://arxiv.org/abs/1810.04805
    """

    class Settings(TokenizerSettings):
        kind: str = "wordpiece"
        vocab_size: int | None = Field(default=1024, gt=len(SPECIALS))
        """Maximum size of the vocabulary; if it is too small, the rarest characters become `<unk>`. If null,
        merging stops only when no pair is frequent enough."""
        min_frequency: int | None = Field(default=None, ge=1)
        """Minimum number of occurrences for a pair to be merged. If null, the threshold falls while there is room."""
        dictionary: int = Field(default=DICTIONARY, gt=0)
        """Total characters of the distinct words to learn from; if there are more, the rarest words are left out."""
        lowercase: bool = False
        strip_accents: bool | None = None
        """Whether to remove accents (é → e). If null, the same as `lowercase`."""
        split_cjk: bool = True
        """Whether each Chinese character is a word."""
        vocab: str | None = None
        """A folder with BERT's `vocab.txt`, or its `tokenizer.json`. If set, nothing is learnt."""

    kind = "wordpiece"

    def __init__(
        self,
        tokens: Sequence[str],
        cleaning: Cleaning,
        added: Sequence[str] = (),
        declared: Declarations | None = None,
    ) -> None:
        self.tokens, self.added, self.cleaning = [*tokens, *added], list(added), cleaning
        self.special, self.declared = _special(self.tokens, added, declared or {})
        unknown = self.special["unknown"]
        silent = self.special.names.keys() - {unknown}
        self.pieces = ["" if index in silent else token for index, token in enumerate(self.tokens)]
        model = WordPiece(
            # without special tokens, so that no text becomes one
            vocab={token: index for index, token in enumerate(self.tokens) if index not in silent},
            unk_token=self.tokens[unknown],
            continuing_subword_prefix=CONTINUES,
            max_input_chars_per_word=LONGEST_WORD,
        )
        self.encoder = tokenizers.Tokenizer(model)
        self.encoder.normalizer = cleaning.normalizer()
        self.encoder.pre_tokenizer = BertPreTokenizer()

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        if settings.vocab is not None:
            from seqlab.tokenizers.published import load_published

            return load_published(settings.vocab, cls, settings.special)
        cleaning = Cleaning.of(settings.lowercase, settings.strip_accents, settings.split_cjk)
        counts = _count_words(texts, cleaning, settings.dictionary)
        if not counts:
            raise DataError("the training texts are empty: no words to learn")
        words = [(split_word(word), count) for word, count in counts.items()]
        room = settings.room(len(SPECIALS))
        alphabet = sorted(most_frequent(_alphabet(words, cleaning), room))
        known = set(alphabet)
        spelt = [(symbols, count) for symbols, count in words if known.issuperset(symbols)]  # others are unknown
        pieces = learn_pieces(spelt, alphabet, room, settings.min_frequency)
        return cls([*SPECIALS, *pieces], cleaning, settings.added)

    def decode(self, ids: Iterable[int]) -> str:
        stream = self.stream()
        return "".join([stream.push(token) for token in ids])

    def token(self, index: int) -> str:
        return readable(self.tokens[index])

    def stream(self) -> WordPieceStream:
        return WordPieceStream(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        tokens = self.tokens[: len(self.tokens) - len(self.added)]
        return {"tokens": tokens, **asdict(self.cleaning), **saved_names(self.added), **saved_roles(self.declared)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, "tokens", "lowercase", "strip_accents", "split_cjk", optional=("added", "special"))
        tokens, added, declared = distinct_strings(data, "tokens"), read_names(data), read_roles(data)
        cleaning = Cleaning(data["lowercase"], data["strip_accents"], data["split_cjk"])
        if not all(isinstance(choice, bool) for choice in asdict(cleaning).values()):
            raise ValueError("a setting is neither true nor false")
        if "" in tokens or not set(tokens).isdisjoint(added):
            raise ValueError("a token is empty, or an added token is already in the vocabulary")
        check_roles(_special([*tokens, *added], added, declared)[0], "unknown")
        return cls(tokens, cleaning, added, declared)


def _special(tokens: Sequence[str], added: Sequence[str], declared: Declarations) -> tuple[Special, Declarations]:
    """Find the special tokens: those with known names, those added, and those declared."""
    known = {name for names in NAMES.values() for name in names}.union(added)
    said = set(declared.values())
    names = {index: token for index, token in enumerate(tokens) if token in known or index in said}
    roles, ids = roles_by_name(names), {token: index for index, token in names.items()}
    if END not in ids and "[SEP]" in ids:  # whatever other tokens a vocabulary like BERT's has
        roles["end"] = ids["[SEP]"]
    return published_special(names, roles, declared)


class WordPieceStream(TextStream):
    """Joins ##pieces to the text so far; other pieces are words, with spaces and punctuation as in `word`."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces
        self.words = SpacedStream(pieces, attach=True)

    def push(self, token: int) -> str:
        piece = self.pieces[token]
        if piece.startswith(CONTINUES) and len(piece) > len(CONTINUES):
            self.words.space = True
            return piece.removeprefix(CONTINUES)
        return self.words.push(token)

    def finish(self) -> str:
        return ""


def _count_words(texts: Iterable[str], cleaning: Cleaning, room: int) -> Counter[str]:
    """Count words. Strings between whitespace are counted first, so each distinct one is cleaned and split once."""
    words: Counter[str] = Counter()
    for chunk, count in count_words(texts, BLANKS.split, room).items():
        for word in cleaning.words(chunk):
            if len(word) <= LONGEST_WORD:
                words[word] += count
    return words


def _alphabet(words: Iterable[tuple[Sequence[str], int]], cleaning: Cleaning) -> Counter[str]:
    """Count each start symbol. Every character gets both forms, first and later, unless it is always a word alone."""
    counts: Counter[str] = Counter()
    for symbols, count in words:
        for symbol in symbols:
            counts[symbol] += count
    for character in {symbol.removeprefix(CONTINUES) for symbol in counts}:
        if len(cleaning.words(f"a{character}a")) == 1:
            counts.update({character: 0, CONTINUES + character: 0})
    return counts
