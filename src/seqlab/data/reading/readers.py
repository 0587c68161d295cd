"""Turns sources of every kind into records.

A source is a file, a folder or a pattern, any of them gzipped (`.gz`), the common stem of aligned files, or the name of
a built-in data set. A word without a separator or a suffix that names a built-in set (`python-docs`) always means that
set; to read a file or folder of that name, write `./python-docs`. A file named by several sources is read once, and
files in `valid` are left out of `train`.

`data/formats/contents.py` lists the formats and what counts as a record in each.

Without `valid`, the content decides what is held out: `data/splits/holding_out.py`. Built-in sets have a fixed held-out
part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

from seqlab.data.builtin import sets, synthetic
from seqlab.data.formats.aligned import Aligned, find_aligned, similar_files
from seqlab.data.formats.contents import ANSWERS, Asked, bytes_in, format_in, plain_size, records_of, text_records
from seqlab.data.formats.files import BLOCK, FilePiece, find_files, lines, opened, pieces
from seqlab.data.progress import work
from seqlab.data.reading.noise import RULE, scrambled
from seqlab.data.records import Document, Record
from seqlab.data.splits.holding_out import FEWEST_DOCUMENTS as FEWEST_DOCUMENTS
from seqlab.data.splits.holding_out import HeldOut, Split, choose, part_of
from seqlab.data.storage.cache import EntryLock, kept
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

Source = Path | Aligned | str
"""A file, aligned files, or a built-in set."""
QUICK = 1 << 22
"""Up to this many bytes, finding the held-out part again is faster than the cache."""
SMALL = 1 << 18
"""Up to this many bytes, files are not worth a cache entry."""
VERSION = 3
"""Part of every fingerprint: raise this when the same files would yield different records."""
RULES = 1
"""Part of the fingerprints of files split by content: raise this when the held-out part would differ."""


def read(
    data: DataSettings,
    split: Split,
    roles: Sequence[str] = ("text",),
    symbols: bool = False,
    answers: Sequence[str] = ANSWERS,
) -> Iterator[Record]:
    """Yield the records of a split, with a field for every role: first those of files, then those of built-in sets.

    train and valid never share a record, and without `valid` they add up to all of the data. The content of all roles
    but `answers` decides which is which, so readers of both must name the same roles. With `symbols`, lists and arrays
    are read too, as text with blanks between symbols. `data.scramble` applies to the first role's field, which the
    model reads.
    """
    asked = Asked(data, tuple(roles), symbols, tuple(answers))
    chosen = held_out(asked) if _open(data) else None
    asked = asked if chosen is None else replace(asked, data=chosen.settled(data))
    records = _chain(sources(data, split), asked, split)
    return scrambled(records, roles[0], data.scramble) if data.scramble else records


def as_given(data: DataSettings) -> DataSettings:
    """Return settings for examples to be answered: every line counts, even an empty one, and nothing is scrambled."""
    return data.model_copy(update={"empty_lines": True, "scramble": 0.0})


def empty_lines(data: DataSettings, split: Split) -> int:
    """Count the empty lines left out of plain texts.

    When part of a file is held out, the whole file is counted: an empty line belongs to neither part.
    """
    if data.documents != "line" or data.empty_lines:
        return 0
    count = 0
    for source in sources(data, split):
        if isinstance(source, Path) and format_in(source, data) == "txt":
            facts = source.stat()
            count += _empty_lines(source, facts.st_size, facts.st_mtime_ns)
        elif isinstance(source, str) and sets.is_builtin(source):
            texts = (document.fields.get("text", "") for document in sets.documents(source, split))
            count += sum(not line.strip() for text in texts for line in text.removesuffix("\n").split("\n"))
    return count


@lru_cache(maxsize=10_000)
def _empty_lines(path: Path, size: int, changed: int) -> int:
    """Count empty lines once per process, as long as the file does not change."""
    return sum(not line.strip() for _, line in lines(pieces(path), str(path)))


def held_out(asked: Asked) -> HeldOut | None:
    """Determine what is held out of files, by the rule and threshold in the settings, or by those chosen here.

    None if `valid` is given or all sources are built-in sets. For large files, the result is cached.
    """
    data = asked.data
    if data.valid is not None:
        return None
    files = [source for source in sources(data, "train") if not isinstance(source, str)]
    if not files:
        return None
    if sum(map(bytes_in, files)) <= QUICK:
        return choose(files, asked)

    def build(room: Path) -> None:
        about = f"what is held out of {described(data, 'train')}"
        with work(f"choosing {about}") as progress:
            chosen = choose(files, asked)
            progress(chosen.size)
        (room / "meta.json").write_text(json.dumps({"about": about, "found": asdict(chosen)}), encoding="utf-8")

    key = hashlib.sha256(
        json.dumps([fingerprint(data, "train"), asked.roles, asked.symbols, asked.answers]).encode()
    ).hexdigest()
    return kept("splits", key, _kept_choice, build)


def _kept_choice(folder: Path, lock: EntryLock) -> HeldOut | None:
    try:
        return HeldOut(**json.loads((folder / "meta.json").read_text(encoding="utf-8"))["found"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _open(data: DataSettings) -> bool:
    """Return True if the rule or the threshold still has to be chosen."""
    by_number = data.hold_out_by == "number"
    return data.valid is None and not by_number and None in (data.hold_out_by, data.hold_out_below)


def read_texts(sources: list[str], symbols: bool = False) -> Iterator[str]:
    """Yield all texts of files (in pieces), of the column `text` of rows, and of the training part of built-in sets."""
    data = DataSettings(train=sources, valid=[])
    return (record.fields["text"] for record in read(data, "train", symbols=symbols))


def size(data: DataSettings, split: Split) -> int | None:
    """Return the approximate size of a split in bytes of text; None if it cannot be known without reading the data."""
    if split == "valid" and data.valid is None:
        return None
    sizes = [None if isinstance(source, str) else plain_size(source, data) for source in sources(data, split)]
    return None if None in sizes else sum(one or 0 for one in sizes)


def is_small(data: DataSettings, split: Split) -> bool:
    """Return True if a split is a few separate files that are faster to read and encode than to look up in the cache.

    This holds for typed input and for most files that a run is used on. It never holds for a part held out of a file,
    since the whole file must be read to find it.
    """
    if split == "train" or data.valid is None:
        return False
    files = [source for source in sources(data, split) if not isinstance(source, str)]
    if len(files) < len(sources(data, split)):  # built-in sets are generated, not read
        return False
    paths = [path for file in files for path in (file.paths if isinstance(file, Aligned) else [file])]
    # first as stored, then unpacked: a large .gz file is not read for this
    return sum(path.stat().st_size for path in paths) <= SMALL and sum(map(bytes_in, files)) <= SMALL


def described(data: DataSettings, split: Split) -> str:
    """Return a short description of the sources of a split."""
    own = data.valid is not None and split == "valid"
    names = data.valid if own and data.valid is not None else data.train
    listed = [names] if isinstance(names, str) else names
    rest = f" and {len(listed) - 2} more" if len(listed) > 2 else ""
    held_out = " (held out)" if split == "valid" and not own else ""
    return ", ".join(listed[:2]) + rest + held_out


def fingerprint(data: DataSettings, split: Split) -> str:
    """Return a sha256 of everything that determines what `read` yields: file contents and the relevant settings."""
    found = sources(data, split)
    whole: list[object] = [VERSION, split, data.documents, sorted(data.columns.items())]
    # with separate held-out data, files are read whole; otherwise, only one part is
    whole.append(_part(data, found) if data.valid is None else "whole")
    if data.scramble:
        whole.append(["scramble", data.scramble])
    if data.empty_lines:
        whole.append("empty lines")
    for source in found:
        if isinstance(source, str):
            owner = synthetic if synthetic.is_synthetic(source) else sets
            whole.append([source, owner.content_hash(source)])
        else:
            paths = source.paths if isinstance(source, Aligned) else [source]
            whole.append([format_in(source, data), *map(_digest_now, paths)])
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _part(data: DataSettings, found: list[Source]) -> list[object]:
    """Return everything that determines which part of the files is held out; built-in sets have a fixed part."""
    if data.hold_out_by == "number" or all(isinstance(source, str) for source in found):
        return ["held out", data.hold_out]
    asked_for = data.hold_out if _open(data) else None
    return ["held out", asked_for, data.hold_out_by, data.hold_out_below, RULES]


def both_fingerprints(data: DataSettings) -> str:
    """Return the fingerprints of the training and held-out data, which tell whether a run's data have changed."""
    trained = fingerprint(data, "train")[:16] if data.train else "none"  # imported
    return f"{trained}-{fingerprint(data, 'valid')[:16]}"


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
    """Return the files and built-in sets of a split, each once."""
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
            "data.train and data.valid are the same files", where=where, hint="omit data.valid to hold out a part"
        )
    return left


