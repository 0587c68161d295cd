"""SentencePiece: subwords over raw text, with spaces written as ▁. Trains, reads and writes `.model` files.

Kudo and Richardson 2018, https://arxiv.org/abs/1808.06226
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Self

import sentencepiece as library
from pydantic import Field

from seqlab.errors import DataError
from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.special import (
    END,
    UNKNOWN,
    Declarations,
    Role,
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
    ByteStream,
    Tokenizer,
    decode_bytes,
    most_frequent,
    only_keys,
    readable_bytes,
    refuse_surrogates,
)

SPACE = "▁"
FILE_NAME = "sentencepiece.model"
COVERAGE = 0.9995
"""Share of the characters in the training text to cover; the rarest ones are spelt in bytes, or unknown."""
LONGEST_LINE = 1 << 15
CUTS = re.compile("[\0\t\n▁▅]+")
"""Where training texts are cut: at characters that the library reserves. It would skip lines that contain them."""

Algorithm = Literal["unigram", "bpe"]


class SentencePieceTokenizer(Tokenizer):
    """The library does all the work. The `.model` file is saved beside `tokenizer.json` for other tools to read.

    With "identity" nothing is lost: spaces and line endings are restored, and characters without a piece are spelt
    in bytes. A ▁ in a text, which the library would decode as a space, is spelt in bytes too. A supplied model keeps
    its ids, and `</s>` is its end token. Its control symbols and the tokens added after it are special tokens;
    user-defined symbols are text.
    """

    class Settings(TokenizerSettings):
        kind: str = "sentencepiece"
        vocab_size: int = Field(default=1024, gt=2)
        algorithm: Algorithm = "unigram"
        """Algorithm for learning pieces."""
        normalization: Literal["identity", "nmt_nfkc"] = "identity"
        """identity leaves texts unchanged; nmt_nfkc is SentencePiece's default: NFKC, single spaces, and a space before
        the first word."""
        byte_fallback: bool = True
        """Whether characters without a piece become bytes, which takes 256 ids; otherwise they become `<unk>`."""
        model: str | None = None
        """An existing `.model` file. If set, nothing is learnt, and the other settings are ignored."""

    kind = "sentencepiece"

    def __init__(self, model: bytes, added: Sequence[str] = (), declared: Declarations | None = None) -> None:
        self.model, self.added = model, list(added)
        self.processor = _processor(model)
        names = [self.processor.id_to_piece(index) for index in range(self.processor.get_piece_size())]
        self.is_byte = list(map(self.processor.is_byte, range(len(names))))
        no_end = self.processor.eos_id() < 0 and (declared or {}).get("end") is None
        behind = [*added, END] if no_end else list(added)  # one more token
        self.special, self.declared = self._special(names, behind, declared or {})
        self.names = names + behind
        self.is_byte += [False] * len(behind)
        self.pieces = [self._bytes(index) for index in range(len(self.names))]
        self.prefix = self.processor.normalize("a").startswith(SPACE)
        # A ▁ can be spelt in bytes unless a space is put before each text, and so before each part of one.
        can_spell = self.unknown_id is None and not self.prefix
        self.escape = [self.is_byte.index(True) + value for value in SPACE.encode()] if can_spell else None

    def _special(
        self, pieces: Sequence[str], behind: Sequence[str], declared: Declarations
    ) -> tuple[Special, Declarations]:
        own, unknown = self.processor, self.processor.unk_id()
        names = {index: name for index, name in enumerate(pieces) if index == unknown or own.is_control(index)}
        names |= dict(enumerate(behind, len(pieces)))
        ids: dict[Role, int] = {"begin": own.bos_id(), "end": own.eos_id(), "pad": own.pad_id(), "unknown": unknown}
        roles, said = roles_by_name(names), dict(declared)
        if END not in behind:
            roles.pop("end", None)  # it belongs to the model or is declared
        roles |= {role: index for role, index in ids.items() if index >= 0}
        if any(self.is_byte):  # nothing is unknown
            for each in (roles, said):
                each.pop("unknown", None)
        return published_special(names, roles, said)

    def _bytes(self, index: int) -> bytes:
        if index == self.processor.unk_id():
            return "\N{REPLACEMENT CHARACTER}".encode()
        if index in self.special.names:
            return b""
        name = self.names[index]
        return bytes([int(name[1:-1], 16)]) if self.is_byte[index] else name.replace(SPACE, " ").encode()

    @classmethod
    def fit(cls, texts: Iterable[str], settings: Settings) -> Self:
        if settings.model is not None:
            from seqlab.tokenizers.published import load_published

            return load_published(settings.model, cls, settings.special)
        size = settings.vocab_size - len(settings.added)
        room = size - 2 - 256 * settings.byte_fallback
        if room < 1:
            own = f"{256 * settings.byte_fallback} bytes and {2 + len(settings.added)} special tokens"
            what = f"'vocab_size' {settings.vocab_size} is too small, with {own}"
            raise DataError(what, where="tokenizer", hint="make it larger, or set byte_fallback=false")
        lossless = settings.normalization == "identity"
        lines = training_lines(texts, room, settings.normalization)
        options = {
            "normalization_rule_name": settings.normalization,
            "add_dummy_prefix": not lossless,
            "remove_extra_whitespaces": not lossless,
            "byte_fallback": settings.byte_fallback,
        }
        return cls(train_model(lines, settings.algorithm, size, **options), settings.added)

    @property
    def vocab_size(self) -> int:
        return len(self.names)

    def encode(self, text: str) -> Encoding:
        refuse_surrogates(text)
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        shift = 0
        for part in self._parts(text):
            if part == SPACE and self.escape is not None:
                ids += self.escape
                offsets += [(shift, shift + 1)] * len(self.escape)
            else:
                found = self.processor.encode(part, return_type="offset_mapping")
                ids += found["ids"]
                offsets += self._spans(found["ids"], found["offsets"], shift)
            shift += len(part)
        return Encoding(ids, offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        for text in texts:
            refuse_surrogates(text)
        parts = [self._parts(text) for text in texts]
        flat = list(chain.from_iterable(parts))
        encoded = zip(flat, self.processor.encode(flat), strict=True)
        whole = (self.escape if self.escape is not None and part == SPACE else ids for part, ids in encoded)
        return [list(chain.from_iterable(islice(whole, len(group)))) for group in parts]

    def _parts(self, text: str) -> list[str]:
        """Split a text before and after each ▁ that has to be spelt in bytes."""
        if self.escape is None or SPACE not in text:
            return [text]
        return [part for part in re.split(f"({SPACE})", text) if part]

    def _spans(self, ids: list[int], spans: list[tuple[int, int]], shift: int) -> Iterator[tuple[int, int]]:
        """Correct the spans of bytes: the library gives a character's span only to its last byte, and none before."""
        for token, (start, stop) in zip(ids, spans, strict=True):
            yield start + shift, max(stop, start + self.is_byte[token]) + shift

    def decode(self, ids: Iterable[int]) -> str:
        text = decode_bytes(self.pieces, ids)
        return text.removeprefix(" ") if self.prefix else text

    def token(self, index: int) -> str:
        """Return a readable token. Bytes are shown by name, `<0x61>`: as characters, they would look like pieces."""
        plain = self.pieces[index] and index != self.processor.unk_id() and not self.is_byte[index]
        return readable_bytes(self.pieces[index]) if plain else self.names[index]

    def stream(self) -> ByteStream:
        return PrefixedStream(self.pieces) if self.prefix else ByteStream(self.pieces)

    def to_dict(self) -> dict[str, Any]:
        return {FILE_NAME: self.model, **saved_names(self.added), **saved_roles(self.declared)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        only_keys(data, FILE_NAME, optional=("added", "special"))
        tokenizer = cls(data[FILE_NAME], read_names(data), read_roles(data))
        check_roles(tokenizer.special)
        if tokenizer.special.get("unknown", unknown := tokenizer.processor.unk_id()) != unknown:
            raise ValueError("the model has a different unknown token")
        return tokenizer


class PrefixedStream(ByteStream):
    """Drops the space that `encode` put before the text."""

    begun = False

    def push(self, token: int) -> str:
        text = super().push(token)
        if text and not self.begun:
            self.begun = True
            return text.removeprefix(" ")
        return text


def read_model(path: Path) -> SentencePieceTokenizer:
    """Read a `.model` file as a tokenizer."""
    try:
        tokenizer = SentencePieceTokenizer(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except ValueError:
        raise DataError("not a SentencePiece model, or damaged", where=str(path), hint="copy it again") from None
    if tokenizer.processor.normalize("a").endswith(SPACE):
        raise DataError("models that put the space after the words are not supported", where=str(path))
    return tokenizer


def _processor(model: bytes) -> Any:
    if not model:  # the library would wait for more
        raise ValueError("an empty model")
    try:
        return library.SentencePieceProcessor(model_proto=model)
    except (RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from None


def training_lines(texts: Iterable[str], room: int, rule: str) -> list[str]:
    """Return the lines of texts without the rarest characters; the rest cover 99.95 % and fit into the room."""
    normalize = library.SentencePieceNormalizer(rule_name=rule).normalize
    lines: list[str] = []
    counts: Counter[str] = Counter()
    for text in texts:
        refuse_surrogates(text)
        for line in map(normalize, CUTS.split(text)):
            counts.update(line)
            lines += (line[start : start + LONGEST_LINE] for start in range(0, len(line), LONGEST_LINE))
    if not lines:
        raise DataError("the training texts are empty: no characters to learn")
    left, rare = COVERAGE * counts.total(), []
    for place, character in enumerate(most_frequent(counts, None)):
        if left <= 0 or place >= room:
            rare.append(character)
        left -= counts[character]
    if not rare:
        return lines
    cuts = re.compile(f"[{re.escape(''.join(rare))}]+")
    return [part for line in lines for part in cuts.split(line) if part]


def train_model(lines: Iterable[str], algorithm: Algorithm, vocab_size: int, **options: Any) -> bytes:
    """Train a `.model` with `<end>` 0 and `<unk>` 1, on one thread: on more, Unigram's sums round differently."""
    made = io.BytesIO()
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=made,
            model_type=algorithm,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            max_sentence_length=4 * LONGEST_LINE,  # in bytes; longer lines would be skipped
            num_threads=1,
            minloglevel=2,
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            pad_id=-1,
            eos_piece=END,
            unk_piece=UNKNOWN,
            **options,
        )
    except RuntimeError as error:
        raise DataError(f"SentencePiece cannot learn from these texts ({error})") from None
    return made.getvalue()
