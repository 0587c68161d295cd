"""Sources of every kind become records.

A source is a file, a folder, a pattern, any of them packed with gzip (`.gz`), or the name of a built-in data
set. A word without a separator or a suffix that names a built-in set (`python-docs`) always means that set;
to read a file or a folder of that name, write `./python-docs`. A file that several sources name is read once,
and files of `valid` are left out of `train`.

Formats: .jsonl (an object a line), .csv and .tsv (a header, then rows); everything else is plain text, of
which a record is the file (in pieces, every character kept), a paragraph or a line (without blank lines and
the \\n or \\r\\n at ends of lines). Text is UTF-8, and a BOM at its start is dropped.

What is held out where there is no `valid`: of 20 or more documents, those whose running number hashes below
the share, so that they are spread over the data; of fewer plain texts, the last part of each. A built-in set
has a fixed part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from seqlab.data import builtin
from seqlab.data.files import BLOCK, Piece, cut_point, find_files, format_of, lines, opened, pieces, size_of
from seqlab.data.noise import scrambled
from seqlab.data.records import Record
from seqlab.data.rows import Row, parse_rows
from seqlab.errors import DataError, nearest
from seqlab.recipe import DataSettings

Split = Literal["train", "valid"]
FEWEST_DOCUMENTS = 20
FEWEST_BYTES = 100
HELD_OUT = 0.05
MOST_HELD_OUT = 250_000
"""Bytes that are held out where the recipe names no share: an evaluation is not to cost more than the training."""
VERSION = 1
"""Part of every fingerprint: to be raised when the same files would give other records."""


def read(data: DataSettings, split: Split, roles: Sequence[str] = ("text",)) -> Iterator[Record]:
    """The records of a split, each with a field for every role: those of files, then those of built-in sets.

    train and valid never share a record, and where `valid` is not given they are together all of the data. What
    `data.scramble` says is done to the field of the first role: what a model reads.
    """
    sources = _sources(data, split)
    files = [source for source in sources if isinstance(source, Path)]
    sets = [source for source in sources if isinstance(source, str)]
    records = _chain(data, split, roles, files, sets)
    return scrambled(records, roles[0], data.scramble) if data.scramble else records


def read_texts(sources: list[str]) -> Iterator[str]:
    """All texts of files (in pieces), the column `text` of rows, the training part of built-in sets."""
    data = DataSettings(train=sources, valid=[])
    return (record.fields["text"] for record in read(data, "train"))


def fingerprint(data: DataSettings, split: Split) -> str:
    """sha256 of all that decides what `read` gives: contents of files, and the settings that matter."""
    whole: list[object] = [VERSION, split, data.documents, sorted(data.columns.items())]
    whole.append(data.hold_out if data.valid is None else None)
    if data.scramble:
        whole.append(["scramble", data.scramble])
    for source in _sources(data, split):
        if isinstance(source, str):
            whole.append([source, builtin.content_hash(source)])
        else:
            facts = source.stat()
            whole.append([_format(source, data), _digest(source, facts.st_size, facts.st_mtime_ns)])
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


@lru_cache(maxsize=10_000)
def _digest(path: Path, size: int, changed: int) -> str:
    """sha256 of a file's contents, read once in a process as long as the file stays as it is."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


# ---------------------------------------------------------------------- which sources


def _sources(data: DataSettings, split: Split) -> list[Path | str]:
    """Files, and names of built-in sets, of a split: each once."""
    valid = _resolved(data.valid) if data.valid is not None else {}
    if split == "valid" and data.valid is not None:
        return list(valid.values())
    sources = _resolved(data.train)
    if not sources:
        raise DataError("data.train is an empty list", hint="name a file, a folder, a pattern or a built-in data set")
    left = [source for key, source in sources.items() if isinstance(source, str) or key not in valid]
    if not left:
        where = ", ".join(str(source) for source in sources.values())
        raise DataError(
            "train and valid are the same files", where=where, hint="leave data.valid out to hold out a part"
        )
    return left


