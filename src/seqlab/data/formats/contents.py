"""The records of one file, whatever its format.

Plain text (everything without another extension): a record is the file (in pieces, every character kept), a
paragraph or a line (without the \\n or \\r\\n at its end; an empty one only with `empty_lines`). Text is UTF-8, and a
BOM at its start is dropped. .jsonl (an object a line), .csv and .tsv (a header, then rows), .parquet: a record is a
row.
Two files side by side (`data/formats/aligned.py`): a record is a line of each.
.conll and .bio (a token a line), .conllu: a record is a sentence (`data/formats/conll.py`).
.npy: an array, one long sequence or a sequence a row. .fasta (.fa, .fna, .faa): the letters of each sequence,
without its header and ends of lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqlab.data.formats.aligned import Aligned, aligned_records
from seqlab.data.formats.arrays import array_cut, array_records, opened_array
from seqlab.data.formats.conll import columns_of, sentences
from seqlab.data.formats.files import BLOCK, FilePiece, cut_point, format_of, lines, pieces, size_of
from seqlab.data.formats.headers import choose_columns
from seqlab.data.formats.parquet import Parquet
from seqlab.data.formats.rows import Row, first_row, parse_rows
from seqlab.data.formats.symbol_texts import joined, parsed
from seqlab.data.records import Record
from seqlab.errors import DataError, nearest
from seqlab.recipe import DataSettings

SHORTEST = 100
"""Bytes, or elements, of a text that a part can be held out of."""


@dataclass(frozen=True)
class Asked:
    """What is wanted of every file: a field for each role; with `symbols`, lists and arrays may be read too."""

    data: DataSettings
    roles: tuple[str, ...]
    symbols: bool = False

    def only_role(self, where: str) -> str:
        if len(self.roles) != 1:
            hint = "give a .jsonl, .csv, .tsv or .parquet file with these columns, or what aligned files' names share"
            raise DataError(f"plain text cannot give {' and '.join(self.roles)}", where=where, hint=hint)
        return self.roles[0]


def format_in(path: Path | Aligned, data: DataSettings) -> str:
    if isinstance(path, Aligned):
        return "aligned"
    return format_of(path) if data.format == "auto" else data.format


def bytes_in(path: Path | Aligned) -> int:
    """Of a file or of all those side by side, unpacked."""
    return sum(map(size_of, path.paths)) if isinstance(path, Aligned) else size_of(path)


def records_of(path: Path | Aligned, asked: Asked, start: int = 0, stop: int | None = None) -> Iterator[Record]:
    """The records of one file, or of a part of a text that can be cut; a file without any is an error."""
    format, none = format_in(path, asked.data), True
    if isinstance(path, Aligned):
        records = aligned_records(path, asked.roles)
    elif format == "npy":
        records = _of_array(path, asked, start, stop)
    elif format == "parquet":
        records = _of_rows(_parquet_rows(path, asked), path, asked, _named(asked))
    elif format == "fasta":
        records = _of_fasta(pieces(path, start, stop), path, asked)
    elif format == "txt":
        records = text_records(pieces(path, start, stop), str(path), asked)
    elif format in ("conll", "conllu"):
        records = sentence_records(pieces(path), str(path), asked, format)
    elif format == "jsonl":
        records = _of_rows(parse_rows(format, lines(pieces(path), str(path))), path, asked, _named(asked))
    else:
        records = _of_table(path, format, asked)
    for record in records:
        none = False
        yield record
    if none:
        what = "empty file" if bytes_in(path) == 0 else "no records in it"
        raise DataError(what, where=str(path), hint="leave it out or fill it")


# ---------------------------------------------------------------------- where a file can be cut


def texts_in(path: Path | Aligned, data: DataSettings, at_most: int) -> int | None:
    """How many texts that can be cut anywhere are in a file, counted so far; None where a record is a row or line."""
    if isinstance(path, Aligned):
        return None
    format = format_in(path, data)
    if format == "npy":
        return 1 if opened_array(path).ndim == 1 else None
    if format == "fasta":
        count = 0
        for _, line in lines(pieces(path), str(path)):
            count += line.startswith(">")
            if count >= at_most:
                break
        return count
    return 1 if format == "txt" and data.documents == "file" else None


def cut_of(path: Path, data: DataSettings, share: float) -> int:
    """Where the last `share` of a text begins, in bytes (elements, of an array); 0 if it is too short to be cut."""
    if format_in(path, data) == "npy":
        return array_cut(path, share) if len(opened_array(path)) >= SHORTEST else 0
    return cut_point(path, share) if size_of(path) >= SHORTEST else 0


def plain_size(path: Path | Aligned, data: DataSettings) -> int | None:
    """The bytes of a plain text that is not packed: what is read is what is encoded."""
    if isinstance(path, Aligned) or format_in(path, data) not in ("txt", "fasta") or path.suffix.lower() == ".gz":
        return None
    return path.stat().st_size


# ---------------------------------------------------------------------- texts


def text_records(text: Iterable[FilePiece], file: str, asked: Asked) -> Iterator[Record]:
    role, documents = asked.only_role(file), asked.data.documents
    if documents == "file":
        parts: Iterator[tuple[str, int, bool]] = ((piece.text, piece.line, piece.ends) for piece in text)
    elif documents == "line":
        empty = asked.data.empty_lines
        parts = ((line, number, True) for number, line in _stripped(text, file) if empty or line.strip())
    else:
        parts = _paragraphs(_stripped(text, file))
    for part, line, ends in parts:
        yield Record({role: part}, file, line, ends)


def _stripped(text: Iterable[FilePiece], file: str) -> Iterator[tuple[int, str]]:
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


def sentence_records(text: Iterable[FilePiece], file: str, asked: Asked, format: str = "conll") -> Iterator[Record]:
    """The sentences of a text whose words stand in columns."""
    return sentences(lines(text, file), file, columns_of(asked.roles, asked.data.columns, format, file), format)


def _of_fasta(text: Iterable[FilePiece], path: Path, asked: Asked) -> Iterator[Record]:
    """Each sequence, its lines joined, in pieces if it is long. What stands before the first header is one too.

    >name and whatever else is known
    ACGTACGT
    ACGT
    """
    role, held, first, size = asked.only_role(str(path)), list[str](), 1, 0

    def record(ends: bool) -> Record:
        return Record({role: "".join(held)}, str(path), first, ends)

    for number, line in _stripped(text, str(path)):
        header = line.startswith((">", ";"))
        letters = "" if header else line.strip()
        if held and (header or (letters and size > BLOCK)):
            yield record(ends=header)
            held, size = [], 0
        if letters:
            first = first if held else number
            held.append(letters)
            size += len(letters)
    if held:
        yield record(ends=True)


# ---------------------------------------------------------------------- rows and arrays


def _named(asked: Asked) -> dict[str, str]:
    """The name of each role's column."""
    return {role: str(asked.data.columns.get(role, role)) for role in asked.roles}