def _resolved(names: str | list[str], data: DataSettings) -> dict[Path | str, Source]:
    """Return the sources by identity, so that two names of one file count once."""
    found: dict[Path | str, Source] = {}
    for name in [names] if isinstance(names, str) else names:
        if sets.is_builtin(name) or synthetic.is_synthetic(name):
            found[name] = name
        else:
            for file in _found(name, data):
                found.setdefault((file.stem if isinstance(file, Aligned) else file).resolve(), file)
    return found


def _found(name: str, data: DataSettings) -> Sequence[Path | Aligned]:
    if not name:  # as a path, it would be the current folder
        raise DataError(
            "a data source has an empty name", hint="name a file, a folder, a pattern or a built-in data set"
        )
    try:
        if data.format in ("auto", "aligned") and (aligned := find_aligned(name, data)):
            return aligned
        hint = similar_files(name)
        if data.format == "aligned":
            raise DataError(f"no aligned files '{name}'", hint=hint or "give their suffixes in data.columns")
        if hint:
            raise DataError(f"no file or folder '{name}'", hint=hint)
        return find_files(name, also=[*sets.TEXTS, *synthetic.SETS])
    except OSError as error:  # a name too long for a file, or a folder without read permission
        raise DataError(f"cannot be read ({error.strerror})", where=name[:80], hint="check the path") from None


