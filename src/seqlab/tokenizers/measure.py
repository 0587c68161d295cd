"""How well tokenizers fit a text, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from seqlab.data.reading.noise import scramble_word
from seqlab.tokenizers.dictionary import count_words
from seqlab.tokenizers.tokenizer import Tokenizer

RARELY_SEEN = ["untokenizable", "rehyphenations", "antidisestablishmentarianism", "zxqvkjwz"]


@dataclass(frozen=True)
class Measure:
    """Statistics of a tokenizer on a text. Words are separated by whitespace."""

    kind: str
    vocab_size: int
    words: int
    characters: int
    bytes: int
    tokens: int
    unknown: int

    @property
    def tokens_per_word(self) -> float:
        return self.tokens / self.words if self.words else 0.0

    @property
    def characters_per_token(self) -> float:
        return self.characters / self.tokens if self.tokens else 0.0

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / self.tokens if self.tokens else 0.0

    @property
    def unknown_share(self) -> float:
        return self.unknown / self.tokens if self.tokens else 0.0


def measure(tokenizer: Tokenizer, texts: Iterable[str]) -> Measure:
    """Measure a tokenizer on texts, which are read once, one at a time."""
    words = characters = size = tokens = unknown = 0
    for text in texts:
        ids = tokenizer.encode_batch([text])[0]
        words += len(text.split())
        characters += len(text)
        size += len(text.encode("utf-8"))
        tokens += len(ids)
        if tokenizer.unknown_id is not None:
            unknown += ids.count(tokenizer.unknown_id)
    return Measure(tokenizer.kind, tokenizer.vocab_size, words, characters, size, tokens, unknown)


ENOUGH = 200_000
"""Characters of a text that are enough to measure what a tokenizer loses."""


@dataclass(frozen=True)
class Lost:
    """What decoding does not restore exactly: a share of the lines, and shares of the characters by kind."""

    lines: float
    characters: dict[str, float]


def lost(tokenizer: Tokenizer, texts: Iterable[str]) -> Lost:
    """Measure what decoding does not restore exactly: case, spaces or line ends are lost.

    A model need not predict what its tokenizer drops, so its bits per character are too low. Lines with unknown tokens
    are skipped, because those are counted elsewhere.
    """
    lines = changed = characters = seen = 0
    missing = Counter[str]()
    for text in texts:
        for line in text.splitlines(keepends=True):
            (ids,) = tokenizer.encode_batch([line])
            if tokenizer.unknown_id not in ids:
                restored = tokenizer.decode(ids)
                lines, changed, seen = lines + 1, changed + (restored != line), seen + len(line)
                missing += _missing(line, restored)
        characters += len(text)
        if characters > ENOUGH:
            break
    return Lost(changed / max(1, lines), {kind: count / seen for kind, count in sorted(missing.items())})


def _missing(line: str, restored: str) -> Counter[str]:
    """Count the characters of each kind that are not restored; a space too many hides one as well."""
    if line == restored:
        return Counter()
    before, after = Counter(line), Counter(restored)
    spaces = Counter({character: count for character, count in (after - before).items() if character.isspace()})
    found = Counter[str]()
    for character, count in (before - after + spaces).items():
        kind = "white space" if character.isspace() else "capitals" if character.isupper() else "other characters"
        found[kind] += count
    return found


def pieces(tokenizer: Tokenizer, word: str) -> list[str]:
    """Split a word as in a text, after a space; a separate token for the space, if any, is left out."""
    encoding = tokenizer.encode(f" {word}")
    return [tokenizer.token(index) for index, (_, stop) in zip(encoding.ids, encoding.offsets, strict=True) if stop > 1]


def telling_words(texts: Iterable[str]) -> dict[str, str]:
    """Choose words of a text on which tokenizers tend to differ, with a label for each.

    They are the most frequent word of six letters or more, the same word scrambled, the longest word of up to sixteen
    letters that occurs once, and a word that is not in the text. Ties go to the first in the order of code points.
    """
    counts = {word: count for word, count in count_words(texts, str.split).items() if word.isalpha()}
    chosen: dict[str, str] = {}
    if long := [word for word in counts if len(word) >= 6]:
        chosen["frequent"] = min(long, key=lambda word: (-counts[word], word))
    if rare := [word for word in counts if counts[word] == 1 and 6 <= len(word) <= 16]:
        chosen["rare"] = min(rare, key=lambda word: (-len(word), word))
    chosen["unseen"] = next(word for word in RARELY_SEEN if word not in counts or word == RARELY_SEEN[-1])
    if "frequent" in chosen:
        chosen["scrambled"] = scramble_word(chosen["frequent"], key=0)
    return chosen
