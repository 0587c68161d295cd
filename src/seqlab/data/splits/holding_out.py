"""Decides by content which part of the files is held out when `valid` is not given.

A record is held out if the hash of its content is below a threshold. The same record is therefore always on the same
side, and rows inserted, removed or shuffled later never move a training record to the held-out side. With fewer than 20
plain texts (or long arrays or sequences), parts from all over them are held out instead of whole ones: paragraphs, or
lines if there are few paragraphs, or blocks if there are few lines.

The rule and the threshold are chosen once, from the data, and recorded in the run: `data.hold_out_by`,
`data.hold_out_below`. Runs of earlier versions have the rule `number`: documents by number or, with few texts, their
ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal, cast

import numpy as np

from seqlab.data.formats.aligned import Aligned
from seqlab.data.formats.contents import Asked, bytes_in, cut_of, records_of, texts_in
from seqlab.data.progress import bytes_of, readable_size
from seqlab.data.records import Record
from seqlab.data.splits.units import PARAGRAPH_END, Unit, cutter, digest, limit
from seqlab.errors import DataError
from seqlab.recipe import DataSettings, HoldOutBy

Split = Literal["train", "valid"]
Files = Sequence[Path | Aligned]
FEWEST_DOCUMENTS = 20
HELD_OUT = 0.05
MOST_HELD_OUT = 250_000
"""The most bytes to hold out by default, so that an evaluation does not cost more than the training."""
MANY = 100_000
"""Up to this many units, the threshold is tuned to the requested share; with more, the share itself is accurate
enough."""


@dataclass(frozen=True)
class HeldOut:
    """How a part was chosen, and its size in bytes of text. Nothing is counted for the rule `number`."""

    by: HoldOutBy
    below: float | None = None
    held: int = 0
    units: int = 0
    held_size: int = 0
    size: int = 0
    ends: bool = False
    """Whether the rule `number` holds out the ends of texts, too few to hold out whole ones."""
    alike: bool = False
    """Whether that rule was chosen because too much of the content is repeated."""

    def settled(self, data: DataSettings) -> DataSettings:
        """Return the settings with this choice filled in."""
        return data.model_copy(update={"hold_out_by": self.by, "hold_out_below": self.below})

    @property
    def count(self) -> str:
        """3 of 60 paragraphs"""
        return f"{self.held:,} of {self.units:,} {'record' if self.by == 'document' else self.by}s"

    def __str__(self) -> str:
        """3 of 60 paragraphs (1.2 of 24.8 kB), spread over the text"""
        if self.by == "number":
            chosen = "the end of each text" if self.ends else "records by number"
            return (
                f"{chosen}: the data repeat themselves, so the training data contain the same" if self.alike else chosen
            )
        (held, held_unit), (size, unit) = (readable_size(size).split() for size in (self.held_size, self.size))
        sizes = f"{held} of {size} {unit}" if held_unit == unit else f"{held} {held_unit} of {size} {unit}"
        return f"{self.count} ({sizes})" + ("" if self.by == "document" else ", spread over the text")


def part_of(files: Files, asked: Asked, split: Split) -> Iterator[Record]:
    """Yield the records of one side, by the rule in the settings; an empty side is an error."""
    by, below, none = asked.data.hold_out_by, asked.data.hold_out_below, True
    if by == "number":
        records = _by_number(files, asked, split)
    else:
        assert below is not None, "chosen before"
        if by == "document":
            records = _documents(_of_all(files, asked), asked.answers, limit(below), split)
        else:
            _check_cuttable(files, asked.data)
            records = _parts_of_texts(_of_all(files, asked), asked, limit(below), split)
    for record in records:
        none = False
        yield record
    if none and by != "number":
        raise _nothing(files, asked.data, split)


def content(record: Record, answers: Sequence[str]) -> str:
    """Return the content that identifies a record: its texts, without the answers, joined with their lengths."""
    texts = [text for role, text in sorted(record.fields.items()) if role not in answers]
    if len(texts) == 1:
        return texts[0]
    return "".join(f"{len(text)}:{text}" for text in map(str.strip, texts or record.fields.values()))


def _of_all(files: Files, asked: Asked) -> Iterator[Record]:
    for path in files:
        yield from records_of(path, asked)


def _documents(records: Iterable[Record], answers: Sequence[str], below: bytes, split: Split) -> Iterator[Record]:
    """Yield the documents of one side; all pieces of a long document follow its first piece."""
    fresh, chosen = True, False
    for record in records:
        if fresh:
            chosen = (digest(content(record, answers)) < below) == (split == "valid")
        if chosen:
            yield record
        fresh = record.ends


def _parts_of_texts(records: Iterable[Record], asked: Asked, below: bytes, split: Split) -> Iterator[Record]:
    """Yield the parts of texts on one side, adjacent units joined; the last part of each text `ends`."""
    role, fresh, line = asked.roles[0], True, 1
    before: Record | None = None  # held back until it is known whether more of its text follows
    for record, units in _cut(records, asked):
        line = record.line if fresh else line
        for held, run in groupby(units, lambda unit: digest(unit) < below):
            text = "".join(run)
            if held == (split == "valid"):
                if before is not None:
                    yield before
                before = replace(record, fields={role: text}, line=line, ends=False)
            line += text.count("\n" if record.counted == "line" else " ")
        fresh = record.ends
        if fresh and before is not None:
            yield replace(before, ends=True)
            before = None


def _cut(records: Iterable[Record], asked: Asked) -> Iterator[tuple[Record, list[str]]]:
    """Yield each record, a piece of text, with the units that end in it."""
    role, cut = asked.roles[0], cutter(cast(Unit, asked.data.hold_out_by), asked.symbols)
    for record in records:
        units = cut.push(record.fields[role])
        yield record, units + (cut.finish() if record.ends else [])


# ---------------------------------------------------------------------- choosing


def choose(files: Files, asked: Asked) -> HeldOut:
    """Choose the rule and threshold that the settings leave open. Reads all of the files, some of them twice.

    Of the rules that suit a text, the first one that holds out about the requested share is chosen. A repetitive text
    has none, since all its units fall on one side; its end is held out instead.
    """
    data, share = asked.data, _share(files, asked.data)
    if data.hold_out_by == "number":
        return HeldOut("number", ends=_few_texts(files, data))
    cut_up = data.hold_out_by not in (None, "document") or (data.hold_out_by is None and _few_texts(files, data))
    if cut_up:
        _check_cuttable(files, data)
        if data.hold_out_below is None and not any(
            cut_of(path, data, share) for path in files if isinstance(path, Path)
        ):
            for _ in _of_all(files, asked):  # an empty or binary file raises a better message here
                pass
            raise _too_little(files)
    if data.hold_out_by is not None:
        rules: Sequence[HoldOutBy] = [data.hold_out_by]
    else:
        rules = ways(files, asked) if cut_up else ["document"]
    for by in rules:
        found = _Tally(by, data.hold_out_below or share).filled(files, asked)
        if data.hold_out_below is not None:
            return found.result(data.hold_out_below)
        if by == "document" and found.units < FEWEST_DOCUMENTS:
            raise _too_little(files)
        if chosen := found.chosen(any_share=data.hold_out_by is not None):
            return chosen
    if data.hold_out_by is not None:
        what = f"its {data.hold_out_by}s are all the same"
        raise DataError(what, where=_names(files), hint="omit data.hold_out_by, or set data.valid")
    return HeldOut("number", ends=cut_up, alike=True)


def ways(files: Files, asked: Asked) -> list[Unit]:
    """Return the units that a few texts can be cut into, the most natural ones first."""
    role, paragraphs, lines = asked.only_role(_names(files)), 0, 0
    for record in _of_all(files, asked):
        text = record.fields[role]
        paragraphs += sum(1 for _ in PARAGRAPH_END.finditer(text)) + record.ends
        lines += text.count("\n") + record.ends
        if paragraphs >= FEWEST_DOCUMENTS:
            break
    counts: dict[Unit, int] = {"paragraph": paragraphs, "line": lines}
    return [*(unit for unit, count in counts.items() if count >= FEWEST_DOCUMENTS), "block", "snippet"]


class _Tally:
    """Counts what a threshold holds out; for up to MANY units, keeps their hashes to choose a better threshold."""

    def __init__(self, by: HoldOutBy, share: float) -> None:
        self.by, self.share, self.limit = by, share, limit(share)
        self.units = self.held = self.size = self.held_size = 0
        self.digests: list[bytes] = []
        self.sizes: list[int] = []

    def filled(self, files: Files, asked: Asked) -> _Tally:
        records = _of_all(files, asked)
        if self.by == "document":
            fresh = True
            for record in records:
                size = sum(map(bytes_of, record.fields.values()))
                if fresh:
                    self._add(digest(content(record, asked.answers)), size)
                else:
                    self._more(size)
                fresh = record.ends
            return self
        by_unit = replace(asked, data=asked.data.model_copy(update={"hold_out_by": self.by}))
        for _, units in _cut(records, by_unit):
            for unit in units:
                self._add(digest(unit), bytes_of(unit))
        return self

    def _add(self, found: bytes, size: int) -> None:
        self.units += 1
        self.last = found < self.limit
        self.held += self.last
        if self.units <= MANY:
            self.digests.append(found)
            self.sizes.append(0)
        self._more(size)

    def _more(self, size: int) -> None:
        self.size += size
        self.held_size += size if self.last else 0
        if self.units <= MANY:
            self.sizes[-1] += size

    def result(self, below: float) -> HeldOut:
        """Return the counts for a threshold; any other than the initial share needs the hashes."""
        if below == self.share:
            return HeldOut(self.by, below, self.held, self.units, self.held_size, self.size)
        inside = [size for found, size in zip(self.digests, self.sizes, strict=True) if found < limit(below)]
        return HeldOut(self.by, below, len(inside), self.units, sum(inside), self.size)

    def chosen(self, any_share: bool) -> HeldOut | None:
        """Choose a threshold that holds out about the requested share: of records by number, of texts by size.

        Return None if no threshold does; with `any_share`, any share is accepted that leaves neither side empty.
        """
        if self.units > MANY:
            return self.result(self.share) if 0 < self.held < self.units else None
        hashes = np.frombuffer(b"".join(self.digests), ">u8").astype(np.uint64)
        different, which = np.unique(hashes, return_inverse=True)
        if len(different) < 2:
            return None
        weights = np.bincount(which, None if self.by == "document" else self.sizes)
        sums = np.cumsum(weights)[:-1] / weights.sum()  # held out: the first one, the first two, ..., all but one
        below, place = self.share, int(np.searchsorted(different, np.uint64(int.from_bytes(self.limit, "big")))) - 1
        if not (0 <= place < len(sums) and abs(sums[place] - self.share) <= self.share / 4):
            place = int(np.argmin(np.abs(sums - self.share)))
            below = _between(int(different[place]), int(different[place + 1]))
        fits = self.share / 3 <= sums[place] <= 1.5 * self.share + 0.05
        enough = self.units >= FEWEST_DOCUMENTS or self.by == "snippet"
        return self.result(below) if any_share or (fits and enough) else None


def _between(low: int, high: int) -> float:
    """Return a threshold with few digits that holds out the lower hash but not the higher one."""
    middle = (low + (high - low) / 2) / 2**64
    for digits in range(2, 20):
        if low < int(round(middle, digits) * 2**64) <= high:
            return round(middle, digits)
    return middle


def _few_texts(files: Files, data: DataSettings) -> bool:
    """Return True if all files can be cut anywhere and hold too few documents to hold out whole ones."""
    documents = 0
    for path in files:
        found = texts_in(path, data, FEWEST_DOCUMENTS)
        if found is None or (documents := documents + found) >= FEWEST_DOCUMENTS:
            return False
    return True


def _check_cuttable(files: Files, data: DataSettings) -> None:
    for path in files:
        if texts_in(path, data, 1) is None:
            what, hint = f"its records cannot be cut into {data.hold_out_by}s", "set data.hold_out_by=document"
            raise DataError(what, where=str(path), hint=hint)


def _share(files: Files, data: DataSettings) -> float:
    """Return the share to hold out: as requested, or 5 %, limited to what an evaluation of large data needs."""
    return data.hold_out or float(f"{_default_share(files):.4g}")


def _default_share(files: Files) -> float:
    return min(HELD_OUT, MOST_HELD_OUT / max(1, sum(map(bytes_in, files))))


# ---------------------------------------------------------------------- by number, as in earlier versions


def _by_number(files: Files, asked: Asked, split: Split) -> Iterator[Record]:
    share = asked.data.hold_out or _default_share(files)
    if _few_texts(files, asked.data):
        return _ends_of_texts(files, asked, split, share)
    return _spread(files, asked, split, share)


def _ends_of_texts(files: Files, asked: Asked, split: Split, share: float) -> Iterator[Record]:
    """Yield each text up to its cut, or after it; a text too short to cut is all training data."""
    cuts = [cut_of(path, asked.data, share) if isinstance(path, Path) else 0 for path in files]
    if not any(cuts):
        for _ in _of_all(files, asked):  # an empty or binary file raises a better message here
            pass
        raise _too_little(files)
    for path, cut in zip(files, cuts, strict=True):
        if split == "train":
            yield from records_of(path, asked, stop=cut or None)
        elif cut:
            yield from records_of(path, asked, start=cut)


def _spread(files: Files, asked: Asked, split: Split, share: float) -> Iterator[Record]:
    highest = _limit(_of_all(files, asked), share, files)
    document = 0
    for record in _of_all(files, asked):
        if (_hash(document) < highest) == (split == "valid"):
            yield record
        document += record.ends


def _limit(records: Iterable[Record], share: float, files: Files) -> int:
    """Return the limit below which a document's hash is held out: the share, or one that leaves neither split empty.

    Reads only far enough to find a document of each split.
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


# ---------------------------------------------------------------------- faults


def _names(files: Files) -> str:
    return ", ".join(str(file) for file in files[:3]) + (", ..." if len(files) > 3 else "")


def _too_little(files: Files) -> DataError:
    return DataError("too little data to hold out a part", where=_names(files), hint="set data.valid")


def _nothing(files: Files, data: DataSettings, split: Split) -> DataError:
    what = "nothing is left to train on" if split == "train" else "nothing is held out"
    what += f" by data.hold_out_by={data.hold_out_by} and data.hold_out_below={data.hold_out_below}"
    return DataError(what, where=_names(files), hint="give held-out data with data.valid or --data")
