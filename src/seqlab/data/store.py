"""The token store: records encoded once, kept in files that are mapped into memory.

A text larger than memory can be trained on, and a second run on the same data starts at once. A store is a
folder

    <cache>/tokens/<key>/
      text.ids        the ids of all documents, one after the other, as uint8, uint16 or uint32
      text.offsets    int64: document i is ids[offsets[i] : offsets[i + 1]]
      meta.json       totals; written last

with two files for each column. It is built beside its place under a lock and then renamed: whoever looks sees
a whole store or none, and of several processes that ask at once, one builds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from seqlab.data.records import Record
from seqlab.errors import DataError

Ids = NDArray[Any]
Encoder = Callable[[list[str]], Sequence[Sequence[int] | Ids]]
BATCH = 1 << 21
"""Characters that are encoded at once."""
RECORD = 64
"""Counted for each record beside its characters, so that a batch of empty ones ends too."""
LAYOUT = 1


@dataclass(frozen=True)
class Totals:
    """`characters` and `bytes` (UTF-8) are those of the texts, `tokens` include the ends of documents."""

    tokens: int = 0
    characters: int = 0
    bytes: int = 0
    documents: int = 0


class Column:
    """One column of a store: `flat` has all ids, `column[i]` those of document i."""

    def __init__(self, folder: Path, role: str, dtype: str, totals: Totals) -> None:
        self.flat = _mapped(folder / f"{role}.ids", dtype, totals.tokens)
        self.offsets = _mapped(folder / f"{role}.offsets", "int64", totals.documents + 1)
        self.tokens, self.documents = totals.tokens, totals.documents
        self.characters, self.bytes = totals.characters, totals.bytes

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
    """Columns of ids by role; all columns have the same number of documents."""

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
        vocab_size: int,
        end: int | None = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Self:
        """The store of a key (a sha256 of all that decides what is in it), built from the records if need be.

        `end` is appended to each document: after a record that `ends`, not between the pieces of one.
        `progress` is called with the bytes of text encoded so far.
        """
        if not re.fullmatch(r"[\w-]+", key):
            raise ValueError(f"a key is a sha256 in hexadecimal digits, not {key!r}")
        from filelock import FileLock

        folder = cache_folder() / "tokens" / key
        plan = _Plan(dict(columns), vocab_size, end)
        if (store := cls._load(folder, plan)) is not None:
            return store
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if (store := cls._load(folder, plan)) is None:  # unless another process has built it meanwhile
                    _build(folder, records(), plan, progress or (lambda _: None))
                    store = cls._load(folder, plan)
        except OSError as error:  # the readers give DataErrors of their own: this one is about writing
            hint = "free some space there, or set the variable SEQLAB_CACHE to another folder"
            raise DataError(
                f"cannot write the token store ({error.strerror or error})",
                where=str(cache_folder()),
                hint=hint,
            ) from None
        assert store is not None
        return store

    @classmethod
    def _load(cls, folder: Path, plan: _Plan) -> Self | None:
        """The store in a folder, or None where there is none, a damaged one, or one made otherwise."""
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta["made"] != plan.made():
                return None
            totals = {role: Totals(**meta["columns"][role]) for role in plan.encoders}
            return cls({role: Column(folder, role, plan.dtype, totals[role]) for role in plan.encoders})
        except (OSError, ValueError, KeyError, TypeError):
            return None


def cache_folder() -> Path:
    """Where stores are kept: SEQLAB_CACHE, or the place the system has for such things."""
    if given := os.environ.get("SEQLAB_CACHE"):
        return Path(given).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("seqlab"))


# ---------------------------------------------------------------------- building


@dataclass(frozen=True)
class _Plan:
    encoders: dict[str, Encoder]
    vocab_size: int
    end: int | None

    @property
    def dtype(self) -> str:
        return next(f"uint{bits}" for bits in (8, 16, 32) if self.vocab_size <= 2**bits)

    def made(self) -> dict[str, object]:
        """What has to be the same for a store to be used again, beside its key."""
        return {"layout": LAYOUT, "dtype": self.dtype, "end": self.end, "roles": sorted(self.encoders)}


def _build(folder: Path, records: Iterable[Record], plan: _Plan, progress: Callable[[int], None]) -> None:
    room = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(room, ignore_errors=True)  # left by a build that was killed
    room.mkdir()
    try:
        totals = _encode(room, records, plan, progress)
        meta = {"made": plan.made(), "columns": {role: asdict(total) for role, total in totals.items()}}
        with (room / "meta.json").open("wb") as file:
            file.write(json.dumps(meta, indent=1).encode())
            _settle(file)
        shutil.rmtree(folder, ignore_errors=True)  # a damaged store, if anything
        room.rename(folder)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _encode(room: Path, records: Iterable[Record], plan: _Plan, progress: Callable[[int], None]) -> dict[str, Totals]:
    with ExitStack() as files:
        writers = {
            role: _Writer(
                plan,
                files.enter_context((room / f"{role}.ids").open("wb")),
                files.enter_context((room / f"{role}.offsets").open("wb")),
            )
            for role in plan.encoders
        }
        for batch in _batches(records):
            ends = np.array([record.ends for record in batch])
            for role, encode in plan.encoders.items():
                texts = [record.fields[role] for record in batch]
                writers[role].write(texts, encode(texts), ends)
            progress(sum(writer.bytes for writer in writers.values()))
        return {role: writer.finish() for role, writer in writers.items()}


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
    """Appends the ids of texts, and the offsets of documents, to the two files of a column."""

    def __init__(self, plan: _Plan, ids: BinaryIO, offsets: BinaryIO) -> None:
        self.plan, self.ids, self.offsets = plan, ids, offsets
        self.tokens = self.characters = self.bytes = self.documents = 0
        self.open = False  # has the last document more pieces to come?
        self.offsets.write(np.zeros(1, "int64").tobytes())

    def write(self, texts: list[str], encoded: Sequence[Sequence[int] | Ids], ends: NDArray[np.bool_]) -> None:
        flat = np.concatenate([np.empty(0, "uint8"), *(np.asarray(ids) for ids in encoded if len(ids))])
        if flat.size and not (flat.min() >= 0 and flat.max() < self.plan.vocab_size):
            raise ValueError(f"ids from {flat.min()} to {flat.max()} where there are {self.plan.vocab_size}")
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
        self.bytes += sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
        self.open = not ends[-1]

    def finish(self) -> Totals:
        if self.open:
            self.offsets.write(np.array([self.tokens], "int64").tobytes())
            self.documents += 1
        _settle(self.ids)
        _settle(self.offsets)
        return Totals(self.tokens, self.characters, self.bytes, self.documents)


def _settle(file: BinaryIO) -> None:
    """On the disk before the rename is: a size alone would not tell zeros from ids after a power cut."""
    file.flush()
    os.fsync(file.fileno())


def _mapped(path: Path, dtype: str, count: int) -> Ids:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path} has not the size it should have")
    return np.memmap(path, dtype, mode="r") if count else np.empty(0, dtype)  # an empty file cannot be mapped
