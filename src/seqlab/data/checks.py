"""What can be wrong with one file, found in one pass over its bytes (and one over its rows)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seqlab.data.files import BOM, Block, blocks, format_of, lines, pieces, size_of
from seqlab.data.rows import Row, parse_rows
from seqlab.errors import DataError

Hashes = NDArray[np.int64]

SHORT = 20
"""Lines of fewer bytes are often the same by chance ("First Citizen:")."""

KINDS: dict[str, Literal["fault", "note"]] = {
    "empty file": "fault",
    "encoding": "fault",
    "NUL byte": "fault",
    "control character": "fault",
    "mixed line ends": "fault",
    "long line": "fault",
    "broken row": "fault",
    "negative number": "fault",
    "overlap": "fault",
    "short overlap": "note",
    "duplicate line": "note",
    "empty line": "note",
    "replacement character": "note",
    "BOM": "note",
    "null value": "note",
    "unreadable column": "note",
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
class Finding:
    """Something found at a line (from 1) and a byte (from 0; of a .gz, unpacked).

    `rest` is not 0 where this stands for so many more of its kind after the place that it names.
    """

    kind: str
    file: str
    line: int
    byte: int
    what: str
    rest: int = 0

    @property
    def count(self) -> int:
        return self.rest or 1

    @property
    def fault(self) -> bool:
        return KINDS[self.kind] == "fault"


class Findings:
    """Keeps the first few of each kind, and counts the rest."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.kept: dict[str, list[Finding]] = {kind: [] for kind in KINDS}
        self.rest = dict.fromkeys(KINDS, 0)

    def room(self, kind: str) -> int:
        return self.keep - len(self.kept[kind])

    def add(self, kind: str, file: str, line: int, byte: int, what: str) -> None:
        if self.room(kind):
            self.kept[kind].append(Finding(kind, file, line, byte, what))
        else:
            self.rest[kind] += 1

    def all(self) -> list[Finding]:
        found = []
        for kind, kept in self.kept.items():
            found += kept
            if rest := self.rest[kind]:
                last = kept[-1]
                found.append(Finding(kind, last.file, last.line, last.byte, "more of them after this one", rest))
        return found


class FileCheck:
    """Reads one file, adds to the findings, and gives a hash for each line.

    A blank line has the hash 0, as has the header of a table. The lowest bit of the others says whether the
    line is long enough not to be the same as another one by chance.
    """

    def __init__(self, path: Path, max_line: int, findings: Findings) -> None:
        self.path, self.file, self.max_line, self.findings = path, str(path), max_line, findings
        self.hashes = array("q")
        self.begun = 0  # bytes so far of a line that did not end in the last block
        self.ends = dict.fromkeys(LINE_END_NAMES, 0)
        self.first: dict[bytes, tuple[int, int]] = {}  # where (byte, line) each kind of line end occurs first

    def run(self) -> Hashes:
        format = format_of(self.path)
        if size_of(self.path) == 0:
            self.findings.add("empty file", self.file, 1, 0, "there is nothing in it")
        for block in blocks(self.path):
            self.signs(block)
            self.encoding(block)
            self.line_ends(block)
            self.lines(block)
        self.mixed_line_ends()
        if format in ("jsonl", "csv", "tsv"):
            self.rows(format)
        if format in ("csv", "tsv") and self.hashes:
            self.hashes[0] = 0
        return np.frombuffer(self.hashes, "int64") if self.hashes else np.empty(0, "int64")

    def add(self, kind: str, block: Block, at: int, what: str) -> None:
        if self.findings.room(kind):
            line = block.line + block.data.count(b"\n", 0, at)
            self.findings.add(kind, self.file, line, block.byte + at, what)
        else:  # counting lines takes time
            self.findings.rest[kind] += 1

    def signs(self, block: Block) -> None:
        if block.byte == 0 and block.data.startswith(BOM):
            self.add("BOM", block, 0, "a byte order mark; readers drop it")
        for kind, pattern in SIGNS.items():
            for match in pattern.finditer(block.data):
                self.add(kind, block, match.start(), f"U+{ord(match[0].decode()):04X}")
        for match in EMPTY_LINE.finditer(block.data):
            if match.start() > 0 or not self.begun:
                self.add("empty line", block, match.start(), "only spaces" if match[0].strip(b"\r") else "")

    def encoding(self, block: Block) -> None:
        """One finding for each line that is not UTF-8."""
        try:
            block.data.decode()
        except UnicodeDecodeError:
            at = 0
            for line in block.data.split(b"\n"):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    what = f"0x{line[error.start]:02x} is not UTF-8 here ({error.reason})"
                    self.add("encoding", block, at + error.start, what)
                at += len(line) + 1

    def line_ends(self, block: Block) -> None:
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
            self.findings.add("mixed line ends", self.file, line, byte, f"first of another kind ({counts})")

    def lines(self, block: Block) -> None:
        """Lengths and hashes. A line longer than a block comes in parts, and its hash is one of them all."""
        whole = block.data.split(b"\n")
        if self.begun + max(map(len, whole)) > self.max_line:
            self.long_lines(block, whole)
        if self.begun:
            self.hashes[-1] = hash((self.hashes[-1], whole[0])) | 1
        fresh = whole[1:] if self.begun else whole
        if not whole[-1]:  # after the end of the last line
            fresh = fresh[:-1]
        self.hashes.extend([hash(text := line.strip()) & -2 | (len(text) >= SHORT) for line in fresh])
        self.begun = len(whole[-1]) + (self.begun if len(whole) == 1 else 0)

    def long_lines(self, block: Block, whole: list[bytes]) -> None:
        at, begun = 0, self.begun
        for line in whole:
            if begun <= self.max_line < begun + len(line):  # in bytes: of characters there may be fewer
                length = begun + len(line.decode("utf-8", "replace").removesuffix("\r"))
                if length > self.max_line:
                    start = Block(block.data, block.line, block.byte - begun)
                    self.add("long line", start, at, f"more than {self.max_line:,} characters")
            at, begun = at + len(line) + 1, 0

    def rows(self, format: str) -> None:
        """Rows that do not parse; the byte is where the line begins."""
        broken: list[Row] = []
        text = lines(pieces(self.path, errors="replace"), self.file)
        try:
            for row in parse_rows(format, text):
                if row.fault and len(broken) < self.findings.room("broken row"):
                    broken.append(row)
                elif row.fault:
                    self.findings.rest["broken row"] += 1
        except DataError as error:  # a line too long to be a row
            self.findings.add("broken row", self.file, 1, 0, error.what)
        for row, (byte, _) in zip(broken, located(self.path, [row.line for row in broken]), strict=True):
            self.findings.add("broken row", self.file, row.line, byte, f"column {row.column}: {row.fault}")


def located(path: Path, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
    """Where the lines of these numbers (rising) begin, and their bytes; reads as far as the last of them."""
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
