"""Finds files and reads them in blocks of whole lines, never a whole file at once."""

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
"""Bytes to read at once; also the approximate length of the pieces of a long text."""
LONGEST_LINE = 1 << 24
"""The most characters of a line, row or quoted field that holds one example."""
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
    """Bytes of a file and where they begin: `line` counts from 1, `byte` from 0 (after unpacking a .gz)."""

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
    """Return the files that a path, folder or pattern stands for, sorted; `also` are further names for hints.

    A folder stands for all files below it, a pattern (`*`, `?`, `[...]`, `**`) for all matches; both skip hidden and
    empty files.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = path.rglob("*")
    elif glob.has_magic(source):
        found = (Path(name) for name in glob.iglob(str(path), recursive=True))
    elif path.exists():
        raise DataError(
            "neither a file nor a folder", where=source, hint="give a regular file, because it is read twice"
        )
    else:
        raise DataError(f"no file or folder '{source}'", hint=_similar(path, also))
    files = sorted(file for file in found if file.is_file() and _wanted(file, path))
    if not files:
        raise DataError("no non-empty files found", where=source, hint="check the path or the pattern")
    return files


def _wanted(file: Path, root: Path) -> bool:
    below = file.relative_to(root).parts if root.is_dir() else (file.name,)
    return not any(part.startswith(".") for part in below) and file.stat().st_size > 0


def _similar(path: Path, also: Iterable[str]) -> str:
    """Return a hint with names similar to a path that does not exist."""
    if not path.parent.is_dir():
        return f"the folder '{path.parent}' does not exist either"
    names = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    if path.parent == Path("."):
        names += also
    return similar(path.name, names) or f"nothing in '{path.parent}' has a similar name"


def format_of(path: Path) -> str:
    """Return the format by file extension (before a .gz); any other extension means plain text, txt."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return FORMATS.get(suffixes[-1] if suffixes else "", "txt")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unpacking a .gz; failures inside become DataErrors."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path, "rb") as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            with path.open("rb") as file:
                yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"damaged .gz file ({error})", where=str(path), hint="download or copy it again") from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path), hint="check its permissions") from None


def blocks(path: Path, start: int = 0, stop: int | None = None) -> Iterator[FileBlock]:
    """Yield the bytes from `start` to `stop`, cut at line ends (or, for very long lines, by `last_break`)."""
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
    """Skip the first `start` bytes and return the number of lines that end in them."""
    ended = 0
    while start > 0 and (data := file.read(min(BLOCK, start))):
        ended += data.count(b"\n")
        start -= len(data)
    return ended


def last_break(data: bytes) -> int:
    """Return where to cut: after the last line end, else space, else comma, else before the last character."""
    for sign in (b"\n", b" ", b","):
        if cut := data.rfind(sign) + 1:
            return cut
    cut = len(data) - 1
    while cut > max(0, len(data) - 4) and data[cut] & 0xC0 == 0x80:  # bytes 10xxxxxx continue a character
        cut -= 1
    return max(0, cut)


def pieces(path: Path, start: int = 0, stop: int | None = None, errors: str = "strict") -> Iterator[FilePiece]:
    """Yield the text from byte `start` to `stop` in pieces that add up to exactly it; a BOM is dropped.

    `errors="replace"` puts U+FFFD in place of invalid UTF-8; otherwise, that is a DataError.
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
        raise DataError("UTF-16 text", where=f"{path}, byte 0", hint="convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW")
    if (at := data.find(b"\0", 0, 8192)) >= 0:
        line = 1 + data.count(b"\n", 0, at)
        hint = "give text files only, with a pattern such as 'folder/*.txt'"
        raise DataError("binary file (it contains NUL bytes)", where=f"{path}, line {line}, byte {at}", hint=hint)


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
    """Yield the lines of a text with their numbers, without the final \\n (a \\r before it is kept)."""
    number, rest = 0, ""
    for piece in given:
        number = number or piece.line
        *whole, rest = (rest + piece.text).split("\n")
        for line in whole:
            yield number, line
            number += 1
        if len(rest) > LONGEST_LINE:
            hint = "for plain text, data.documents=file accepts lines of any length"
            raise DataError("a line longer than 16 Mi characters", where=f"{file}, line {number}", hint=hint)
    if rest:
        yield number, rest


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yield a draft path to write to; it becomes `path` on success and is deleted on failure."""
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
    """Return the size of a file in bytes, unpacked."""
    if path.suffix.lower() != ".gz":
        return path.stat().st_size
    with opened(path) as file:
        size = 0
        while data := file.read(BLOCK):
            size += len(data)
        return size


def cut_point(path: Path, share: float) -> int:
    """Return the byte where the last `share` of a text begins, moved back to the end of a line."""
    target = int(size_of(path) * (1 - share))
    start = max(0, target - BLOCK)
    with opened(path) as file:
        file.seek(start)
        window = file.read(target - start)
    return start + last_break(window)
