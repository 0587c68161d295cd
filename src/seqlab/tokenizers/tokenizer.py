"""The interface of all tokenizers. `<end>` ends a document and precedes the first token.

Its id is 0 in vocabularies trained here. A published vocabulary keeps its ids, and `special` says which one it is.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from seqlab import registry
from seqlab.errors import DataError, RecipeError, RunError, nearest
from seqlab.recipe import PartSettings
from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.special import Special, learnt_special
from seqlab.tokenizers.templates import Template, usual_template

FILE = "tokenizer.json"
PUBLISHED = frozenset({"model", "added_tokens", "pre_tokenizer", "normalizer", "version"})
"""Keys of a `tokenizer.json` written by other programs; ours has a `kind` and none of these."""


class TextStream(ABC):
    """Ids in, text out, piece by piece. The output is always whole characters."""

    @abstractmethod
    def push(self, token: int) -> str:
        """Return the text that this token completes (may be empty)."""

    @abstractmethod
    def finish(self) -> str:
        """Return the rest, with an incomplete character replaced by U+FFFD."""


class Tokenizer(ABC):
    """The constructor stores, `fit` learns, `save` and `load` are exact inverses."""

    Settings: ClassVar[type[PartSettings]]
    kind: ClassVar[str]
    unit: ClassVar[Literal["part", "word", "symbol"]] = "part"
    """What a token is: a part of a text, a whole word, or a symbol of a sequence other than text."""
    special: Special = learnt_special(1, [], unknown=False)
    """The special tokens, by role."""
    declared_template: Template | None = None
    """The template that a published vocabulary declares, if any."""

    @classmethod
    @abstractmethod
    def fit(cls, texts: Iterable[str], settings: Any) -> Self:
        """Learn a vocabulary from texts, which are read once.

        They need not fit into memory, except for `unigram` and `sentencepiece`, whose library holds all of them.
        """

    @property
    @abstractmethod
    def vocab_size(self) -> int: ...

    @property
    def end_id(self) -> int:
        return self.special["end"]

    @property
    def unknown_id(self) -> int | None:
        """The id of the unknown token; None if everything can be encoded."""
        return self.special.get("unknown")

    @property
    def template(self) -> Template:
        """The special tokens around one text, and around two, when a model reads them as a whole."""
        return self.declared_template or usual_template(self.special)

    @abstractmethod
    def encode(self, text: str) -> Encoding:
        """Return the ids of a text. No text is ever encoded as a special token."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return only the ids, of many texts; tokenizers with a faster way override this."""
        return [self.encode(text).ids for text in texts]

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids. Special tokens are left out; unknown words are `<unk>`, unknown characters U+FFFD."""

    @abstractmethod
    def token(self, index: int) -> str:
        """Return a token in readable form."""

    @abstractmethod
    def stream(self) -> TextStream:
        """Return a stream that decodes one token at a time."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return all that `from_dict` needs, as plain data. Bytes become a separate file, named by their key."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: dict[str, Any]) -> Self: ...

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.to_dict().items():
            if isinstance(content, bytes):
                (folder / name).write_bytes(content)
        (folder / FILE).write_text(self._text(), encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self._text().encode("utf-8")).hexdigest()

    def _text(self) -> str:
        around = self.declared_template
        declared = {} if around is None else {"template": [around.single, around.pair]}
        data = {"kind": self.kind, **self.to_dict(), **declared}
        plain = {key: _sum(value) if isinstance(value, bytes) else value for key, value in data.items()}
        return json.dumps(plain, ensure_ascii=False, indent=0, sort_keys=True) + "\n"


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """Load the tokenizer that `save` wrote into a folder or the `tokenizer` folder of a run, or a published one."""
    folder = Path(folder)
    place = next((place for place in (folder, folder / "tokenizer") if (place / FILE).exists()), folder)
    path = place / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"model": None}
        if "kind" not in data and not PUBLISHED.isdisjoint(data):
            return _published(place)
        kind = data.pop("kind")
        if kind not in registry.names("tokenizer"):
            hint = nearest(str(kind), registry.names("tokenizer"))
            raise RunError(f"unknown kind of tokenizer '{kind}'", where=str(path), hint=hint)
        template = _template(data.pop("template")) if "template" in data else None
        tokenizer: Tokenizer = registry.find("tokenizer", kind).from_dict(_with_files(data, place))
        tokenizer.declared_template = template
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, RecipeError):
        hint = "train or download it again, or restore it from a copy"
        raise RunError("not a tokenizer, or damaged", where=str(path), hint=hint) from None
    return tokenizer


