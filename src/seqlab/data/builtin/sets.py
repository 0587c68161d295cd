"""Sets that need no files: Python's library; dates, names, digits; synthetic ones.

Each has a fixed split by document: documents whose names (or keys) hash below one share are for validation, and those
from there up to a second share for tests (`dates-test`). In the Python sets, about 3 % of the characters are for
validation. A text with more than 0.5 % of all characters is always for training, so that no single text dominates the
validation part. `copy` is split in order.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from seqlab.data.builtin.date_pairs import date_pairs
from seqlab.data.builtin.dates import date_parts
from seqlab.data.builtin.dialogue import dialogue
from seqlab.data.builtin.digits import digits
from seqlab.data.builtin.languages import languages
from seqlab.data.builtin.memory import copy, reverse, sort
from seqlab.data.builtin.phrases import phrases
from seqlab.data.builtin.python_library import (
    docstrings,
    name_of,
    python_bytecode,
    python_code,
    python_docs,
    python_topics,
    sources,
    topics,
)
from seqlab.data.builtin.sized import Number, base_of, part, sized
from seqlab.data.builtin.weather import weather
from seqlab.data.records import Document
from seqlab.errors import DataError

VALID_SHARE = 0.07
"""The share of documents; without the longest ones, about 3 % of the characters."""
TWENTIETH = 0.05
LONGEST_VALID = 0.005
VERSION = 1
"""Part of every content hash: raise this when the same Python would yield other documents."""


def made_up_trees() -> Iterator[Document]:
    for number, text in enumerate(phrases()):
        yield Document(str(number), {"text": f"{text}\n"})


class Texts(NamedTuple):
    make: Callable[..., Iterator[Document]]
    """Called with the numbers in the set's name."""
    valid: float | None = VALID_SHARE
    """The share of documents that is held out; None if the set is split in order: training, validation, test."""
    test: float = 0.0
    """The share that is held out for tests."""
    numbers: tuple[Number, ...] = ()


def _pairs(make: Callable[..., Iterator[Document]], *numbers: Number) -> Texts:
    return Texts(make, TWENTIETH, TWENTIETH, numbers)


TEXTS: dict[str, Texts] = {
    "python-docs": Texts(python_docs),
    "python-code": Texts(python_code),
    "python-bytecode": Texts(python_bytecode),
    "python-topics": Texts(python_topics),
    "docstrings": Texts(docstrings, test=VALID_SHARE),
    "phrases": Texts(made_up_trees),
    "date-parts": Texts(date_parts, numbers=(Number("sentences", 8_000, 1_000),)),
    "dates": _pairs(date_pairs, Number("pairs", 40_000, 1_000)),
    "english-dates": _pairs(partial(date_pairs, into="en"), Number("pairs", 40_000, 1_000)),
    "dates-unseen": _pairs(partial(date_pairs, unseen=True), Number("pairs", 20_000, 1_000)),
    "languages": Texts(languages),
    "digits": Texts(digits, valid=0.2),
    "digits-permuted": Texts(partial(digits, permuted=True), valid=0.2),
    "copy": Texts(copy, valid=None, numbers=(Number("steps", 20, 1), Number("sentences", 10_000, 10))),
    "reverse": _pairs(reverse, Number("symbols", 10, 4), Number("pairs", 20_000, 1_000)),
    "sort": _pairs(sort, Number("symbols", 10, 4), Number("pairs", 20_000, 1_000)),
    "dialogue": _pairs(dialogue, Number("questions", 20_000, 1_000)),
    "weather": _pairs(weather, Number("reports", 20_000, 1_000)),
}
SIZES = {name: texts.numbers for name, texts in TEXTS.items()}


def is_builtin(name: str) -> bool:
    """Return True for the name of a built-in set: copy:100 and copy-test are, python-docs-test is not."""
    texts = TEXTS.get(base_of(name))
    return texts is not None and (texts.valid is None or texts.test > 0 or name.partition(":")[0] in TEXTS)


def documents(name: str, split: Literal["train", "valid"]) -> Iterator[Document]:
    """Return the documents of one part of a built-in set, in a fixed order."""
    asked = sized(name, SIZES)
    whole, texts = _all(asked.name, *asked.numbers), TEXTS[asked.name]
    if texts.valid is None:
        return iter(whole[part(len(whole), split, asked.test)])
    longest = LONGEST_VALID * sum(map(_length, whole))
    wanted = "test" if asked.test else split
    return (document for document in whole if _part(document, texts, longest) == wanted)


@lru_cache(maxsize=5)
def content_hash(name: str) -> str:
    """Return a hash that changes when the documents may: of their content, or of the Python version and its sources."""
    if not name.startswith("python-"):
        asked = sized(name, SIZES)
        return hashlib.sha256(repr(_all(asked.name, *asked.numbers)).encode()).hexdigest()
    digest = hashlib.sha256(f"{VERSION} {name} {sys.version.split()[0]}".encode())
    for path in sources():
        digest.update(f"\n{name_of(path)}\n".encode() + path.read_bytes())
    if name == "python-docs":
        digest.update(repr(sorted(topics().items())).encode())
    return digest.hexdigest()


@lru_cache(maxsize=5)  # parsing the library takes seconds; its text is about 10 MB
def _all(name: str, *numbers: int) -> tuple[Document, ...]:
    found = tuple(TEXTS[name].make(*numbers))
    if not found:
        hint = "give your own files, or install a full Python"
        raise DataError(f"'{name}' is empty: this Python lacks the source code of its standard library", hint=hint)
    return found


def _length(document: Document) -> int:
    return len(document.fields.get("text", ""))


def _part(document: Document, texts: Texts, longest: float) -> Literal["train", "valid", "test"]:
    digest = hashlib.blake2b((document.key or document.name).encode(), digest_size=8).digest()
    place, valid = int.from_bytes(digest, "little") / 2**64, texts.valid or 0.0
    if place >= valid + texts.test or _length(document) > longest:
        return "train"
    return "valid" if place < valid else "test"
