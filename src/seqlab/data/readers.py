"""Sources of every kind become records.

A source is a file, a folder, a pattern, any of them packed with gzip (`.gz`), the name that aligned files share, or
the name of a built-in data set. A word without a separator or a suffix that names a built-in set (`python-docs`)
always means that set; to read a file or a folder of that name, write `./python-docs`. A file that several sources
name is read once, and files of `valid` are left out of `train`.

`data/contents.py` says which formats there are and what is a record of each.

What is held out where there is no `valid`: of 20 or more documents, those whose running number hashes below
the share, so that they are spread over the data; of fewer plain texts (or long arrays), the last part of each. A
built-in set has a fixed part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from seqlab.data import builtin, synthetic
from seqlab.data.aligned import Aligned, find_aligned, similar_files
from seqlab.data.contents import (
    Asked,
    bytes_in,
    cut_of,
    format_in,
    plain_size,
    records_of,
    text_records,
    texts_in,
)
from seqlab.data.files import BLOCK, Piece, find_files, opened
from seqlab.data.noise import RULE, scrambled
from seqlab.data.records import Document, Record
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

Split = Literal["train", "valid"]
Source = Path | Aligned | str
"""A file, files side by side, or a built-in set."""
Files = Sequence[Path | Aligned]
FEWEST_DOCUMENTS = 20
HELD_OUT = 0.05
MOST_HELD_OUT = 250_000
"""Bytes that are held out where the recipe names no share: an evaluation is not to cost more than the training."""
SMALL = 1 << 18
"""Bytes of files that are not worth an entry of the cache."""
VERSION = 3
"""Part of every fingerprint: to be raised when the same files would give other records."""


def read(data: DataSettings, split: Split, roles: Sequence[str] = ("text",), symbols: bool = False) -> Iterator[Record]:
    """The records of a split, each with a field for every role: those of files, then those of built-in sets.

    train and valid never share a record, and where `valid` is not given they are together all of the data. With
    `symbols`, lists and arrays are read too: as texts that have a blank between two symbols. What `data.scramble` says
    is done to the field of the first role: what a model reads.
    """
    records = _chain(sources(data, split), Asked(data, tuple(roles), symbols), split)
    return scrambled(records, roles[0], data.scramble) if data.scramble else records


def read_texts(sources: list[str], symbols: bool = False) -> Iterator[str]:
    """All texts of files (in pieces), the column `text` of rows, the training part of built-in sets."""
    data = DataSettings(train=sources, valid=[])
    return (record.fields["text"] for record in read(data, "train", symbols=symbols))


def size(data: DataSettings, split: Split) -> int | None:
    """The bytes of text to come, about; None where that cannot be known without reading them."""
    if split == "valid" and data.valid is None:
        return None
    sizes = [None if isinstance(source, str) else plain_size(source, data) for source in sources(data, split)]
    return None if None in sizes else sum(one or 0 for one in sizes)


def is_small(data: DataSettings, split: Split) -> bool:
    """Whether a split is a few files of its own that are read and encoded faster than the cache is asked for them.

    That is what people type, and most files that a run is used on. A part that is held out of a file never is: all of
    the file has to be read to find it.
    """
    if split == "train" or data.valid is None:
        return False
    files = [source for source in sources(data, split) if not isinstance(source, str)]
    if len(files) < len(sources(data, split)):  # built-in sets are made, not read
        return False
    paths = [path for file in files for path in (file.paths if isinstance(file, Aligned) else [file])]
    # as they are, then unpacked: a large .gz file is not read for this
    return sum(path.stat().st_size for path in paths) <= SMALL and sum(map(bytes_in, files)) <= SMALL


def described(data: DataSettings, split: Split) -> str:
    """The sources of a split in a few words."""
    own = data.valid is not None and split == "valid"
    names = data.valid if own and data.valid is not None else data.train
    listed = [names] if isinstance(names, str) else names
    rest = f" and {len(listed) - 2} more" if len(listed) > 2 else ""
    held_out = " (held out)" if split == "valid" and not own else ""
    return ", ".join(listed[:2]) + rest + held_out


def fingerprint(data: DataSettings, split: Split) -> str:
    """sha256 of all that decides what `read` gives: contents of files, and the settings that matter."""
    whole: list[object] = [VERSION, split, data.documents, sorted(data.columns.items())]
    # with held-out data of its own, a file is read whole; else one part of it is
    whole.append(["held out", data.hold_out] if data.valid is None else "whole")
    if data.scramble:
        whole.append(["scramble", data.scramble])
    for source in sources(data, split):
        if isinstance(source, str):
            owner = synthetic if synthetic.is_synthetic(source) else builtin
            whole.append([source, owner.content_hash(source)])
        else:
            paths = source.paths if isinstance(source, Aligned) else [source]
            whole.append([format_in(source, data), *map(_digest_now, paths)])
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def cache_key(data: DataSettings, split: Split, *facts: object) -> str:
    """sha256 of a split's records and of what is made of them, to keep that under in the cache.

    The rule of the noise is part of it, but not of `fingerprint`, which runs have recorded.
    """
    noise = [["noise", RULE]] if data.scramble else []
    return hashlib.sha256(json.dumps([fingerprint(data, split), *noise, *facts], sort_keys=True).encode()).hexdigest()


def _digest_now(path: Path) -> str:
    facts = path.stat()
    return _digest(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=10_000)
def _digest(path: Path, size: int, changed: int) -> str:
    """sha256 of a file's contents, read once in a process as long as the file stays as it is."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


# ---------------------------------------------------------------------- which sources


