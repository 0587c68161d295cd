"""Finds faults in one file, in a single pass over its bytes (and one over its rows or sentences)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seqlab.data.checks.column_checks import Columns
from seqlab.data.formats.conll import DOCUMENT, NO_WORD, cells_of, looks_like_columns
from seqlab.data.formats.files import BOM, FileBlock, blocks, format_of, lines, pieces, size_of
from seqlab.data.formats.numbers import number_in, plain_rows
from seqlab.data.formats.rows import Row, parse_rows
from seqlab.errors import DataError

Hashes = NDArray[np.int64]

SHORT = 20
"""Lines with fewer bytes are often identical by chance ("First Citizen:")."""
FEW_WORDS = 5
"""Sentences with fewer words, in CoNLL columns, are often identical by chance."""

KINDS: dict[str, Literal["fault", "note"]] = {
    "empty file": "fault",
    "encoding": "fault",
    "NUL byte": "fault",
    "control character": "fault",
    "mixed line ends": "fault",
    "long line": "fault",
    "broken row": "fault",
    "missing number": "fault",
    "negative number": "fault",
    "overlap": "fault",
    "short overlap": "note",
    "duplicate": "note",
    "empty line": "note",
    "replacement character": "note",
    "BOM": "note",
    "null value": "note",
    "empty cell": "note",
    "unreadable column": "note",
    "words in columns": "note",
    "column left out": "note",
}

SIGNS = {
    "NUL byte": re.compile(rb"\x00"),
    "control character": re.compile(rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]"),
    "replacement character": re.compile("\ufffd".encode()),
}
EMPTY_LINE = re.compile(rb"^[ \t\r]*$(?=\n)", re.MULTILINE)
LINE_END = re.compile(rb"\r\n|\n|\r")
LINE_END_NAMES = {b"\n": r"\n", b"\r\n": r"\r\n", b"\r": r"\r"}


@dataclass(frozen=True)
class Place:
    """A line (from 1; a row in .parquet and .npy files), a byte (from 0; unpacked, for a .gz), and a description."""

    file: str
    line: int
    byte: int
    what: str


@dataclass(frozen=True)
class Finding:
    """All findings of one kind: their number and the first places."""

    kind: str
    count: int
    places: tuple[Place, ...]

    @property
    def fault(self) -> bool:
        return KINDS[self.kind] == "fault"


class Findings:
    """Keeps the first few places of each kind, and counts the rest."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.kept: dict[str, list[Place]] = {kind: [] for kind in KINDS}
        self.rest = dict.fromkeys(KINDS, 0)

    def room(self, kind: str) -> int:
        return self.keep - len(self.kept[kind])

    def add(self, kind: str, file: str, line: int, byte: int, what: str) -> None:
        if self.room(kind):
            self.kept[kind].append(Place(file, line, byte, what))
        else:
            self.rest[kind] += 1

    def all(self) -> list[Finding]:
        """Return one finding for each kind that occurred."""
        return [
            Finding(kind, len(kept) + self.rest[kind], tuple(kept))
            for kind, kept in self.kept.items()
            if kept or self.rest[kind]
        ]


