"""Detects what makes held-out figures too good: overlap with the training data, or data that changed since training.

Separate held-out data (`data.valid`, `evaluate --data`) are compared with the training data by content: record by
record, or for whole texts paragraph by paragraph (line by line or block by block, if there are none). White space
counts only as a separator of words. Plain texts are also compared by passages, whose ends depend on the letters alone,
so that other line ends, other line lengths and missing blank lines hide nothing; the larger overlap is reported. Only
the hashes of the held-out part are kept in memory; the training data are streamed past them. Series are compared by
runs of their steps (`data/checks/series_runs.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from seqlab.data.checks.series_runs import common_steps
from seqlab.data.formats.contents import Asked, bytes_in, format_in, texts_in
from seqlab.data.progress import bytes_of, work
from seqlab.data.reading.readers import QUICK, both_fingerprints, described, fingerprint, held_out, read, sources
from seqlab.data.reading.series_splits import AskedSeries
from seqlab.data.splits.holding_out import Split, content, ways
from seqlab.data.splits.units import REACH, Blocks, Unit, cutter, digest
from seqlab.data.storage.cache import EntryLock, kept
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

MUCH = 0.05
"""Below this share of the held-out text, matches may be due to chance ("yes .")."""
ALL = 0.99
"""From this share on, nothing is left to look for."""
LARGE = 100_000_000
"""Above this many bytes of training data, evaluations on other files skip the comparison, and say so."""
PASSAGE = 256
"""Average characters of a passage, without white space."""
SHORTEST = 64
"""Shorter passages, which may be the same by chance, are left out."""
METHOD = 2
"""Part of the key of cached results: raise this when the same data would yield another result."""


Piece = Unit | Literal["record", "passage", "step"]
Reads = Asked | AskedSeries
"""What a task reads from files: records or series."""


@dataclass(frozen=True)
class Overlap:
    """How much of the held-out data is also in the training data; sizes are in bytes of text, or steps of series."""

    unit: Piece
    common: int
    units: int
    common_size: int
    size: int

    @property
    def share(self) -> float:
        return self.common_size / max(1, self.size)

    def __str__(self) -> str:
        percent = f"{100 * self.share:.0f}" if self.share >= 0.1 else f"{100 * self.share:.1g}"
        held_out = f"{self.common:,} of {self.units:,} held-out {self.unit}s"
        chance = " (so few may be due to chance)" if self.share < MUCH else ""
        of = "" if self.unit == "step" else " of the text"
        return f"{held_out} ({percent} %{of}) are also in the training data{chance}"


def overlap(train: Reads, valid: Reads) -> Overlap | None:
    """Compare the training part of one with held-out data given separately; None if no whole file is held out."""
    return None if valid.data.valid is None else measured(train, valid)


def measured(train: Reads, valid: Reads) -> Overlap | None:
    """Compare the training part of one with the held-out part of the other; None if that is of built-in sets only.

    For large data, the result is cached.
    """
    if not _has_files(valid):
        return None
    train, valid = _as_written(train), _as_written(valid)
    if _size(train, "train") + _size(valid, "valid") <= QUICK:
        return _compared(train, valid)

    def build(room: Path) -> None:
        about = f"{described(valid.data, 'valid')} compared with {described(train.data, 'train')}"
        with work(f"looking for {described(valid.data, 'valid')} in {described(train.data, 'train')}") as progress:
            found = asdict(_compared(train, valid))
            progress(_size(train, "train"))
        (room / "meta.json").write_text(json.dumps({"about": about, "found": found}), encoding="utf-8")

    prints = [fingerprint(train.data, "train"), fingerprint(valid.data, "valid")]
    facts = repr(["overlap", METHOD, *prints, *_facts(train), *_facts(valid)])
    return kept("splits", hashlib.sha256(facts.encode()).hexdigest(), _kept, build)


def _has_files(valid: Reads) -> bool:
    return not all(isinstance(source, str) for source in sources(valid.data, "valid"))


def _as_written(asked: Reads) -> Reads:
    """Return the same without noise."""
    return replace(asked, data=asked.data.model_copy(update={"scramble": 0.0}))


def _facts(asked: Reads) -> list[object]:
    """Return how the data are read."""
    return [getattr(asked, one.name) for one in fields(asked) if one.name != "data"]


def _kept(folder: Path, lock: EntryLock) -> Overlap | None:
    try:
        return Overlap(**json.loads((folder / "meta.json").read_text(encoding="utf-8"))["found"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _size(asked: Reads, split: Split) -> int:
    return sum(bytes_in(source) for source in sources(asked.data, split) if not isinstance(source, str))


def _compared(train: Reads, valid: Reads) -> Overlap:
    if isinstance(train, Asked) and isinstance(valid, Asked):
        return _texts_compared(train, valid)
    if isinstance(train, AskedSeries) and isinstance(valid, AskedSeries):
        return _series_compared(train, valid)
    return Overlap("record", 0, 0, 0, 0)  # texts and series have nothing in common


def _series_compared(train: AskedSeries, valid: AskedSeries) -> Overlap:
    known = train.parts("train")
    if valid.layout.row == "step":  # the columns of the training data are those that are read
        valid = replace(valid, layout=replace(valid.layout, columns=known.columns))
    held_out = valid.parts("valid").ordered(known.columns)
    found, own = ([part.series.values[part.first :] for part in one.parts] for one in (known, held_out))
    steps = sum(map(len, own))
    common = common_steps(found, own) if len(known.columns) == len(held_out.columns) else 0
    return Overlap("step", common, steps, common, steps)


def _texts_compared(train: Asked, valid: Asked) -> Overlap:
    unit = _unit(train, valid)
    found = _common(unit, lambda: _contents(train, "train", unit), lambda: _contents(valid, "valid", unit))
    if found.share >= ALL or not _flows(train, valid):
        return found
    passages = _common("passage", lambda: _passages(train, "train"), lambda: _passages(valid, "valid"))
    return passages if passages.share > found.share else found


def _common(unit: Piece, train: Callable[[], Iterator[str]], valid: Callable[[], Iterator[str]]) -> Overlap:
    known: dict[bytes, tuple[int, int]] = {}  # how often it is held out, and its bytes
    for text in valid():
        times, size = known.get(hashed := digest(text), (0, 0))
        known[hashed] = times + 1, size + bytes_of(text)
    found = {hashed for text in train() if (hashed := digest(text)) in known}
    units, size = (sum(column) for column in zip(*known.values(), strict=True)) if known else (0, 0)
    return Overlap(unit, sum(known[one][0] for one in found), units, sum(known[one][1] for one in found), size)


def _unit(train: Asked, valid: Asked) -> Piece:
    """Return the unit of comparison: records, unless both are whole texts; if one of them is, lines."""
    whole = [_whole_texts(train, "train"), _whole_texts(valid, "valid")]
    if all(whole):
        files = [source for source in sources(valid.data, "valid") if not isinstance(source, str)]
        return ways(files, valid)[0]
    return "line" if any(whole) else "record"


def _whole_texts(asked: Asked, split: Split) -> bool:
    data = asked.data
    return all(
        data.documents == "file" if isinstance(source, str) else texts_in(source, data, 1) is not None
        for source in sources(data, split)
    )


def _contents(asked: Asked, split: Split, unit: Piece) -> Iterator[str]:
    """Yield all units that are not blank, with single spaces between their words."""
    cut = None if unit in ("record", "passage") else cutter(cast(Unit, unit), asked.symbols)
    for record in read(asked.data, split, asked.roles, asked.symbols, asked.answers):
        if cut is None:
            texts = {role: " ".join(text.split()) for role, text in record.fields.items()}
            units = [content(replace(record, fields=texts), asked.answers)]
        else:
            pushed = cut.push(content(record, asked.answers)) + (cut.finish() if record.ends else [])
            units = [" ".join(text.split()) for text in pushed]
        yield from filter(None, units)


def _flows(train: Asked, valid: Asked) -> bool:
    """Whether the data are texts that can be compared by passages, at least one of them in plain files."""
    if train.symbols or valid.symbols or len(train.roles) > 1 or len(valid.roles) > 1:
        return False
    splits: list[tuple[Asked, Split]] = [(train, "train"), (valid, "valid")]
    return any(
        all(isinstance(source, str) or format_in(source, asked.data) == "txt" for source in sources(asked.data, split))
        for asked, split in splits
    )


def _passages(asked: Asked, split: Split) -> Iterator[str]:
    """Yield all the text, without white space, in passages cut where the letters call for it."""
    blocks = Blocks(PASSAGE, REACH)
    for record in read(asked.data, split, asked.roles, asked.symbols, asked.answers):
        yield from _long(blocks.push("".join(content(record, asked.answers).split())))
    yield from _long(blocks.finish())


def _long(passages: list[str]) -> list[str]:
    return [passage for passage in passages if len(passage) >= SHORTEST]


# ---------------------------------------------------------------------- what an evaluation should say


class Trained(NamedTuple):
    """What a model was trained on: its records or series, the beginning of their fingerprint, and by which run."""

    on: Reads
    fingerprint: str = ""
    run: str = ""
    """Another run whose weights the model began with, or contains."""


def measured_on_own(data: DataSettings, asked: Reads | None, environment: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of a run's own held-out data, and whether they have changed since training."""
    noted = {key: str(environment[key]) for key in ("held_out", "overlap", "compared") if key in environment}
    if (change := _change(data, asked, environment)) is None:
        return noted
    now = held_out(asked) if isinstance(asked, Asked) else None
    return {**noted, **({} if now is None else {"held_out": str(now)}), "changed": change}


