"""The records of one file, whatever its format.

Plain text (any other extension): a record is the file (in pieces, every character kept), a paragraph or a line (without
its final \\n or \\r\\n; empty lines only with `empty_lines`). Text is UTF-8, and an initial BOM is dropped.
.jsonl (one object per line), .csv and .tsv (a header, then rows), .parquet: a record is a row.
Two aligned files (`data/formats/aligned.py`): a record is one line from each.
.conll and .bio (one token per line), .conllu: a record is a sentence (`data/formats/conll.py`).
.npy: an array, either one long sequence or one sequence per row. .fasta (.fa, .fna, .faa): the letters of each
sequence, without header and line ends.
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
"""The fewest bytes (or elements) of a text that can be split."""


ANSWERS = ("label", "tags")


@dataclass(frozen=True)
class Asked:
    """What to read from every file: a field per role; with `symbols`, lists and arrays are accepted too."""

    data: DataSettings
    roles: tuple[str, ...]
    symbols: bool = False
    answers: tuple[str, ...] = ANSWERS
    """Roles that do not count as content: the same text with another label is held out, or trained on, with it."""

    def only_role(self, where: str) -> str:
        if len(self.roles) != 1:
            hint = "give a .jsonl, .csv, .tsv or .parquet file with these columns, or the common stem of aligned files"
            raise DataError(f"plain text does not provide {' and '.join(self.roles)}", where=where, hint=hint)
        return self.roles[0]


def format_in(path: Path | Aligned, data: DataSettings) -> str:
    if isinstance(path, Aligned):
        return "aligned"
    return format_of(path) if data.format == "auto" else data.format


def bytes_in(path: Path | Aligned) -> int:
    """Return the unpacked size of a file, or of aligned files together."""
    return sum(map(size_of, path.paths)) if isinstance(path, Aligned) else size_of(path)


def records_of(path: Path | Aligned, asked: Asked, start: int = 0, stop: int | None = None) -> Iterator[Record]:
    """Yield the records of one file, or of part of a text that can be cut; a file without records is an error."""
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
        what = "empty file" if bytes_in(path) == 0 else "no records"
        raise DataError(what, where=str(path), hint="remove it, or add data to it")


# ---------------------------------------------------------------------- where a file can be cut


def texts_in(path: Path | Aligned, data: DataSettings, at_most: int) -> int | None:
    """Count the texts that can be cut anywhere, stopping at `at_most`; None if the file's records are rows or lines."""
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
    """Return where the last `share` of a text begins, in bytes (or array elements); 0 if it is too short to cut."""
    if format_in(path, data) == "npy":
        return array_cut(path, share) if len(opened_array(path)) >= SHORTEST else 0
    return cut_point(path, share) if size_of(path) >= SHORTEST else 0


def plain_size(path: Path | Aligned, data: DataSettings) -> int | None:
    """Return the size of an unpacked plain text in bytes; its bytes are encoded as they are."""
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
    """Yield the lines between blank lines, joined by \\n; very long blocks in pieces, all but the last ending in
    \\n."""
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
    """Yield the sentences of a text with words in columns."""
    return sentences(lines(text, file), file, columns_of(asked.roles, asked.data.columns, format, file), format)


def _of_fasta(text: Iterable[FilePiece], path: Path, asked: Asked) -> Iterator[Record]:
    """Yield each sequence, its lines joined, in pieces if it is long. Text before the first header is a sequence too.

    >name and any further description
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
    """Return the column name of each role."""
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
            raise DataError(row.fault, where=place, hint="list all such rows with `seqlab data check FILE`")
        cells = {role: _cell(row, column, role, path, asked) for role, column in columns.items()}
        yield Record(cells, str(path), row.line, counted="line" if row.group is None else "row")


def _cell(row: Row, column: str, role: str, path: Path, asked: Asked) -> str:
    """Return a cell as text: numbers and booleans as JSON, and lists (if `symbols` is set) separated by blanks."""
    where = f"{path}, {row.place}"
    if column not in row.cells:
        hint = f"set data.columns.{role} to the right one; {nearest(column, (name[:30] for name in row.cells))}"
        if format_in(path, asked.data) in ("csv", "tsv"):
            hint += "; without a header, columns are numbered from 0"
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
            raise DataError(f"column '{column}': {error}", where=where, hint="correct the row") from None
    if not isinstance(value, str):
        lists = isinstance(value, list)
        hint = "to read lists, set tokenizer.kind=symbols (or ids)" if lists else "fill it, or remove the row"
        raise DataError(f"column '{column}' is not text but {json.dumps(value)[:40]}", where=where, hint=hint)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(
            f"a lone UTF-16 surrogate in column '{column}'", where=where, hint="remove it: UTF-8 cannot encode it"
        )
    return value


def _parquet_rows(path: Path, asked: Asked) -> Iterator[Row]:
    file = Parquet(path)
    columns = _named(asked)
    for role, column in columns.items():
        file.column(column, role, lists=asked.symbols)
    return file.rows(list(dict.fromkeys(columns.values())))


def _of_array(path: Path, asked: Asked, start: int, stop: int | None) -> Iterator[Record]:
    if not asked.symbols:
        hint = "to read arrays, set tokenizer.kind=ids (or symbols)"
        raise DataError("an array is not text", where=str(path), hint=hint)
    return array_records(path, asked.only_role(str(path)), start, stop)
