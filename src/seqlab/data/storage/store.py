"""The token store: records encoded once and kept in memory-mapped files.

This allows training on texts larger than memory, and a second run on the same data starts at once. A store is a folder

    <cache>/tokens/<key>/
      text.ids        the ids of all documents, concatenated, as uint8, uint16 or uint32; for a column of
                      numbers, text.numbers: float32
      text.offsets    int64: document i is ids[offsets[i] : offsets[i + 1]]
      meta.json       totals; written last

with two files per column; `cache.py` builds and removes it. Small inputs, such as a typed line, are encoded in memory.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from seqlab.data.progress import bytes_of, work
from seqlab.data.records import Record
from seqlab.data.storage.cache import EntryLock, kept
from seqlab.errors import DataError

Ids = NDArray[Any]
Encoder = Callable[[list[str]], Sequence[Sequence[int] | Ids]]
"""Maps texts to their ids, or to their numbers."""
BATCH = 1 << 21
"""Characters to encode at once."""
RECORD = 64
"""Added to the size of each record, so that a batch of empty records ends too."""
LAYOUT = 1


@dataclass(frozen=True)
class Totals:
    """`characters` and `bytes` (UTF-8) count the texts; `tokens` includes the ends of documents."""

    tokens: int = 0
    characters: int = 0
    bytes: int = 0
    documents: int = 0


class Column:
    """One column of a store: `flat` holds all ids (or numbers), `column[i]` those of document i."""

    def __init__(self, flat: Ids, offsets: Ids, totals: Totals) -> None:
        self.flat, self.offsets = flat, offsets
        self.tokens, self.documents = totals.tokens, totals.documents
        self.characters, self.bytes = totals.characters, totals.bytes

    @classmethod
    def mapped(cls, folder: Path, lock: EntryLock, role: str, plan: _Plan, totals: Totals) -> Self:
        flat = _mapped(folder / f"{role}.{plan.holds}", lock, plan.dtype, totals.tokens)
        offsets = _mapped(folder / f"{role}.offsets", lock, "int64", totals.documents + 1)
        return cls(flat, offsets, totals)

    def __len__(self) -> int:
        return self.documents

    def __getitem__(self, index: int) -> Ids:
        if not -len(self) <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        index %= len(self)
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[index] for index in range(len(self)))


class TokenStore:
    """Columns of ids by role, all with the same number of documents."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)

    def __getitem__(self, role: str) -> Column:
        return self.columns[role]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @classmethod
    def open(
        cls,
        records: Callable[[], Iterator[Record]],
        columns: Mapping[str, Encoder],
        key: str,
        *,
        vocab_size: int | None,
        end: int | None = 0,
        about: str = "",
        size: int | None = None,
        keep: bool = True,
    ) -> Self:
        """Open the store for a key (a sha256 of everything that determines it), building it from the records if needed.

        Columns hold ids below `vocab_size`, or numbers if that is None. `end` is appended to each document: after a
        record that `ends`, not between the pieces of one. `about` describes the data to the user, and `size` is its
        length in bytes of text, if known. With `keep=False`, records are encoded in memory and the cache is not
        touched.
        """
        plan = _Plan(dict(columns), vocab_size, end, about)
        if not keep:
            return cls._in_memory(records(), plan)

        def build(room: Path) -> None:
            with work(f"encoding {about}", size) as progress:
                _build(room, records(), plan, progress)

        return kept("tokens", key, lambda folder, lock: cls._load(folder, lock, plan), build)

    @classmethod
    def _load(cls, folder: Path, lock: EntryLock, plan: _Plan) -> Self | None:
        """Load the store in a folder, or return None if it is missing, damaged, or built differently."""
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta["made"] != plan.made():
                return None
            totals = {role: Totals(**meta["columns"][role]) for role in plan.encoders}
            return cls({role: Column.mapped(folder, lock, role, plan, totals[role]) for role in plan.encoders})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @classmethod
    def _in_memory(cls, records: Iterable[Record], plan: _Plan) -> Self:
        files: dict[str, io.BytesIO] = {}

        def opened(name: str) -> io.BytesIO:
            return files.setdefault(name, io.BytesIO())

        totals = _encode(opened, records, plan, lambda done: None)

        def array(name: str, dtype: str) -> Ids:
            return np.frombuffer(files[name].getvalue(), dtype)

        return cls(
            {
                role: Column(array(f"{role}.{plan.holds}", plan.dtype), array(f"{role}.offsets", "int64"), total)
                for role, total in totals.items()
            }
        )


# ---------------------------------------------------------------------- building


