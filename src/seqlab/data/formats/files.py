"""Finding files, and reading them in blocks of whole lines: never a whole file at once."""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from seqlab.errors import DataError, similar

BLOCK = 1 << 20
"""Bytes read at once; also about the length of a piece of a long text."""
LONGEST_LINE = 1 << 24
"""Where a line, a row or a quoted field stands for one example, it may have this many characters."""
BOM = b"\xef\xbb\xbf"
FORMATS = {
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".npy": "npy",
    **dict.fromkeys((".conll", ".bio"), "conll"),
    ".conllu": "conllu",
    **dict.fromkeys((".fasta", ".fa", ".fna", ".faa"), "fasta"),
}


@dataclass(frozen=True)
class FileBlock:
    """Bytes of a file, and where they begin: `line` counts from 1, `byte` from 0 (after unpacking a .gz)."""

    data: bytes
    line: int
    byte: int


@dataclass(frozen=True)
class FilePiece:
    """The text of a block; `ends` is True for the last one of a document."""

    text: str
    line: int
    ends: bool


def find_files(source: str, also: Iterable[str] = ()) -> list[Path]:
    """The files that a path, a folder or a pattern stands for, sorted; `also` are names to hint at.

    A folder means all files below it, a pattern (`*`, `?`, `[...]`, `**`) what it matches; hidden and empty
    files are left out of both.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = path.rglob("*")
    elif glob.has_magic(source):
        found = (Path(name) for name in glob.iglob(str(path), recursive=True))
    elif path.exists():
        raise DataError("neither a file nor a folder", where=source, hint="give a file that can be read twice")
    else:
        raise DataError(f"no file or folder '{source}'", hint=_similar(path, also))
    files = sorted(file for file in found if file.is_file() and _wanted(file, path))
    if not files:
        raise DataError("no files here that are not empty", where=source, hint="check the path or the pattern")
    return files


def _wanted(file: Path, root: Path) -> bool:
    below = file.relative_to(root).parts if root.is_dir() else (file.name,)
    return not any(part.startswith(".") for part in below) and file.stat().st_size > 0


def _similar(path: Path, also: Iterable[str]) -> str:
    """What may have been meant by a path that is not there."""
    if not path.parent.is_dir():
        return f"there is no folder '{path.parent}' either"
    names = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    if path.parent == Path("."):
        names += also
    return similar(path.name, names) or f"nothing in '{path.parent}' has a name like it"


def format_of(path: Path) -> str:
    """By the extension (before a .gz); any other extension is plain text, txt."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return FORMATS.get(suffixes[-1] if suffixes else "", "txt")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read bytes from, a .gz unpacked; what goes wrong inside is a DataError."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path, "rb") as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            with path.open("rb") as file:
                yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"damaged .gz file ({error})", where=str(path), hint="get it again") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path), hint="check its permissions") from None


def blocks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[FileBlock]:
    """The bytes from `start` to `stop`, cut at ends of lines (`last_break` says where a line has no end)."""
    with opened(path) as file:
        line, byte, rest = 1 + _skip(file, start), start, b""
        while True:
            wanted = BLOCK if stop is None else min(BLOCK, stop - byte - len(rest))
            fresh = file.read(wanted)
            data = rest + fresh
            cut = last_break(data) if len(fresh) == BLOCK else len(data)
            if cut:
                yield FileBlock(data[:cut], line, byte)
            if len(fresh) < BLOCK:
                return
            line, byte, rest = line + data.count(b"\n", 0, cut), byte + cut, data[cut:]


def _skip(file: BinaryIO, start: int) -> int:
    """Read past the first `start` bytes: how many lines ended in them?"""
    ended = 0
    while start > 0 and (data := file.read(min(BLOCK, start))):
        ended += data.count(b"\n")
        start -= len(data)
    return ended


def last_break(data: bytes) -> int:
    """Where to cut: after the last end of a line, else space, else comma, else before the last character."""
    for sign in (b"\n", b" ", b","):
        if cut := data.rfind(sign) + 1:
            return cut
    cut = len(data) - 1
    while cut > max(0, len(data) - 4) and data[cut] & 0xC0 == 0x80:  # bytes 10xxxxxx continue a character
        cut -= 1
    return max(0, cut)


def pieces(path: Path, start: int = 0, stop: int | None = None, errors: str = "strict") -> Iterator[FilePiece]:
    """The text from byte `start` to `stop`, as pieces that together are exactly it; a BOM is dropped.

    `errors="replace"` puts U+FFFD where the bytes are no UTF-8; otherwise that is a DataError.
    """
    before: FilePiece | None = None
    for block in blocks(path, start, stop):
        if before is not None:
            yield before
        if block.byte == 0 and errors == "strict":
            _refuse_binary(block.data, path)
        before = FilePiece(_decoded(block, path, errors), block.line, ends=False)
    if before is not None and before.text:
        yield FilePiece(before.text, before.line, ends=True)


def _refuse_binary(data: bytes, path: Path) -> None:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(
            "UTF-16 text", where=f"{path}, byte 0", hint="make it UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW"
        )
    if (at := data.find(b"\0", 0, 8192)) >= 0:
        line = 1 + data.count(b"\n", 0, at)
        hint = "give text: a pattern such as 'folder/*.txt' picks files"
        raise DataError("binary file (it holds NUL bytes)", where=f"{path}, line {line}, byte {at}", hint=hint)


def _decoded(block: FileBlock, path: Path, errors: str) -> str:
    skipped = len(BOM) if block.byte == 0 and block.data.startswith(BOM) else 0
    try:
        return block.data[skipped:].decode("utf-8", errors)
    except UnicodeDecodeError as error:
        at = skipped + error.start
        line = block.line + block.data.count(b"\n", 0, at)
        place = f"{path}, line {line}, byte {block.byte + at}"
        hint = "find all such places with `seqlab data check FILE`, or convert the file with iconv"
        raise DataError(f"not UTF-8 (0x{block.data[at]:02x}, {error.reason})", where=place, hint=hint) from None


def lines(given: Iterable[FilePiece], file: str) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers, without the \\n that ends them (a \\r before it is kept)."""
    number, rest = 0, ""
    for piece in given:
        number = number or piece.line
        *whole, rest = (rest + piece.text).split("\n")
        for line in whole:
            yield number, line
            number += 1
        if len(rest) > LONGEST_LINE:
            hint = "for plain text, documents: file takes lines of any length"
            raise DataError("a line of more than 16 Mi characters", where=f"{file}, line {number}", hint=hint)
    if rest:
        yield number, rest


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """The name of a file to be written, which becomes `path` when all of it is there; of a failure nothing is left."""
    draft = path.with_name(f".draft-{path.name}")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", where=str(path)) from None
    finally:
        with suppress(OSError):
            draft.unlink()


def size_of(path: Path) -> int:
    """The bytes of a file, unpacked."""
    if path.suffix.lower() != ".gz":
        return path.stat().st_size
    with opened(path) as file:
        size = 0
        while data := file.read(BLOCK):
            size += len(data)
        return size


def cut_point(path: Path, share: float) -> int:
    """The byte where the last `share` of a text begins, moved back to the end of a line."""
    target = int(size_of(path) * (1 - share))
    start = max(0, target - BLOCK)
    with opened(path) as file:
        file.seek(start)
        window = file.read(target - start)
    return start + last_break(window)