def _of_table(path: Path, format: str, asked: Asked) -> Iterator[Record]:
    def text() -> Iterator[tuple[int, str]]:
        return lines(pieces(path), str(path))

    chosen = choose_columns(asked.roles, asked.data.columns, str(path), lambda: first_row(format, text()))
    return _of_rows(parse_rows(format, text(), chosen.header), path, asked, chosen.columns)


def _of_rows(rows: Iterable[Row], path: Path, asked: Asked, columns: Mapping[str, str]) -> Iterator[Record]:
    for row in rows:
        if row.fault is not None:
            place = f"{path}, line {row.line}, column {row.column}"
            raise DataError(row.fault, where=place, hint="see all such rows with `seqlab data check FILE`")
        cells = {role: _cell(row, column, role, path, asked) for role, column in columns.items()}
        yield Record(cells, str(path), row.line, counted="line" if row.group is None else "row")


def _cell(row: Row, column: str, role: str, path: Path, asked: Asked) -> str:
    """A cell as text; a number or a truth value as JSON writes it, a list (where they are wanted) with blanks."""
    where = f"{path}, {row.place}"
    if column not in row.cells:
        hint = f"name the right one: data.columns.{role}; {nearest(column, (name[:30] for name in row.cells))}"
        if format_in(path, asked.data) in ("csv", "tsv"):
            hint += "; where the first line is no header, all are numbers from 0"
        raise DataError(f"no column '{column}'", where=where, hint=hint)
    value = row.cells[column]
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if asked.symbols:
        try:
            if isinstance(value, str) and format_in(path, asked.data) in ("csv", "tsv"):
                value = parsed(value)
            if isinstance(value, list):
                value = joined(value)
        except ValueError as error:
            raise DataError(f"column '{column}': {error}", where=where, hint="put the row right") from None
    if not isinstance(value, str):
        lists = isinstance(value, list)
        hint = "tokenizer.kind=symbols (or ids) reads lists" if lists else "fill it, or leave the row out"
        raise DataError(f"column '{column}' is no text but {json.dumps(value)[:40]}", where=where, hint=hint)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(f"half of a UTF-16 pair in column '{column}'", where=where, hint="no UTF-8 text can hold it")
    return value


def _parquet_rows(path: Path, asked: Asked) -> Iterator[Row]:
    file = Parquet(path)
    columns = _named(asked)
    for role, column in columns.items():
        file.column(column, role, lists=asked.symbols)
    return file.rows(list(dict.fromkeys(columns.values())))


def _of_array(path: Path, asked: Asked, start: int, stop: int | None) -> Iterator[Record]:
    if not asked.symbols:
        hint = "tokenizer.kind=ids (or symbols) reads arrays"
        raise DataError("an array is no text", where=str(path), hint=hint)
    return array_records(path, asked.only_role(str(path)), start, stop)