def _resolved(names: str | list[str]) -> dict[Path | str, Path | str]:
    """By identity, so that two names of one file are one."""
    found: dict[Path | str, Path | str] = {}
    for name in [names] if isinstance(names, str) else names:
        if name in builtin.TEXTS:
            found[name] = name
        else:
            for file in _found(name):
                found.setdefault(file.resolve(), file)
    return found


def _found(name: str) -> list[Path]:
    if not name:  # as a path it would be the folder one is in
        raise DataError("an empty name for data", hint="name a file, a folder, a pattern or a built-in data set")
    try:
        return find_files(name, also=builtin.TEXTS)
    except OSError as error:  # a name too long for a file, a folder that may not be looked into
        raise DataError(f"cannot be read ({error.strerror})", where=name[:80], hint="check the path") from None


def _format(path: Path, data: DataSettings) -> str:
    return format_of(path) if data.format == "auto" else data.format


# ---------------------------------------------------------------------- records of files


def _chain(
    data: DataSettings, split: Split, roles: Sequence[str], files: list[Path], sets: list[str]
) -> Iterator[Record]:
    if files:
        whole = data.valid is not None
        yield from _of_all(files, data, roles) if whole else _held_out(files, data, split, roles)
    for name in sets:
        for document in builtin.documents(name, split):
            text = [Piece(document.text, 1, ends=True)]
            yield from _of_text(text, f"{name}:{document.name}", data, _only(roles, name))


def _of_all(files: list[Path], data: DataSettings, roles: Sequence[str]) -> Iterator[Record]:
    for path in files:
        yield from _of_file(path, data, roles)


def _of_file(
    path: Path, data: DataSettings, roles: Sequence[str], start: int = 0, stop: int | None = None
) -> Iterator[Record]:
    """The records of one file, or of a part of a plain text; a file without any is an error."""
    format, none = _format(path, data), True
    text = pieces(path, start, stop)
    if format == "txt":
        records = _of_text(text, str(path), data, _only(roles, str(path)))
    else:
        records = _of_rows(parse_rows(format, lines(text, str(path))), path, data, roles)
    for record in records:
        none = False
        yield record
    if none:
        what = "empty file" if size_of(path) == 0 else "no records in it"
        raise DataError(what, where=str(path), hint="leave it out or fill it")


def _only(roles: Sequence[str], where: str) -> str:
    if len(roles) != 1:
        hint = "give a .jsonl, .csv or .tsv file with these columns"
        raise DataError(f"plain text cannot give {' and '.join(roles)}", where=where, hint=hint)
    return roles[0]


def _of_text(text: Iterable[Piece], file: str, data: DataSettings, role: str) -> Iterator[Record]:
    if data.documents == "file":
        parts: Iterator[tuple[str, int, bool]] = ((piece.text, piece.line, piece.ends) for piece in text)
    elif data.documents == "line":
        parts = ((line, number, True) for number, line in _stripped(text, file) if line.strip())
    else:
        parts = _paragraphs(_stripped(text, file))
    for part, line, ends in parts:
        yield Record({role: part}, file, line, ends)


def _stripped(text: Iterable[Piece], file: str) -> Iterator[tuple[int, str]]:
    return ((number, line.removesuffix("\r")) for number, line in lines(text, file))


def _paragraphs(numbered: Iterable[tuple[int, str]], longest: int = BLOCK) -> Iterator[tuple[str, int, bool]]:
    """Lines between blank lines, joined by \\n; of a very long one, pieces: all but the last end in \\n."""
    held: list[str] = []
    first = size = 0
    for number, line in numbered:
        if held and (not line.strip() or size > longest):
            ends = not line.strip()
            yield "\n".join(held) + ("" if ends else "\n"), first, ends
            held, size = [], 0
        if line.strip():
            first = first if held else number
            held.append(line)
            size += len(line)
    if held:
        yield "\n".join(held), first, True


