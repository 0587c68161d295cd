r"""N-gram models in the ARPA format of kenlm, SRILM and other toolkits.

    \data\
    ngram 1=4                         number of n-grams, for each order
    \1-grams:
    -99     <s>     -0.30103          log₁₀ p, the words, log₁₀ backoff (not in the highest order)
    ...
    \end\

The format has two words for `<end>`: `<s>` in a context, `</s>` where it is predicted. Since spaces separate
words, characters that are white space or not printable are written as `\u{20}`, with the code point in
hexadecimal; so are a backslash before `u{`, and the `<` of an ordinary token spelt `<s>`, `</s>` or `<UNK>`.
An empty token is `\u{}`. All other words are unchanged.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.formats.files import draft_of
from seqlab.data.storage.scratch import Integers
from seqlab.errors import DataError, RunError
from seqlab.models.ngram import NGram
from seqlab.models.ngram_counting import END
from seqlab.models.ngram_smoothing import Floats
from seqlab.models.ngram_tables import NGramTables
from seqlab.tokenizers.special import END as END_WORD
from seqlab.tokenizers.special import UNKNOWN

BEGINS, ENDS = "<s>", "</s>"
LN10 = math.log(10)
LINES = 1 << 16
"""Lines written at a time."""
SCORES = 1 << 24
"""Scores checked at a time for probabilities above 1."""
ROUNDING = 1e-3
"""How far above 0 a sum of logarithms may be, since files round them to a few digits."""


def write_arpa(model: NGram, words: Sequence[str], path: str | Path) -> None:
    """Write a model whose token i is spelt `words[i]`. Compress the file if its name ends in `.gz`."""
    if model.settings.smoothing not in ("kneser-ney", "modified-kneser-ney"):
        # ARPA cannot express how these treat unseen contexts, or how add-k treats unseen words: other
        # programs would compute other probabilities.
        raise RunError(
            f"an ARPA file cannot hold a model smoothed by {model.settings.smoothing}", hint="use kneser-ney"
        )
    if len(words) != model.vocab_size:
        raise RunError(f"{len(words)} words for a vocabulary of {model.vocab_size}", hint="give one word per id")
    spelt = [BEGINS, *map(escape, words[1:])]
    word, times = Counter(spelt).most_common(1)[0]
    if times > 1:
        raise RunError(f"{times} tokens are spelt '{word}'", hint="ARPA needs a different word for each token")
    path = Path(path)
    with draft_of(path) as draft, _create(draft, path.suffix == ".gz") as file:
        for piece in _pieces(model, spelt):
            file.write(piece.encode("utf-8"))


def read_arpa(path: str | Path, unknown: bool = False) -> tuple[NGram, list[str]]:
    """Read a model and the spellings of its tokens. Id 0 is `<end>`; the others are in the order of the file.

    With `unknown`, id 1 is `<unk>` (or `<UNK>`), as in word tokenizers; if the file lacks it, its probability
    is 10⁻¹⁰⁰, as in kenlm. The file does not say how the model was smoothed, so the settings are the defaults
    for its order.
    """
    with _open(Path(path)) as file:
        return _Reader(str(path), file, unknown).model()


def escape(word: str) -> str:
    if not word:
        return r"\u{}"
    if word in (BEGINS, ENDS, "<UNK>"):
        return r"\u{3c}" + word[1:]
    word = word.replace(r"\u{", r"\u{5c}u{")
    if word.isprintable() and " " not in word:
        return word
    return "".join(c if c.isprintable() and c != " " else f"\\u{{{ord(c):x}}}" for c in word)


def unescape(word: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else ""

    return re.sub(r"\\u\{((?:10|[0-9a-f])?[0-9a-f]{0,4})\}", character, word)


def _open(path: Path) -> IO[bytes]:
    try:
        return cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb"))
    except OSError as error:
        raise DataError(f"cannot open the file ({error.strerror})", where=str(path)) from None


def _create(path: Path, packed: bool) -> IO[bytes]:
    """Create a file without a name or a timestamp inside, so that the same model gives the same bytes."""
    file = path.open("wb")
    return cast(IO[bytes], _Packed(file)) if packed else file


class _Packed(gzip.GzipFile):
    """Also closes the file that it writes to."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__("", "wb", fileobj=file, mtime=0)
        self.below = file

    def close(self) -> None:
        super().close()
        self.below.close()