def _template(lines: Any) -> Template:
    if not isinstance(lines, list) or len(lines) != 2 or not all(isinstance(line, str) for line in lines):
        raise ValueError("'template' is not two lines")
    return Template(*lines)


def _published(folder: Path) -> Tokenizer:
    from seqlab.tokenizers.published import read_published

    tokenizer = read_published(folder)
    if tokenizer is None:
        hint = "give a folder that `seqlab tokenizer train` or `seqlab train` wrote, or one of GPT-2's or BERT's"
        raise RunError("no tokenizer here", where=str(folder), hint=hint)
    return tokenizer


def _with_files(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Replace the SHA-256 of each separate file by its bytes, as `to_dict` returned them."""
    filled = dict(data)
    for name in data:
        if re.fullmatch(r"\w+\.model", name):
            filled[name] = (folder / name).read_bytes()
            if _sum(filled[name]) != data[name]:
                raise ValueError(f"{name} is not the file that was saved")
    return filled


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def distinct_strings(data: dict[str, Any], key: str) -> list[str]:
    """Return the list of distinct strings under a key of a saved tokenizer, or raise a ValueError."""
    values = data[key]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"'{key}' is not a list of strings")
    if len(set(values)) < len(values):
        raise ValueError(f"'{key}' has the same string twice")
    return values


def only_keys(data: dict[str, Any], *keys: str, optional: Sequence[str] = ("added",)) -> None:
    """Check that a saved tokenizer has these keys and no others, except optional ones (`added` special tokens)."""
    if set(data) - set(optional) != set(keys):
        raise ValueError(f"the keys are {sorted(data)}, not {sorted(keys)}")


def most_frequent(counts: Mapping[str, int], room: int | None) -> list[str]:
    """Return the most frequent strings, at most `room` of them; ties by code points."""
    return sorted(counts, key=lambda string: (-counts[string], string))[:room]


def refuse_surrogates(text: str) -> None:
    """Raise an error for half of a UTF-16 pair, which is not a character: no UTF-8 file or token can represent it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise surrogate_error(error) from None


def surrogate_error(error: UnicodeEncodeError) -> DataError:
    """Return that error, for a tokenizer that has to encode the text anyway."""
    code = ord(error.object[error.start])
    return DataError(
        f"unpaired surrogate U+{code:04X} at character {error.start}",
        hint="read the text in its correct encoding, or remove the character",
    )


def readable(text: str) -> str:
    """Make spaces and unprintable characters visible: ' a\\n' → '␣a\\\\n'."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return "".join(shown).replace(" ", "␣")


def readable_bytes(piece: bytes) -> str:
    """Do the same for bytes; those that do not form a character are written \\xNN."""
    try:
        return readable(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return readable(piece.decode("utf-8", errors="backslashreplace"))


class ByteStream(TextStream):
    """For tokens of one or more bytes: holds bytes back until they form a whole character."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self.decoder.decode(self.pieces[token])

    def finish(self) -> str:
        return self.decoder.decode(b"", final=True)


def decode_bytes(pieces: Sequence[bytes], ids: Iterable[int]) -> str:
    """Decode all ids at once, to the same text as a `ByteStream`."""
    return b"".join([pieces[token] for token in ids]).decode("utf-8", errors="replace")