def _of_rows(rows: Iterable[Row], path: Path, data: DataSettings, roles: Sequence[str]) -> Iterator[Record]:
    columns = {role: data.columns.get(role, role) for role in roles}
    for row in rows:
        if row.fault is not None:
            place = f"{path}, line {row.line}, column {row.column}"
            raise DataError(row.fault, where=place, hint="see all such rows with `seqlab data check FILE`")
        cells = {role: _cell(row, column, role, path) for role, column in columns.items()}
        yield Record(cells, str(path), row.line)


def _cell(row: Row, column: str, role: str, path: Path) -> str:
    """A cell as text; a number or a truth value as JSON writes it."""
    where = f"{path}, line {row.line}"
    if column not in row.cells:
        hint = f"name the right one: data.columns.{role}; {nearest(column, row.cells)}"
        raise DataError(f"no column '{column}'", where=where, hint=hint)
    value = row.cells[column]
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise DataError(f"column '{column}' is no text but {json.dumps(value)[:40]}", where=where)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(f"half of a UTF-16 pair in column '{column}'", where=where, hint="no UTF-8 text can hold it")
    return value


# ---------------------------------------------------------------------- holding out


def _held_out(files: list[Path], data: DataSettings, split: Split, roles: Sequence[str]) -> Iterator[Record]:
    few_texts = data.documents == "file" and all(_format(file, data) == "txt" for file in files)
    if few_texts and len(files) < FEWEST_DOCUMENTS:
        return _ends_of_texts(files, data, split, roles)
    return _spread(files, data, split, roles)


def _ends_of_texts(files: list[Path], data: DataSettings, split: Split, roles: Sequence[str]) -> Iterator[Record]:
    """Each text up to its cut, or after it; a text too short to be cut is all train."""
    share = _share(files, data)
    cuts = [cut_point(path, share) if size_of(path) >= FEWEST_BYTES else 0 for path in files]
    if not any(cuts):
        for _ in _of_all(files, data, roles):  # a file that is empty or no text at all has a better message
            pass
        raise _too_little(files)
    for path, cut in zip(files, cuts, strict=True):
        if split == "train":
            yield from _of_file(path, data, roles, stop=cut or None)
        elif cut:
            yield from _of_file(path, data, roles, start=cut)


def _spread(files: list[Path], data: DataSettings, split: Split, roles: Sequence[str]) -> Iterator[Record]:
    limit = _limit(_of_all(files, data, roles), _share(files, data), files)
    document = 0
    for record in _of_all(files, data, roles):
        if (_hash(document) < limit) == (split == "valid"):
            yield record
        document += record.ends


def _share(files: list[Path], data: DataSettings) -> float:
    """As asked for; or a twentieth, and of large data no more than an evaluation needs."""
    return data.hold_out or min(HELD_OUT, MOST_HELD_OUT / max(1, sum(size_of(path) for path in files)))


def _limit(records: Iterable[Record], share: float, files: list[Path]) -> int:
    """A document is held out when its hash is below this: the share, or what leaves neither split empty.

    Reads only as far as it takes to find a document of either kind.
    """
    wanted, lowest, highest, documents = int(share * 2**64), 2**64, 0, 0
    for record in records:
        if record.ends:
            lowest, highest = min(lowest, _hash(documents)), max(highest, _hash(documents))
            documents += 1
            if documents >= FEWEST_DOCUMENTS and lowest < wanted <= highest:
                return wanted
    if documents < FEWEST_DOCUMENTS:
        raise _too_little(files)
    return min(max(wanted, lowest + 1), highest)


def _hash(number: int) -> int:
    return int.from_bytes(hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8).digest(), "little")


def _too_little(files: list[Path]) -> DataError:
    names = ", ".join(str(file) for file in files[:3]) + (", ..." if len(files) > 3 else "")
    return DataError("too little data to hold out a part of it", where=names, hint="give data.valid")