# ---------------------------------------------------------------------- writing


def _pieces(model: NGram, spelt: list[str]) -> Iterator[str]:
    """Yield the file in pieces that need little memory, however large the tables are."""
    sizes = [model.vocab_size + 1, *(len(model.table("keys", k)) - 1 for k in range(2, model.order + 1))]
    yield "\\data\\\n" + "".join(f"ngram {order}={size}\n" for order, size in enumerate(sizes, start=1))
    first, ending = np.array(spelt, dtype=object), np.array([ENDS, *spelt[1:]], dtype=object)
    for order in range(1, model.order + 1):
        yield f"\n\\{order}-grams:\n"
        size = model.vocab_size if order == 1 else sizes[order - 1]
        for start in range(0, size, LINES):
            rows = slice(start, min(start + LINES, size))
            tokens = _tokens(model, order, np.arange(rows.start, rows.stop))
            words = [(ending if column else first)[tokens[:, column]].tolist() for column in range(order)]
            texts = list(map(" ".join, zip(*words, strict=True)))
            lines = _lines(model, order, rows, texts)
            if order == 1 and start == 0:  # `<end>` as a context, and as a predicted word
                number, context = lines[0].split("\t", 1)
                lines[0] = f"-99\t{context}{number}\t{ENDS}\n"
            yield "".join(lines)
    yield "\n\\end\\\n"


def _tokens(model: NGram, order: int, ids: Integers) -> Integers:
    """Return the n-grams in the given rows of a table, with one column per token."""
    columns = []
    for length in range(order, 1, -1):
        ids, word = np.divmod(model.table("keys", length)[torch.from_numpy(ids)].cpu().numpy(), model.vocab_size)
        columns.append(word)
    return np.stack([ids, *columns[::-1]], axis=1)


def _lines(model: NGram, order: int, rows: slice, texts: list[str]) -> list[str]:
    log_probability = np.minimum(model.table("log_probability", order)[rows].double().cpu().numpy() / LN10, 0)
    if order == model.order:
        return [f"{p:.9g}\t{text}\n" for p, text in zip(log_probability.tolist(), texts, strict=True)]
    log_backoff = model.table("log_backoff", order)[rows].double().cpu().numpy() / LN10
    numbers = zip(log_probability.tolist(), texts, log_backoff.tolist(), strict=True)
    return [f"{p:.9g}\t{text}\t{b:.9g}\n" for p, text, b in numbers]


# ---------------------------------------------------------------------- reading

ENDS_ID, BEGINS_ID, UNKNOWN_ID = -2, -1, 1  # the first two only while reading: in the model, both are END


@dataclass(frozen=True)
class _Section:
    """The N n-grams of one order, as they are in the file."""

    tokens: Integers  # (N, order)
    log_probability: Floats
    log_backoff: Floats
    lines: Integers


