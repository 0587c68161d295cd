"""Checks data files for anything that would stop training, spoil it, or distort its figures.

Faults: invalid UTF-8, NUL bytes, control characters, mixed line ends, lines longer than a limit, rows that do not
parse, series with a missing number, validation lines that are also in the training data. Notes, which may be harmless:
a BOM, empty lines, duplicate lines, replacement characters, short lines in both training and validation data, columns
that forecasts leave out. In .parquet and .npy files, rows are checked like lines; in CoNLL columns, sentences are.

Files are streamed. Memory holds an 8-byte hash per line (and, during comparison, a sorted copy), and the first findings
of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqlab.data.checks.file_checks import FileCheck, Finding, Findings, Hashes, located
from seqlab.data.checks.table_checks import TableCheck, is_table, located_rows
from seqlab.data.formats.files import find_files

__all__ = ["Finding", "examine"]

CHUNK = 1 << 16
MOST = 0.5
"""Above this share, validation lines in the training data are not due to chance."""


def examine(
    files: Sequence[str], valid: Sequence[str] = (), max_line: int = 10_000, keep: int = 3, format: str = "auto"
) -> list[Finding]:
    """Return all findings in files, folders or patterns by kind: how often, and the first `keep` places."""
    findings = Findings(keep)
    train, held = (_hashes(names, max_line, findings, format) for names in (files, valid))
    known = _sorted(train)
    _duplicates(train, known, findings)
    if held:
        lines = _sorted(held)
        _duplicates(held, lines, findings)
        _overlap(held, known, _among(lines, known).sum() > MOST * len(lines), findings)
    return findings.all()


def _hashes(names: Sequence[str], max_line: int, findings: Findings, format: str) -> dict[Path, Hashes]:
    found = {}
    for path in dict.fromkeys(path for name in names for path in find_files(name)):
        table = is_table(path)
        check = TableCheck(path, max_line, findings) if table else FileCheck(path, max_line, findings, format)
        found[path] = check.run()
    return found


def _located(path: Path, numbers: list[int]) -> Iterator[tuple[int, bytes]]:
    return located_rows(path, numbers) if is_table(path) else located(path, numbers)


def _sorted(hashes: dict[Path, Hashes]) -> Hashes:
    """Return the sorted hashes of all lines that are not blank."""
    whole: Hashes = np.concatenate([np.empty(0, "int64"), *(of_file[of_file != 0] for of_file in hashes.values())])
    whole.sort()
    return whole


def _among(hashes: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """Return a mask of the hashes that are among the sorted ones."""
    if not len(ordered):
        return np.zeros(len(hashes), bool)
    found: NDArray[np.bool_] = ordered[np.searchsorted(ordered[:-1], hashes)] == hashes
    return found


def _duplicates(hashes: dict[Path, Hashes], ordered: Hashes, findings: Findings) -> None:
    """Report lines that occurred earlier, in the same file or a previous one."""
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    room = min(len(again), findings.room("duplicate"))
    findings.rest["duplicate"] += len(again) - room
    again = np.unique(again)
    first = np.full(len(again), -1)  # the overall number of the line where each one first occurred
    base = 0
    for path, of_file in hashes.items():
        found: dict[int, int] = {}
        for index in _indices(of_file, again):
            if len(found) == room:
                break
            which = np.searchsorted(again, of_file[index])
            if first[which] >= 0:
                found[index + 1] = int(first[which])
            else:
                first[which] = base + index
        for (number, before), (byte, text) in zip(found.items(), _located(path, list(found)), strict=True):
            what = f"same as {_place(hashes, before)}: {_shown(text)}"
            findings.add("duplicate", str(path), number, byte, what)
        room -= len(found)
        base += len(of_file)


def _place(hashes: dict[Path, Hashes], running: int) -> str:
    """Return the file and line of a line number counted across all files."""
    for path, of_file in hashes.items():
        if running < len(of_file):
            return f"{path}, {'row' if is_table(path) else 'line'} {running + 1}"
        running -= len(of_file)
    raise IndexError(running)


def _overlap(held: dict[Path, Hashes], known: Hashes, much: bool, findings: Findings) -> None:
    """Report lines of the validation data that are in the training data."""
    for path, of_file in held.items():
        inside = _among(of_file, known) & (of_file != 0)
        long = inside & ((of_file & 1 == 1) | much)
        for kind, chosen in (("overlap", long), ("short overlap", inside & ~long)):
            numbers = [int(index) + 1 for index in np.flatnonzero(chosen)[: findings.room(kind)]]
            for number, (byte, text) in zip(numbers, _located(path, numbers), strict=True):
                findings.add(kind, str(path), number, byte, f"also in the training data: {_shown(text)}")
            findings.rest[kind] += int(chosen.sum()) - len(numbers)


def _indices(hashes: Hashes, chosen: Hashes) -> Iterator[int]:
    """Yield the positions of hashes that are among the chosen ones, chunk by chunk."""
    for start in range(0, len(hashes), CHUNK):
        yield from (start + int(index) for index in np.flatnonzero(_among(hashes[start : start + CHUNK], chosen)))


def _shown(text: bytes) -> str:
    line = text.decode("utf-8", "replace").strip()
    return repr(line if len(line) <= 40 else line[:37] + "...")