def measured_on_other(valid: Reads, trained: Iterable[Trained]) -> dict[str, str]:
    """Return the overlaps of other data with training data, and which could not be measured (`compared`)."""
    found: dict[str, list[str]] = {}
    seen: list[Reads] = []  # several runs may have read the same
    for one in trained:
        for key, note in _noted(valid, one).items() if one.on not in seen else ():
            found.setdefault(key, []).append(note)
        seen.append(one.on)
    return {key: "; ".join(notes) for key, notes in found.items()}


def _noted(valid: Reads, trained: Trained) -> dict[str, str]:
    data = trained.on.data
    if not data.train:  # nothing was trained on
        return {}
    named, of = described(data, "train"), f" of {trained.run}" if trained.run else ""
    try:
        size = _size(trained.on, "train")
        if not size or not _has_files(valid):  # built-in sets
            return {}
        if size > LARGE:
            return {"compared": f"not compared with the training data{of}: {named} exceeds {LARGE // 10**6} MB"}
        found = measured(trained.on, valid)
        changed = not fingerprint(data, "train").startswith(trained.fingerprint)
    except DataError as error:
        reason = f"{error.where}: {error.what}" if error.where else error.what
        return {"compared": f"not compared with the training data{of}: {reason}"}
    noted = {"overlap": f"{found}{of}"} if found is not None and found.common else {}
    what = f"the training data{of} ({named}) have changed since the run was trained: compared with what they are now"
    return {**noted, "compared": what} if changed else noted


def _change(data: DataSettings, asked: Reads | None, environment: Mapping[str, Any]) -> str | None:
    """Describe how the data differ from a run's training data; None if they do not, or if nothing is known."""
    trained, _, held = str(environment.get("data", "")).rpartition("-")
    if not held:
        return None
    if data.valid is not None:
        same = fingerprint(data, "valid").startswith(held)
        return None if same else "the held-out data have changed since training"
    if both_fingerprints(data) == f"{trained}-{held}":
        return None
    what = "the data have changed since training"
    if all(isinstance(source, str) for source in sources(data, "train")):
        return f"{what}: these built-in sets depend on the Python version"
    if data.hold_out_by == "number":
        what = f"{what}, and this run holds out records by number"
        return f"{what}: some that it was trained on may now be held out"
    if not isinstance(asked, Asked):
        return f"{what}: some of what is held out now may have been trained on"
    now, then = held_out(asked), str(environment.get("held_out", "")).partition(" (")[0]
    count = "" if now is None else f": {now.count} are held out now" + (f", {then} before" if then else "")
    return f"{what}{count}; what is held out is chosen by content, so none of it was trained on, unless it was edited"
