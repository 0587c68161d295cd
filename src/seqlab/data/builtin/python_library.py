"""Sets made of the running Python's own library: its documentation, its sources, what they are compiled to."""

from __future__ import annotations

import ast
import dis
import sysconfig
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from seqlab.data.records import Document

SHORTEST_TOPIC = 20
"""Characters of a docstring that says something about its package."""
FEWEST_OF_TOPIC = 150
"""Docstrings of a package that is a topic."""
SHORTEST_BODY, SHORTEST_SUMMARY = 40, 10
"""Characters of a docstring below its first line, and of that line, where the one sums up the other."""

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
    for topic, text in sorted(topics().items()):
        yield Document(f"topics/{topic}", {"text": text})
    for name, strings in documented():
        yield Document(name, {"text": "\n\n".join(strings) + "\n"})


def python_code() -> Iterator[Document]:
    """The sources of the standard library, one document a file."""
    for path in sources():
        if text := _read(path):
            yield Document(name_of(path), {"text": text})


def python_bytecode() -> Iterator[Document]:
    """What the standard library is compiled to: the names of the instructions of each function, one function a line.

    A sequence of symbols that are no text. Nothing is executed.
    """
    for path in sources():
        if lines := [" ".join(_instructions(code)) for code in _compiled(_read(path))]:
            yield Document(name_of(path), {"text": "\n".join(lines) + "\n"})


def python_topics() -> Iterator[Document]:
    """What is this about? The docstrings of the larger packages of the library, blanks squeezed, with their package.

    One that stands in two places is left out: it would say nothing about either, and one of them might be held out.
    """
    found = [(name, n, " ".join(one.split())) for name, strings in documented() for n, one in enumerate(strings)]
    often = Counter(text for _, _, text in found)
    once = [(name, place, text) for name, place, text in found if often[text] == 1 and len(text) >= SHORTEST_TOPIC]
    sizes = Counter(_package(name) for name, _, _ in once)
    for name, place, text in once:
        if sizes[_package(name)] >= FEWEST_OF_TOPIC:
            yield Document(f"{name}#{place}", {"text": text, "label": _package(name)})


def docstrings() -> Iterator[Document]:
    """What does it say in one line? What stands below the first line of a docstring, and that line; blanks squeezed.

    The first line must stand alone. A body or a line that was there before is left out.
    """
    seen: set[str] = set()
    for name, strings in documented():
        for place, one in enumerate(strings):
            summary, *more = one.split("\n", 2)
            body, target = " ".join(" ".join(more).split()), " ".join(summary.split())
            alone = more and not more[0].strip() and len(body) >= SHORTEST_BODY and len(target) >= SHORTEST_SUMMARY
            if alone and body not in seen and target not in seen:
                seen |= {body, target}
                yield Document(f"{name}#{place}", {"source": body, "target": target}, key=name)


def topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some systems package it apart
        return {}
    return dict(topics)


def _root() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def sources() -> list[Path]:
    root = _root()
    return sorted(path for path in root.rglob("*.py") if _belongs(path.relative_to(root)))


def _belongs(path: Path) -> bool:
    generated = path.name.startswith("_sysconfigdata") or path.parts[0].startswith("config-")  # of this machine
    return not generated and LEFT_OUT.isdisjoint(path.parts)


def name_of(path: Path) -> str:
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
def documented() -> list[tuple[str, list[str]]]:
    """The docstrings of each module of the library that has some."""
    found = [(name_of(path), _docstrings(_read(path))) for path in sources()]
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