class FileCheck:
    """Reads one file, adds to the findings, and computes a hash per line.

    Blank lines, table headers and rows of nothing but numbers have the hash 0, since the values of a series repeat. In
    CoNLL columns, the first line of each sentence has the hash of the whole sentence. In other hashes, the lowest bit
    says whether the line is too long to match another by chance.
    """

    def __init__(self, path: Path, max_line: int, findings: Findings, format: str = "auto") -> None:
        self.path, self.file, self.max_line, self.findings = path, str(path), max_line, findings
        self.format = format_of(path) if format == "auto" else format
        if format == "auto" and self.format in ("txt", "tsv") and looks_like_columns(_beginning(path)):
            self.format = "conll"
            what = "each line has the same number of columns: checked as --format conll (train with data.format=conll)"
            findings.add("words in columns", self.file, 1, 0, what)
        self.hashes = array("q")
        self.begun = 0  # bytes so far of a line that did not end in the last block
        self.ends = dict.fromkeys(LINE_END_NAMES, 0)
        self.first: dict[bytes, tuple[int, int]] = {}  # where (byte, line) each kind of line end first occurs

    def run(self) -> Hashes:
        if size_of(self.path) == 0:
            self.findings.add("empty file", self.file, 1, 0, "the file is empty")
        for block in blocks(self.path):
            self.signs(block)
            self.encoding(block)
            self.line_ends(block)
            self.lines(block)
        self.mixed_line_ends()
        if self.format in ("jsonl", "csv", "tsv"):
            self.rows(self.format)
        if self.format in ("csv", "tsv") and self.hashes:
            self.hashes[0] = 0
        if self.format == "txt":
            self.numbers()
        if self.format in ("conll", "conllu"):
            self.sentences()
        return np.frombuffer(self.hashes, "int64") if self.hashes else np.empty(0, "int64")

    def add(self, kind: str, block: FileBlock, at: int, what: str) -> None:
        if self.findings.room(kind):
            line = block.line + block.data.count(b"\n", 0, at)
            self.findings.add(kind, self.file, line, block.byte + at, what)
        else:  # counting lines is slow
            self.findings.rest[kind] += 1

    def signs(self, block: FileBlock) -> None:
        if block.byte == 0 and block.data.startswith(BOM):
            self.add("BOM", block, 0, "a byte order mark, which readers drop")
        for kind, pattern in SIGNS.items():
            for match in pattern.finditer(block.data):
                self.add(kind, block, match.start(), f"U+{ord(match[0].decode()):04X}")
        if self.format in ("conll", "conllu"):
            return  # an empty line ends a sentence
        for match in EMPTY_LINE.finditer(block.data):
            if match.start() > 0 or not self.begun:
                self.add("empty line", block, match.start(), "only spaces" if match[0].strip(b"\r") else "")

    def encoding(self, block: FileBlock) -> None:
        """Report each line that is not UTF-8."""
        try:
            block.data.decode()
        except UnicodeDecodeError:
            at = 0
            for line in block.data.split(b"\n"):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    what = f"0x{line[error.start]:02x} is not valid UTF-8 ({error.reason})"
                    self.add("encoding", block, at + error.start, what)
                at += len(line) + 1

    def line_ends(self, block: FileBlock) -> None:
        both = block.data.count(b"\r\n")
        counts = {b"\n": block.data.count(b"\n") - both, b"\r\n": both, b"\r": block.data.count(b"\r") - both}
        for end, count in counts.items():
            self.ends[end] += count
            if count and end not in self.first:
                at = next(match.start() for match in LINE_END.finditer(block.data) if match[0] == end)
                self.first[end] = block.byte + at, block.line + block.data.count(b"\n", 0, at)

    def mixed_line_ends(self) -> None:
        if len(self.first) > 1:
            byte, line = sorted(self.first.values())[1]
            counts = ", ".join(f"{count:,} {LINE_END_NAMES[end]}" for end, count in self.ends.items() if count)
            self.findings.add("mixed line ends", self.file, line, byte, f"first line end of another kind ({counts})")

    def lines(self, block: FileBlock) -> None:
        """Record lengths and hashes. A line longer than a block comes in parts; its hash combines them all."""
        whole = block.data.split(b"\n")
        if self.begun + max(map(len, whole)) > self.max_line:
            self.long_lines(block, whole)
        if self.begun:
            self.hashes[-1] = hash((self.hashes[-1], whole[0])) | 1
        fresh = whole[1:] if self.begun else whole
        if not whole[-1]:  # after the last line end
            fresh = fresh[:-1]
        self.hashes.extend([hash(text := line.strip()) & -2 | (len(text) >= SHORT) for line in fresh])
        self.begun = len(whole[-1]) + (self.begun if len(whole) == 1 else 0)

    def long_lines(self, block: FileBlock, whole: list[bytes]) -> None:
        at, begun = 0, self.begun
        for line in whole:
            if begun <= self.max_line < begun + len(line):  # in bytes; there may be fewer characters
                length = begun + len(line.decode("utf-8", "replace").removesuffix("\r"))
                if length > self.max_line:
                    start = FileBlock(block.data, block.line, block.byte - begun)
                    self.add("long line", start, at, f"more than {self.max_line:,} characters")
            at, begun = at + len(line) + 1, 0

    def rows(self, format: str) -> None:
        """Report rows that do not parse, and non-numeric cells in numeric columns; the byte is that of the line
        start."""
        broken: list[Row] = []
        columns = Columns(self.findings.keep)
        try:
            for row in parse_rows(format, self.text()):
                if not row.fault:
                    columns.add(row)
                elif len(broken) < self.findings.room("broken row"):
                    broken.append(row)
                else:
                    self.findings.rest["broken row"] += 1
        except DataError as error:  # a line too long to be a row
            self.findings.add("broken row", self.file, 1, 0, error.what)
        self.place("broken row", [(row.line, f"column {row.column}: {row.fault}") for row in broken])
        self.report(columns)

    def numbers(self) -> None:
        """Check plain text whose first line is numbers: a numeric table without a header."""
        rows = plain_rows(self.text())
        first = next(rows, None)
        if first is None or any(number_in(cell) is None for cell in first.cells.values()):
            return
        columns = Columns(self.findings.keep)
        for row in (first, *rows):
            columns.add(row)
        if columns.are_numbers():
            self.report(columns)

    def report(self, columns: Columns) -> None:
        for kind, (count, places) in columns.findings().items():
            self.place(kind, places)
            self.findings.rest[kind] += count - len(places)
        if columns.are_numbers():
            self.hashes = array("q", bytes(8 * len(self.hashes)))

    def place(self, kind: str, found: list[tuple[int, str]]) -> None:
        """Add findings at (ascending) lines, with the bytes where the lines begin."""
        lines = [line for line, _ in found]
        for (line, what), (byte, _) in zip(found, located(self.path, lines), strict=True):
            self.findings.add(kind, self.file, line, byte, what)

    def sentences(self) -> None:
        """Replace the hashes of lines by those of sentences, and report words with a different number of columns."""
        hashes = array("q", bytes(8 * len(self.hashes)))
        words, broken, columns = list[str](), list[tuple[int, str]](), (0, 0)
        first = 0

        def close() -> None:
            nonlocal words
            if words:
                hashes[first - 1] = hash("\n".join(words)) & -2 | (len(words) >= FEW_WORDS)
            words = []

        for number, line in self.text():
            cells = cells_of(line)
            if not cells or cells[0] == DOCUMENT:
                close()
            elif self.format == "conll" or not NO_WORD.match(line):
                first = first if words else number
                words.append(line.strip())
                columns = columns if columns[0] else (number, len(cells))
                if len(cells) != columns[1] and len(broken) < self.findings.room("broken row"):
                    broken.append((number, f"{len(cells)} columns, but line {columns[0]} has {columns[1]}"))
                elif len(cells) != columns[1]:
                    self.findings.rest["broken row"] += 1
        close()
        self.place("broken row", broken)
        self.hashes = hashes

    def text(self) -> Iterator[tuple[int, str]]:
        return lines(pieces(self.path, errors="replace"), self.file)


def _beginning(path: Path) -> list[str]:
    """Return the lines of the first block of a file, all of them whole."""
    block = next(blocks(path), None)
    return [] if block is None else block.data.decode("utf-8", "replace").split("\n")


def located(path: Path, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the start and content of the lines with these (ascending) numbers; reads only up to the last one."""
    wanted = iter(numbers)
    number = next(wanted, None)
    for block in blocks(path):
        stop = block.line + block.data.count(b"\n") + (not block.data.endswith(b"\n"))
        while number is not None and number < stop:
            at = 0
            for _ in range(number - block.line):
                at = block.data.index(b"\n", at) + 1
            yield block.byte + at, block.data[at:].split(b"\n", 1)[0]
            number = next(wanted, None)
        if number is None:
            return
