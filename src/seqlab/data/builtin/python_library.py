"""Sets made from the running Python's own library: its documentation, its source code, its bytecode."""

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
"""The fewest characters of a docstring that says something about its package."""
FEWEST_OF_TOPIC = 150
"""The fewest docstrings of a package that is a topic."""
SHORTEST_BODY, SHORTEST_SUMMARY = 40, 10
"""The fewest characters of a docstring below its first line, and of that line, for the line to be its summary."""

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
    """Yield the language reference that `help()` shows, then the docstrings of each library module."""
    for topic, text in sorted(topics().items()):
        yield Document(f"topics/{topic}", {"text": text})
    for name, strings in documented():
        yield Document(name, {"text": "\n\n".join(strings) + "\n"})


def python_code() -> Iterator[Document]:
    """Yield the source code of the standard library, one document per file."""
    for path in sources():
        if text := _read(path):
            yield Document(name_of(path), {"text": text})


def python_bytecode() -> Iterator[Document]:
    """Yield the bytecode of the standard library: the instruction names of each function, one function per line.

    A sequence of non-text symbols. Nothing is executed.
    """
    for path in sources():
        if lines := [" ".join(_instructions(code)) for code in _compiled(_read(path))]:
            yield Document(name_of(path), {"text": "\n".join(lines) + "\n"})


def python_topics() -> Iterator[Document]:
    """Yield the docstrings of the larger packages of the library, labelled with their package; whitespace collapsed.

    Docstrings that occur twice are left out: they say nothing about either place, and one copy might be held out.
    """
    found = [(name, n, " ".join(one.split())) for name, strings in documented() for n, one in enumerate(strings)]
    often = Counter(text for _, _, text in found)
    once = [(name, place, text) for name, place, text in found if often[text] == 1 and len(text) >= SHORTEST_TOPIC]
    sizes = Counter(_package(name) for name, _, _ in once)
    for name, place, text in once:
        if sizes[_package(name)] >= FEWEST_OF_TOPIC:
            yield Document(f"{name}#{place}", {"text": text, "label": _package(name)})


def docstrings() -> Iterator[Document]:
    """Yield the body of each docstring and its first line, the summary; whitespace collapsed.

    The first line must stand alone. Repeated bodies or summaries are left out.
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
    except ImportError:  # packaged separately on some systems
        return {}
    return dict(topics)


def _root() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def sources() -> list[Path]:
    root = _root()
    return sorted(path for path in root.rglob("*.py") if _belongs(path.relative_to(root)))


def _belongs(path: Path) -> bool:
    generated = path.name.startswith("_sysconfigdata") or path.parts[0].startswith("config-")  # machine-specific
    return not generated and LEFT_OUT.isdisjoint(path.parts)


def name_of(path: Path) -> str:
    return path.relative_to(_root()).as_posix()


def _package(name: str) -> str:
    return name.partition("/")[0].removesuffix(".py")


def _read(path: Path) -> str:
    """Return the text of a source file, or '' if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@lru_cache(maxsize=1)  # shared by several sets
def documented() -> list[tuple[str, list[str]]]:
    """Return the docstrings of each library module that has any."""
    found = [(name_of(path), _docstrings(_read(path))) for path in sources()]
    return [(name, strings) for name, strings in found if strings]


def _docstrings(source: str) -> list[str]:
    """Return all docstrings of a module: its own, then those of its classes and functions from top to bottom."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except SyntaxError:  # templates, and samples for other versions
            return []
    owners = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    owners.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for node in owners if (text := ast.get_docstring(node))]


PADDING = {dis.opmap.get("CACHE", 0), dis.opmap["EXTENDED_ARG"]}
"""Not real instructions: inline caches of the interpreter, and the upper bits of an argument."""


def _compiled(source: str) -> list[types.CodeType]:
    """Compile a module and return its code and that of all functions and classes in it, inner ones after outer ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = [compile(source, "<library>", "exec", dont_inherit=True)]
        except (SyntaxError, ValueError):  # templates, and samples for other versions
            return []
    for code in found:  # grows during iteration
        found += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return found


def _instructions(code: types.CodeType) -> list[str]:
    """Return the names of the instructions; each takes two bytes, an operation and its argument."""
    return [dis.opname[operation] for operation in code.co_code[::2] if operation not in PADDING]
