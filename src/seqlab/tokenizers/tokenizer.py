"""What every tokenizer can do. Id 0 is always `<end>`: it closes a document and is what the first token follows."""

from __future__ import annotations

import codecs
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from seqlab import registry
from seqlab.errors import DataError, RunError
from seqlab.recipe import PartSettings

END = "<end>"
UNKNOWN = "<unk>"


@dataclass(frozen=True)
class Encoding:
    """A text as ids; `offsets[i]` is the span of the text (start, stop) that token i stands for."""

    ids: list[int]
    offsets: list[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.ids)


class TextStream(ABC):
    """Ids in, text out, piece by piece: what it has given so far is always whole characters."""

    @abstractmethod
    def push(self, token: int) -> str:
        """The text that this token completes (may be empty)."""

    @abstractmethod
    def finish(self) -> str:
        """What is left, a broken character replaced by U+FFFD."""


class Tokenizer(ABC):
    """The constructor stores, `fit` learns, `save` and `load` are exact inverses."""

    Settings: ClassVar[type[PartSettings]]
    kind: ClassVar[str]
    end_id: ClassVar[int] = 0
    unknown_id: int | None = None
    """The id of what is not in the vocabulary; None where everything can be encoded."""

    @classmethod
    @abstractmethod
    def fit(cls, texts: Iterable[str], settings: Any) -> Self:
        """Learn a vocabulary from texts, which are read once and need not fit into memory."""

    @property
    @abstractmethod
    def vocab_size(self) -> int: ...

    @abstractmethod
    def encode(self, text: str) -> Encoding:
        """Ids of a text. The text never becomes a special token, whatever it says."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids alone, of many texts; a tokenizer with a faster way overrides it."""
        return [self.encode(text).ids for text in texts]

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special tokens are left out."""

    @abstractmethod
    def token(self, index: int) -> str:
        """A token as a person can read it."""

    @abstractmethod
    def stream(self) -> TextStream:
        """Decodes one token at a time."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All that `from_dict` needs, as plain data."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: dict[str, Any]) -> Self: ...

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self._text(), encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self._text().encode("utf-8")).hexdigest()

    def _text(self) -> str:
        data = {"kind": self.kind, **self.to_dict()}
        return json.dumps(data, ensure_ascii=False, indent=0, sort_keys=True) + "\n"


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that `save` wrote into a folder."""
    path = folder / "tokenizer.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        kind = data.pop("kind")
    except FileNotFoundError:
        raise RunError("no tokenizer.json here", where=str(folder), hint="give a folder that seqlab wrote") from None
    except (ValueError, KeyError, AttributeError):
        raise RunError("not a tokenizer that seqlab wrote", where=str(path)) from None
    tokenizer: Tokenizer = registry.find("tokenizer", kind, str(path)).from_dict(data)
    return tokenizer


def refuse_surrogates(text: str) -> None:
    """Half of a UTF-16 pair is not a character: no file in UTF-8 can hold it, so no token stands for it."""
    for index, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise DataError(
                f"unpaired surrogate U+{ord(character):04X} at character {index}",
                hint="decode the text as UTF-16 first, or remove it",
            )


class ByteStream(TextStream):
    """Tokens that are bytes, or several of them: bytes are held back until they make a whole character."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self.decoder.decode(self.pieces[token])

    def finish(self) -> str:
        return self.decoder.decode(b"", final=True)