class _Reader:
    """Reads a file line by line and keeps track of the line; words are bytes, separated by ASCII spaces."""

    def __init__(self, path: str, file: IO[bytes], unknown: bool) -> None:
        self.path, self.file, self.number, self.line = path, file, 0, b""
        self.decimals = 1  # of the log₁₀ p of 1-grams
        self.unknown = [UNKNOWN.encode()] if unknown else []
        self.words = [END_WORD.encode(), *self.unknown]
        self.ids = {ENDS.encode(): ENDS_ID, BEGINS.encode(): BEGINS_ID}
        self.ids |= dict.fromkeys([*self.unknown, *(word.upper() for word in self.unknown)], UNKNOWN_ID)

    def model(self) -> tuple[NGram, list[str]]:
        sizes = self.sizes()
        section = self.unigrams(self.section(1, sizes))
        self.check_sum(section)
        words = [self.spelling(word) for word in self.words]
        place = np.argsort(section.tokens[:, 0])
        keys = [np.arange(len(words))]
        log_probability = [np.delete(section.log_probability[place], 1)]  # `</s>` for a predicted `<end>`
        log_backoff = [np.delete(section.log_backoff[place], 0)]  # `<s>` for `<end>` in a context
        lines = [np.delete(section.lines[place], 0)]
        for order in range(2, len(sizes) + 1):
            section = self.section(order, sizes)
            key, place = self.keys(section, keys)
            keys.append(key)
            log_probability.append(section.log_probability[place])
            log_backoff.append(section.log_backoff[place])
            lines.append(section.lines[place])
        if self.line != b"\\end\\":
            raise self.error("no \\end\\ after the last n-gram", hint="the file may be truncated")
        model = NGram(NGram.Settings(order=len(sizes)), len(words))
        model.set_tables(NGramTables(keys[1:], log_probability, log_backoff[:-1], np.ones(len(words), dtype=bool)))
        self.check_backoffs(model, words, lines)
        return model, words

    def check_sum(self, section: _Section) -> None:
        """Check that the probabilities of the 1-grams add up to 1 at most; `<s>` is not predicted."""
        total = float(np.exp(section.log_probability[section.tokens[:, 0] != BEGINS_ID]).sum())
        rounded = 10 ** (0.5 * 10**-self.decimals)  # at most: each is rounded to its decimals
        if total > max(1 + ROUNDING, rounded):
            self.number = int(section.lines.min())
            what = f"the probabilities of the 1-grams add up to {total:.4g}, above 1"
            raise self.error(what, hint="the file is damaged, or its scores are not probabilities")

    def check_backoffs(self, model: NGram, words: Sequence[str], lines: Sequence[Integers]) -> None:
        """Check that no probability exceeds 1; a backoff above 1 is allowed as long as none does."""
        rows = max(1, SCORES // len(words))
        for order in range(1, model.order):
            above = np.flatnonzero(model.table("log_backoff", order)[:-2].cpu().numpy() > ROUNDING)
            for ids in np.split(above, range(rows, len(above), rows)):
                contexts = _tokens(model, order, ids)
                scores = model.logits(model(torch.from_numpy(contexts)).states[:, -1])
                for row in np.flatnonzero(scores.amax(1).numpy() > ROUNDING)[:1]:
                    spelt = " ".join([words[token] for token in contexts[row]])
                    p, word = math.exp(scores[row].max()), words[int(scores[row].argmax())]
                    self.number = int(lines[order - 1][ids[row]])
                    what = f"this backoff makes the probability of '{word}' after '{spelt}' {p:.3g}, above 1"
                    raise self.error(what, hint="the file is damaged, or its scores are not probabilities")

    def sizes(self) -> list[int]:
        """Read the header: the number of n-grams of each order."""
        while self.advance() != b"\\data\\":
            if not self.line:
                raise self.error("no \\data\\ line", hint="give an ARPA file")
        sizes: list[int] = []
        while match := re.fullmatch(rb"ngram\s+(\d+)\s*=\s*(\d+)", self.advance()):
            if int(match[1]) != len(sizes) + 1:
                raise self.error(f"order {int(match[1])}, but order {len(sizes) + 1} is expected here")
            sizes.append(int(match[2]))
        if not sizes:
            raise self.error("no line like 'ngram 1=1000' after \\data\\")
        return sizes

    def section(self, order: int, sizes: list[int]) -> _Section:
        """Read the n-grams of one order; those of order 1 assign the ids of words."""
        if self.line != b"\\%d-grams:" % order:
            raise self.error(f"no \\{order}-grams: where they should begin")
        tokens, numbers, lines = array("q"), array("d"), array("q")
        while (line := self.advance()) and not line.startswith(b"\\"):
            fields = line.split()
            if not order < len(fields) < order + 3:
                raise self.error(f"{len(fields)} fields for a {order}-gram", hint="give a number, the words, a backoff")
            if order == 1:
                self.decimals = max(self.decimals, len(fields[0].partition(b".")[2]))
                if fields[1] not in self.ids:
                    self.ids[fields[1]] = len(self.words)
                    self.words.append(fields[1])
            try:
                tokens.extend([self.ids[word] for word in fields[1 : order + 1]])
                numbers.extend((float(fields[0]), float(fields[-1]) if len(fields) == order + 2 else 0.0))
            except KeyError as error:
                raise self.error(f"the word {error.args[0].decode(errors='replace')!r} is not a 1-gram") from None
            except ValueError:
                raise self.error("not a number", hint="give a number, the words, a backoff") from None
            lines.append(self.number)
        if len(lines) != sizes[order - 1]:
            raise self.error(f"{len(lines)} {order}-grams end here, but \\data\\ says {sizes[order - 1]}")
        logs = np.array(numbers).reshape(-1, 2) * LN10
        section = _Section(np.array(tokens, dtype=np.int64).reshape(-1, order), logs[:, 0], logs[:, 1], np.array(lines))
        self.check(section, ~((logs[:, 0] <= 0) & (logs[:, 1] < math.inf)), "not the logarithm of a probability")
        return section

    def unigrams(self, section: _Section) -> _Section:
        """Check that `</s>`, `<s>` and each word occur once; add the unknown word if it is wanted but missing."""
        token, _ = self.in_order(section, section.tokens[:, 0])
        if token[:2].tolist() != [ENDS_ID, BEGINS_ID]:
            raise self.error(f"no 1-gram {BEGINS} or {ENDS}")
        if not self.unknown or UNKNOWN_ID in token:
            return section
        return _Section(
            np.append(section.tokens, [[UNKNOWN_ID]], axis=0),
            np.append(section.log_probability, -100 * LN10),
            np.append(section.log_backoff, 0.0),
            np.append(section.lines, self.number),
        )

    def keys(self, section: _Section, lower: list[Integers]) -> tuple[Integers, Integers]:
        """Return the sorted keys of the n-grams of order 2 and above, and the index of each in the section."""
        outer, inner = section.tokens[:, 1:] == BEGINS_ID, section.tokens[:, :-1] == ENDS_ID
        self.check(section, (outer | inner).any(1), f"{BEGINS} that is not first, or {ENDS} that is not last")
        tokens = np.maximum(section.tokens, END)
        key = tokens[:, 0]
        for column, shorter in enumerate(lower):
            prefix = np.searchsorted(shorter, key)
            missing = np.append(shorter, -1)[prefix] != key
            self.check(section, missing, f"the {column + 1}-gram at the start of this n-gram is missing")
            key = prefix * len(lower[0]) + tokens[:, column + 1]
        return self.in_order(section, key)

    def in_order(self, section: _Section, key: Integers) -> tuple[Integers, Integers]:
        place = np.argsort(key, kind="stable")
        again = place[1:][np.diff(key[place]) == 0]
        self.check(section, np.isin(np.arange(len(key)), again), "duplicate n-gram")
        return key[place], place

    def spelling(self, word: bytes) -> str:
        try:
            return unescape(word.decode("utf-8"))
        except UnicodeDecodeError:
            raise DataError(f"the word {word!r} is not UTF-8 text", where=self.path) from None

    def advance(self) -> bytes:
        """Return the next line that is not empty, or b"" at the end of the file."""
        try:
            while line := self.file.readline():
                self.number += 1
                self.line = line.strip()
                if self.line:
                    return self.line
        except (OSError, EOFError, zlib.error) as error:
            raise self.error(f"cannot read further ({error})", hint="the file may be damaged") from None
        self.line = b""
        return self.line

    def check(self, section: _Section, wrong: NDArray[np.bool_], what: str) -> None:
        if wrong.any():
            self.number = int(section.lines[wrong.argmax()])
            raise self.error(what)

    def error(self, what: str, hint: str | None = None) -> DataError:
        return DataError(what, where=f"{self.path}, line {self.number}", hint=hint)