def sources(data: DataSettings, split: Split) -> list[Source]:
    """Files, and names of built-in sets, of a split: each once."""
    valid = _resolved(data.valid, data) if data.valid is not None else {}
    if split == "valid" and data.valid is not None:
        return list(valid.values())
    found = _resolved(data.train, data)
    if not found:
        raise DataError("data.train is an empty list", hint="name a file, a folder, a pattern or a built-in data set")
    left = [source for key, source in found.items() if isinstance(source, str) or key not in valid]
    if not left:
        where = ", ".join(str(source) for source in found.values())
        raise DataError(
            "train and valid are the same files", where=where, hint="leave data.valid out to hold out a part"
        )
    return left


def _resolved(names: str | list[str], data: DataSettings) -> dict[Path | str, Source]:
    """By identity, so that two names of one file are one."""
    found: dict[Path | str, Source] = {}
    for name in [names] if isinstance(names, str) else names:
        if builtin.is_builtin(name) or synthetic.is_synthetic(name):
            found[name] = name
        else:
            for file in _found(name, data):
                found.setdefault((file.stem if isinstance(file, Aligned) else file).resolve(), file)
    return found


def _found(name: str, data: DataSettings) -> Sequence[Path | Aligned]:
    if not name:  # as a path it would be the folder one is in
        raise DataError("an empty name for data", hint="name a file, a folder, a pattern or a built-in data set")
    try:
        if data.format in ("auto", "aligned") and (aligned := find_aligned(name, data)):
            return aligned
        hint = similar_files(name)
        if data.format == "aligned":
            raise DataError(f"no aligned files '{name}'", hint=hint or "data.columns should have their suffixes")
        if hint:
            raise DataError(f"no file or folder '{name}'", hint=hint)
        return find_files(name, also=[*builtin.TEXTS, *synthetic.SETS])
    except OSError as error:  # a name too long for a file, a folder that may not be looked into
        raise DataError(f"cannot be read ({error.strerror})", where=name[:80], hint="check the path") from None


# ---------------------------------------------------------------------- records of sources


def _chain(sources: list[Source], asked: Asked, split: Split) -> Iterator[Record]:
    files = [source for source in sources if not isinstance(source, str)]
    if files:
        yield from _of_all(files, asked) if asked.data.valid is not None else _held_out(files, asked, split)
    for name in sources:
        if isinstance(name, str):
            if synthetic.is_synthetic(name):
                raise DataError(f"'{name}' is series of numbers, no text", hint="task.kind=forecasting reads them")
            for document in builtin.documents(name, split):
                yield from _of_document(document, name, asked)


def _of_document(document: Document, name: str, asked: Asked) -> Iterator[Record]:
    """The fields of a built-in set by role; where one role is asked for that it has no field for, its text."""
    chosen = {role: str(asked.data.columns.get(role, role)) for role in asked.roles}
    if len(chosen) == 1 and document.fields.keys().isdisjoint(chosen) and chosen.keys().isdisjoint(asked.data.columns):
        chosen = dict.fromkeys(chosen, "text")
    for role, field in chosen.items():
        if field not in document.fields:
            fields = ", ".join(document.fields)
            hint = f"it has {fields}: choose with data.columns.{role}"
            raise DataError(f"'{name}' cannot give {' and '.join(asked.roles)}", hint=hint)
    place = f"{name}:{document.name}"
    if list(chosen.values()) == ["text"]:
        yield from text_records([Piece(document.fields["text"], 1, ends=True)], place, asked)
    else:
        yield Record({role: document.fields[field] for role, field in chosen.items()}, place, 1)


def _of_all(files: Files, asked: Asked) -> Iterator[Record]:
    for path in files:
        yield from records_of(path, asked)


# ---------------------------------------------------------------------- holding out


def _held_out(files: Files, asked: Asked, split: Split) -> Iterator[Record]:
    if _few_texts(files, asked.data):
        return _ends_of_texts(files, asked, split)
    return _spread(files, asked, split)


def _few_texts(files: Files, data: DataSettings) -> bool:
    """Whether all of them can be cut anywhere, and are too few documents to hold out whole ones."""
    documents = 0
    for path in files:
        found = texts_in(path, data, FEWEST_DOCUMENTS)
        if found is None or (documents := documents + found) >= FEWEST_DOCUMENTS:
            return False
    return True


def _ends_of_texts(files: Files, asked: Asked, split: Split) -> Iterator[Record]:
    """Each text up to its cut, or after it; a text too short to be cut is all train."""
    share = _share(files, asked.data)
    cuts = [cut_of(path, asked.data, share) if isinstance(path, Path) else 0 for path in files]
    if not any(cuts):
        for _ in _of_all(files, asked):  # a file that is empty or no text at all has a better message
            pass
        raise _too_little(files)
    for path, cut in zip(files, cuts, strict=True):
        if split == "train":
            yield from records_of(path, asked, stop=cut or None)
        elif cut:
            yield from records_of(path, asked, start=cut)


def _spread(files: Files, asked: Asked, split: Split) -> Iterator[Record]:
    limit = _limit(_of_all(files, asked), _share(files, asked.data), files)
    document = 0
    for record in _of_all(files, asked):
        if (_hash(document) < limit) == (split == "valid"):
            yield record
        document += record.ends


def _share(files: Files, data: DataSettings) -> float:
    """As asked for; or a twentieth, and of large data no more than an evaluation needs."""
    return data.hold_out or min(HELD_OUT, MOST_HELD_OUT / max(1, sum(map(bytes_in, files))))


def _limit(records: Iterable[Record], share: float, files: Files) -> int:
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


def _too_little(files: Files) -> DataError:
    names = ", ".join(str(file) for file in files[:3]) + (", ..." if len(files) > 3 else "")
    return DataError("too little data to hold out a part of it", where=names, hint="give data.valid")