# ---------------------------------------------------------------------- records of sources


def _chain(sources: list[Source], asked: Asked, split: Split) -> Iterator[Record]:
    files = [source for source in sources if not isinstance(source, str)]
    if files:
        if asked.data.valid is None:
            yield from part_of(files, asked, split)
        else:
            for path in files:
                yield from records_of(path, asked)
    for name in sources:
        if isinstance(name, str):
            if synthetic.is_synthetic(name):
                raise DataError(f"'{name}' holds numeric series, not text", hint="use task.kind=forecasting to read it")
            for document in sets.documents(name, split):
                yield from _of_document(document, name, asked)


def _of_document(document: Document, name: str, asked: Asked) -> Iterator[Record]:
    """Yield a document's fields by role; a single role without a field of its own gets the document's text."""
    chosen = {role: str(asked.data.columns.get(role, role)) for role in asked.roles}
    if len(chosen) == 1 and document.fields.keys().isdisjoint(chosen) and chosen.keys().isdisjoint(asked.data.columns):
        chosen = dict.fromkeys(chosen, "text")
    for role, field in chosen.items():
        if field not in document.fields:
            fields = ", ".join(document.fields)
            hint = f"it has {fields}: choose one with data.columns.{role}"
            raise DataError(f"'{name}' does not provide {' and '.join(asked.roles)}", hint=hint)
    place = f"{name}:{document.name}"
    if list(chosen.values()) == ["text"]:
        yield from text_records([FilePiece(document.fields["text"], 1, ends=True)], place, asked)
    else:
        yield Record({role: document.fields[field] for role, field in chosen.items()}, place, 1)