@dataclass(frozen=True)
class _Plan:
    encoders: dict[str, Encoder]
    vocab_size: int | None
    end: int | None
    about: str

    @property
    def holds(self) -> str:
        return "numbers" if self.vocab_size is None else "ids"

    @property
    def dtype(self) -> str:
        if self.vocab_size is None:
            return "float32"
        return next(f"uint{bits}" for bits in (8, 16, 32) if self.vocab_size <= 2**bits)

    def made(self) -> dict[str, object]:
        """Return what must match, besides the key, for a store to be reused."""
        return {"layout": LAYOUT, "dtype": self.dtype, "end": self.end, "roles": sorted(self.encoders)}


def _build(room: Path, records: Iterable[Record], plan: _Plan, progress: Callable[[int], None]) -> None:
    with ExitStack() as files:
        written: list[BinaryIO] = []

        def opened(name: str) -> BinaryIO:
            written.append(files.enter_context((room / name).open("wb")))
            return written[-1]

        totals = _encode(opened, records, plan, progress)
        for file in written:
            _settle(file)
    columns = {role: asdict(total) for role, total in totals.items()}
    with (room / "meta.json").open("wb") as file:
        file.write(json.dumps({"about": plan.about, "made": plan.made(), "columns": columns}, indent=1).encode())
        _settle(file)


def _encode(
    opened: Callable[[str], BinaryIO], records: Iterable[Record], plan: _Plan, progress: Callable[[int], None]
) -> dict[str, Totals]:
    """Write each column to its two files, which `opened` opens by name, and return the totals."""
    writers = {role: _Writer(plan, opened(f"{role}.{plan.holds}"), opened(f"{role}.offsets")) for role in plan.encoders}
    for batch in _batches(records):
        ends = np.array([record.ends for record in batch])
        for role, encode in plan.encoders.items():
            texts = [record.fields[role] for record in batch]
            writers[role].write(texts, encoded(encode, texts, batch), ends)
        progress(sum(writer.bytes for writer in writers.values()))
    return {role: writer.finish() for role, writer in writers.items()}


def encoded(encode: Encoder, texts: list[str], batch: Sequence[Record]) -> Sequence[Sequence[int] | Ids]:
    """Return the ids of texts; an error names the record it comes from."""
    try:
        return encode(texts)
    except DataError:
        for text, record in zip(texts, batch, strict=True):
            with record.blamed():
                encode([text])
        raise


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch, size = [], 0
    for record in records:
        batch.append(record)
        size += RECORD + sum(map(len, record.fields.values()))
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Writer:
    """Appends the ids of texts and the offsets of documents to the two files of a column."""

    def __init__(self, plan: _Plan, ids: BinaryIO, offsets: BinaryIO) -> None:
        self.plan, self.ids, self.offsets = plan, ids, offsets
        self.tokens = self.characters = self.bytes = self.documents = 0
        self.open = False  # whether the last document has more pieces to come
        self.offsets.write(np.zeros(1, "int64").tobytes())

    def write(self, texts: list[str], encoded: Sequence[Sequence[int] | Ids], ends: NDArray[np.bool_]) -> None:
        flat = np.concatenate([np.empty(0, "uint8"), *(np.asarray(ids) for ids in encoded if len(ids))])
        vocab_size = self.plan.vocab_size
        if vocab_size is not None and flat.size and not (flat.min() >= 0 and flat.max() < vocab_size):
            raise ValueError(f"ids from {flat.min()} to {flat.max()}, but the vocabulary has {vocab_size}")
        flat = flat.astype(self.plan.dtype, copy=False)
        stops = np.cumsum([len(ids) for ids in encoded])
        if self.plan.end is not None:
            flat = np.insert(flat, stops[ends], self.plan.end)
            stops = stops + np.cumsum(ends)
        self.ids.write(flat.tobytes())
        self.offsets.write((self.tokens + stops[ends]).astype("int64").tobytes())
        self.tokens += len(flat)
        self.documents += int(ends.sum())
        self.characters += sum(map(len, texts))
        self.bytes += sum(map(bytes_of, texts))
        self.open = not ends[-1]

    def finish(self) -> Totals:
        if self.open:
            self.offsets.write(np.array([self.tokens], "int64").tobytes())
            self.documents += 1
        return Totals(self.tokens, self.characters, self.bytes, self.documents)


def _settle(file: BinaryIO) -> None:
    """Flush to disk before the rename: after a power cut, the size alone would not tell zeros from ids."""
    file.flush()
    os.fsync(file.fileno())


def _mapped(path: Path, lock: EntryLock, dtype: str, count: int) -> Ids:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path} has the wrong size")
    if not count:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    mapped = np.memmap(path, dtype, mode="r")
    mapped.lock = lock  # type: ignore[attr-defined]  # the entry is in use as long as any view of the array lives
    return mapped
