"""Sets that need no file: Python's documentation, the sources of its library; dates, names, digits; made-up ones.

Each has a fixed split by document: those whose names (or keys) hash below a share are for validation; of the sets of
Python, about 3 % of the characters. A document with more than half a per cent of all characters is always for
training, so that no single one dominates the validation part. `copy`, which has a part for tests, is cut in order.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import sys
import sysconfig
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

from seqlab.data.dates import date_parts
from seqlab.data.digits import digits
from seqlab.data.languages import languages
from seqlab.data.memory import copy
from seqlab.data.phrases import phrases
from seqlab.data.records import Document
from seqlab.data.sized import Number, base_of, part, sized
from seqlab.errors import DataError

VALID_SHARE = 0.07
"""Of documents; with the longest ones left out, about 3 % of the characters."""
LONGEST_VALID = 0.005
SHORTEST_TOPIC = 20
"""Characters of a docstring that says something about its package."""
FEWEST_OF_TOPIC = 150
"""Docstrings of a package that is a topic."""
VERSION = 1
"""Part of every content hash: to be raised when the same Python would give other documents."""

LEFT_OUT = {
    "__pycache__",
    "dist-packages",
    "encodings",  # generated tables of code points
    "idle_test",
    "pydoc_data",  # the topics, as one string literal
    "site-packages",
    "test",
    "tests",
}


def python_docs() -> Iterator[Document]:
    """The language reference that `help()` shows, then the docstrings of each module of the library."""
    for topic, text in sorted(_topics().items()):
        yield Document(f"topics/{topic}", text)
    for name, strings in _documented():
        yield Document(name, "\n\n".join(strings) + "\n")


def python_code() -> Iterator[Document]:
    """The sources of the standard library, one document a file."""
    for path in _sources():
        if text := _read(path):
            yield Document(_name(path), text)


def python_bytecode() -> Iterator[Document]:
    """What the standard library is compiled to: the names of the instructions of each function, one function a line.

    A sequence of symbols that are no text. Nothing is executed.
    """
    for path in _sources():
        if lines := [" ".join(_instructions(code)) for code in _compiled(_read(path))]:
            yield Document(_name(path), "\n".join(lines) + "\n")


def python_topics() -> Iterator[Document]:
    """What is this about? The docstrings of the larger packages of the library, blanks squeezed, with their package.

    One that stands in two places is left out: it would say nothing about either, and one of them might be held out.
    """
    found = [(name, n, " ".join(one.split())) for name, strings in _documented() for n, one in enumerate(strings)]
    often = Counter(text for _, _, text in found)
    once = [(name, place, text) for name, place, text in found if often[text] == 1 and len(text) >= SHORTEST_TOPIC]
    sizes = Counter(_package(name) for name, _, _ in once)
    for name, place, text in once:
        if sizes[_package(name)] >= FEWEST_OF_TOPIC:
            yield Document(f"{name}#{place}", text, _package(name))


def made_up_trees() -> Iterator[Document]:
    for number, text in enumerate(phrases()):
        yield Document(str(number), f"{text}\n")


class Texts(NamedTuple):
    make: Callable[..., Iterator[Document]]
    """Given the numbers of its name."""
    valid: float | None = VALID_SHARE
    """The share of documents that is held out; None where the parts, with one for tests, follow each other."""
    numbers: tuple[Number, ...] = ()


TEXTS: dict[str, Texts] = {
    "python-docs": Texts(python_docs),
    "python-code": Texts(python_code),
    "python-bytecode": Texts(python_bytecode),
    "python-topics": Texts(python_topics),
    "phrases": Texts(made_up_trees),
    "date-parts": Texts(date_parts, numbers=(Number("sentences", 8_000, 1_000),)),
    "languages": Texts(languages),
    "digits": Texts(digits, valid=0.2),
    "digits-permuted": Texts(partial(digits, permuted=True), valid=0.2),
    "copy": Texts(copy, valid=None, numbers=(Number("steps", 20, 1), Number("sentences", 10_000, 10))),
}
SIZES = {name: texts.numbers for name, texts in TEXTS.items()}


def is_builtin(name: str) -> bool:
    """copy:100 and copy-test are; python-docs-test is not."""
    texts = TEXTS.get(base_of(name))
    return texts is not None and (texts.valid is None or name.partition(":")[0] in TEXTS)


def documents(name: str, split: Literal["train", "valid"]) -> Iterator[Document]:
    """The documents of one part of a built-in set, in an order that is always the same."""
    asked = sized(name, SIZES)
    whole, share = _all(asked.name, *asked.numbers), TEXTS[asked.name].valid
    if share is None:
        return iter(whole[part(len(whole), split, asked.test)])
    longest = LONGEST_VALID * sum(len(document.text) for document in whole)
    return (document for document in whole if _held_out(document, share, longest) == (split == "valid"))


@lru_cache(maxsize=5)
def content_hash(name: str) -> str:
    """Changes when the documents may have: sha256 of them, or of the Python version and of what they are made from."""
    if not name.startswith("python-"):
        asked = sized(name, SIZES)
        return hashlib.sha256(repr(_all(asked.name, *asked.numbers)).encode()).hexdigest()
    digest = hashlib.sha256(f"{VERSION} {name} {sys.version.split()[0]}".encode())
    for path in _sources():
        digest.update(f"\n{_name(path)}\n".encode() + path.read_bytes())
    if name == "python-docs":
        digest.update(repr(sorted(_topics().items())).encode())
    return digest.hexdigest()


@lru_cache(maxsize=5)  # parsing the library takes seconds; its text is about 10 MB
def _all(name: str, *numbers: int) -> tuple[Document, ...]:
    found = tuple(TEXTS[name].make(*numbers))
    if not found:
        hint = "give files of your own, or install a full Python"
        raise DataError(f"'{name}' is empty: this Python comes without the sources of its library", hint=hint)
    return found


def _held_out(document: Document, share: float, longest: float) -> bool:
    digest = hashlib.blake2b((document.key or document.name).encode(), digest_size=8).digest()
    chosen = int.from_bytes(digest, "little") < share * 2**64
    return chosen and len(document.text) <= longest


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some systems package it apart
        return {}
    return dict(topics)


def _root() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _sources() -> list[Path]:
    root = _root()
    return sorted(path for path in root.rglob("*.py") if _belongs(path.relative_to(root)))


def _belongs(path: Path) -> bool:
    generated = path.name.startswith("_sysconfigdata") or path.parts[0].startswith("config-")  # of this machine
    return not generated and LEFT_OUT.isdisjoint(path.parts)


def _name(path: Path) -> str:
    return path.relative_to(_root()).as_posix()


def _package(name: str) -> str:
    return name.partition("/")[0].removesuffix(".py")


def _read(path: Path) -> str:
    """The text of a source, or nothing where it is not in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@lru_cache(maxsize=1)  # several sets are made of them
def _documented() -> list[tuple[str, list[str]]]:
    """The docstrings of each module of the library that has some."""
    found = [(_name(path), _docstrings(_read(path))) for path in _sources()]
    return [(name, strings) for name, strings in found if strings]


def _docstrings(source: str) -> list[str]:
    """All docstrings of a module: its own, then those of its classes and functions from top to bottom."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except SyntaxError:  # templates, and samples of other versions
            return []
    owners = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    owners.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for node in owners if (text := ast.get_docstring(node))]


PADDING = {dis.opmap.get("CACHE", 0), dis.opmap["EXTENDED_ARG"]}
"""Not instructions of their own: room for the interpreter's notes, and the upper bits of an argument."""


def _compiled(source: str) -> list[types.CodeType]:
    """The module and all functions and classes in it, those that are inside of another one after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = [compile(source, "<library>", "exec", dont_inherit=True)]
        except (SyntaxError, ValueError):  # templates, and samples of other versions
            return []
    for code in found:  # which grows on the way
        found += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return found


def _instructions(code: types.CodeType) -> list[str]:
    """An instruction is two bytes: what to do, and its argument."""
    return [dis.opname[operation] for operation in code.co_code[::2] if operation not in PADDING]
