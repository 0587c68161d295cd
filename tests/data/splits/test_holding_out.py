"""What is held out is decided by content: one contract for all formats and all units."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.data.formats import files
from seqlab.data.formats.contents import Asked
from seqlab.data.reading import readers
from seqlab.data.reading.readers import fingerprint, held_out, read
from seqlab.data.splits.holding_out import HeldOut
from seqlab.data.splits.units import AVERAGE, Unit, cutter, digest, limit
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

UNITS: list[Unit] = ["paragraph", "line", "block", "snippet"]
chance = random.Random(7)
WORDS = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyzäß", k=chance.randint(1, 9))) for _ in range(500)]


def sentences(count: int, seed: int = 0) -> list[str]:
    """All different."""
    own = random.Random(seed)
    return [f"{number} {' '.join(own.choices(WORDS, k=own.randint(3, 20)))}" for number in range(count)]


@dataclass
class Case:
    """Records, and how they become a file; where texts are cut up, records are what they are cut into."""

    write: Callable[[Path, list[str]], None]
    by: str
    name: str = "a.txt"
    roles: tuple[str, ...] = ("text",)
    symbols: bool = False
    documents: str = "file"
    columns: dict[str, str] | None = None
    records: Callable[[int], list[str]] = sentences

    def data(self, folder: Path, records: list[str], **keys) -> DataSettings:
        self.write(folder / self.name, records)
        name = folder / (self.name if self.columns is None else Path(self.name).stem)
        return DataSettings(train=str(name), documents=self.documents, columns=self.columns or {}, **keys)

    def read(self, data: DataSettings, split: readers.Split) -> list[str]:
        return [record.fields[self.roles[0]] for record in read(data, split, self.roles, self.symbols)]

    def chosen(self, data: DataSettings) -> HeldOut:
        found = held_out(Asked(data, self.roles, self.symbols))
        assert found is not None
        return found


def joined(end: str, begin: str = "") -> Callable[[Path, list[str]], None]:
    return lambda path, records: path.write_text(begin + "".join(record + end for record in records), encoding="utf-8")


def packed(path: Path, records: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(f"{record}\n\n" for record in records).encode()))


def conll(path: Path, records: list[str]) -> None:
    path.write_text("".join("".join(f"{word} O\n" for word in one.split()) + "\n" for one in records), encoding="utf-8")


def aligned(path: Path, records: list[str]) -> None:
    joined("\n")(path, records)
    joined("\n")(path.with_suffix(".en"), [record.upper() for record in records])


def fasta(path: Path, records: list[str]) -> None:
    path.write_text("".join(f">{number}\n{one}\n" for number, one in enumerate(records)), encoding="utf-8")


def genes(count: int) -> list[str]:
    own = random.Random(5)
    return ["".join(own.choices("ACGT", k=60)) for _ in range(count)]


def quoted(path: Path, records: list[str]) -> None:
    path.write_text("text,label\n" + "".join(f'"{one}",{len(one) % 3}\n' for one in records), encoding="utf-8")


def objects(path: Path, records: list[str]) -> None:
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in records), encoding="utf-8")


def array(path: Path, records: list[str]) -> None:
    np.save(path, np.array([ord(character) for record in records for character in f"{record} "], np.int32))


def table(path: Path, records: list[str]) -> None:
    np.save(path, np.array([[int(record.split()[0]), len(record)] for record in records], np.int32))


ROWS = {
    "csv": Case(quoted, "document", "a.csv", ("text", "label")),
    "jsonl": Case(objects, "document", "a.jsonl"),
    "lines": Case(joined("\n"), "document", documents="line"),
    "paragraphs": Case(joined("\n\n"), "document", documents="paragraph"),
    "conll": Case(conll, "document", "a.conll", ("text", "tags")),
    "aligned": Case(aligned, "document", "a.de", ("source", "target"), columns={"source": "de", "target": "en"}),
    "array of rows": Case(table, "document", "a.npy", symbols=True),
    "many sequences": Case(fasta, "document", "a.fasta", records=genes),
}
TEXTS = {
    "text of paragraphs": Case(joined("\n \n"), "paragraph"),
    "packed text": Case(packed, "paragraph", "a.txt.gz"),
    "text of lines": Case(joined("\n"), "line"),
    "Windows text": Case(joined("\r\n\r\n", "\r\n"), "paragraph"),
    "one line": Case(joined(" "), "block"),
    "symbols": Case(joined(","), "block", symbols=True, records=lambda count: " ".join(sentences(count)).split()),
    "no blanks": Case(joined(""), "block", records=lambda count: [one.replace(" ", "") for one in sentences(count)]),
    "long array": Case(array, "block", "a.npy", symbols=True),
    "one sequence": Case(joined("\n", ">one\n"), "block", "a.fasta", records=genes),
}
CASES = ROWS | TEXTS


@pytest.fixture(params=CASES, ids=CASES)
def case(request) -> Case:
    return CASES[request.param]


# ---------------------------------------------------------------------- the contract


def test_both_sides_together_are_everything_and_share_nothing(case, tmp_path):
    data = case.data(tmp_path, case.records(1500))
    chosen = case.chosen(data)
    assert chosen.by == case.by
    train, valid = (case.read(chosen.settled(data), split) for split in ("train", "valid"))
    whole = case.read(data.model_copy(update={"valid": []}), "train")
    if case.by == "document":
        assert sorted(train + valid) == sorted(whole)
        assert not set(train) & set(valid)
        assert (chosen.units, chosen.held) == (len(whole), len(valid))
    else:
        units = cut("".join(whole), case.by, symbols=case.symbols)
        below = limit(chosen.below)
        assert "".join(units) == "".join(whole)
        assert "".join(valid) == "".join(unit for unit in units if digest(unit) < below)
        assert "".join(train) == "".join(unit for unit in units if digest(unit) >= below)
        assert (chosen.units, chosen.held) == (len(units), sum(digest(unit) < below for unit in units))


def test_the_share_is_about_what_was_asked_for(case, tmp_path):
    for share in (0.02, 0.1, 0.3):
        data = case.data(tmp_path, case.records(1500), hold_out=share)
        train, valid = (len("".join(case.read(data, split))) for split in ("train", "valid"))
        assert share / 3 < valid / (train + valid) < 1.5 * share + 0.05


def test_reading_again_gives_the_same(case, tmp_path):
    data = case.data(tmp_path, case.records(300))
    assert case.chosen(data) == case.chosen(data)
    for split in ("train", "valid"):
        assert case.read(data, split) == case.read(case.chosen(data).settled(data), split)


def test_a_text_ends_once_on_each_side(tmp_path):
    """`<end>` closes a document, not each of its parts."""
    for name in ("a", "b"):
        joined("\n\n")(tmp_path / f"{name}.txt", sentences(100, seed=ord(name)))
    for split in ("train", "valid"):
        records = list(read(DataSettings(train=str(tmp_path)), split))
        last = [record for record in records if record.ends]
        assert [record.file for record in last] == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
        assert last == [[r for r in records if r.file == one.file][-1] for one in last]


@pytest.mark.parametrize("name", ["text of paragraphs", "text of lines", "long array"])
def test_a_part_knows_where_it_stands(name, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1000)
    case = TEXTS[name]
    data = case.data(tmp_path, case.records(1500))
    (whole,) = ["".join(case.read(data.model_copy(update={"valid": []}), "train"))]
    sign = " " if name == "long array" else "\n"
    starts = [0, *(place + 1 for place, character in enumerate(whole) if character == sign)]
    for split in ("train", "valid"):
        for record in read(data, split, case.roles, case.symbols):
            text = record.fields["text"]
            assert whole.startswith(text, starts[record.line - 1])


# ---------------------------------------------------------------------- what happens to the data later


@pytest.mark.parametrize("name", [*ROWS, "text of paragraphs", "text of lines"])
def test_no_record_changes_sides(name, tmp_path):
    """Rows are inserted, removed and shuffled: what was trained on is never held out, and the other way round."""
    case, own = CASES[name], random.Random(3)
    before = case.records(600)
    data = case.data(tmp_path, before)
    settled = case.chosen(data).settled(data)
    sides = {split: contents(case, settled, split) for split in ("train", "valid")}
    after = [*before[100:], *(case.records(800)[600:])]
    own.shuffle(after)
    case.data(tmp_path, after)
    for split, other in (("train", "valid"), ("valid", "train")):
        now = contents(case, settled, split)
        assert now
        assert not now & sides[other]


def contents(case: Case, data: DataSettings, split: readers.Split) -> set[str]:
    found = case.read(data, split)
    return (
        set(found) if case.by == "document" else {line for text in found for line in text.split("\n") if line.strip()}
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(sentences(60)), min_size=25, max_size=80),
    st.lists(st.sampled_from(sentences(60, seed=1)), max_size=10),
    st.sampled_from(["csv", "lines", "text of lines", "text of paragraphs"]),
    st.randoms(use_true_random=False),
)
def test_no_record_changes_sides_whatever_is_done(before, more, name, own):
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        data = case.data(Path(folder), before)
        chosen = case.chosen(data)
        if chosen.by != case.by:  # too much of it is the same
            return
        settled = chosen.settled(data)
        sides = {split: contents(case, settled, split) for split in ("train", "valid")}
        assert not sides["train"] & sides["valid"]
        after = [*own.sample(before, own.randint(1, len(before))), *more]
        own.shuffle(after)
        case.data(Path(folder), after)
        for split, other in (("train", "valid"), ("valid", "train")):
            with suppress(DataError):  # nothing of it may be left
                assert not contents(case, settled, split) & sides[other]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(UNITS),
    st.integers(0, 4999),
    st.text(st.sampled_from("ab ,\n语"), min_size=1, max_size=30),
    st.sampled_from(["words", "Chinese", "DNA"]),
)
def test_an_insertion_moves_no_cut_elsewhere(unit, place, inserted, kind):
    between = {"paragraph": "\n\n", "line": "\n", "block": " ", "snippet": " "}[unit]
    text = between.join(genes(300) if kind == "DNA" else sentences(400))
    if kind == "Chinese":
        text = "".join(character if character == "\n" else chr(0x4E00 + ord(character)) for character in text)
    place = place * len(text) // 5000
    before, after = cut(text, unit), cut(text[:place] + inserted + text[place:], unit)
    front = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    back = next(
        (n for n, (a, b) in enumerate(zip(before[::-1], after[::-1], strict=False)) if a != b), len(before) - front
    )
    changed = len("".join(before[front : len(before) - back]))
    longest = max(map(len, before))
    assert changed <= 3 * longest  # the unit that it is in, and its neighbours


# ---------------------------------------------------------------------- cutting


def cut(text: str, unit: Unit, pieces: list[int] | None = None, symbols: bool = False) -> list[str]:
    cutting, found, start = cutter(unit, symbols), list[str](), 0
    for length in pieces or [len(text)]:
        found += cutting.push(text[start : start + length])
        start += length
    return found + cutting.push(text[start:]) + cutting.finish()


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(UNITS),
    st.text(st.sampled_from("ab  ,\n\n\r语\u2028")).map(lambda text: text * 100),
    st.lists(st.integers(1, 3000), max_size=20),
    st.booleans(),
)
def test_cuts_do_not_depend_on_the_pieces_that_a_text_comes_in(unit, text, pieces, symbols):
    text += "".join(sentences(100))
    whole = cut(text, unit, symbols=symbols)
    assert "".join(whole) == text
    assert cut(text, unit, pieces, symbols) == whole


def test_long_paragraphs_are_cut_into_blocks_whose_cuts_stay():
    text = "short\n\n" + " ".join(sentences(3000)) + "\n\n" + "short again\n"
    found = cut(text, "paragraph")
    assert found[0] == "short\n\n"
    assert found[-1] == "short again\n"
    assert 30 < len(found) < 300
    assert cut(text, "paragraph", [777] * 100) == found


@pytest.mark.parametrize("unit", AVERAGE)
@pytest.mark.parametrize("text", ["word " * 40_000, "x" * 200_000, " ".join(sentences(3000)), "语" * 200_000])
def test_blocks_are_bounded_and_end_at_blanks(unit, text):
    found = cut(text, unit)
    assert "".join(found) == text
    assert max(map(len, found)) <= 64 * AVERAGE[unit] + 256
    if " " in text:
        assert all(block.endswith(" ") for block in found[:-1])


def test_symbols_are_never_cut():
    symbols = ["s" * (300 + number % 700) for number in range(2000)]
    for sign in (" ", ","):
        found = cut(sign.join(symbols), "snippet", symbols=True)
        assert len(found) > 20
        assert sign.join(symbols).split(sign) == sign.join(one.removesuffix(sign) for one in found).split(sign)


def test_memory_does_not_grow_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1 << 14)
    peaks = []
    for times in (4, 40):
        path = tmp_path / f"{times}.txt"
        path.write_text(" ".join(f"{word}{turn}" for turn in range(times * 10) for word in WORDS))
        data = DataSettings(train=str(path))
        tracemalloc.start()
        for split in ("train", "valid"):
            for _ in read(data, split):
                pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 200_000


# ---------------------------------------------------------------------- what is chosen


def test_the_same_text_with_another_label_is_on_the_same_side(tmp_path):
    texts = sentences(200)
    rows = [(text, label) for text in texts for label in "ab"]
    random.Random(0).shuffle(rows)
    (tmp_path / "a.csv").write_text("id,text,label\n" + "".join(f"{n},{t},{k}\n" for n, (t, k) in enumerate(rows)))
    data = DataSettings(train=str(tmp_path / "a.csv"))
    parts = {}
    for roles in (("text", "label"), ("text",)):
        chosen = held_out(Asked(data, roles)).settled(data)
        parts[roles] = [{r.fields["text"] for r in read(chosen, split, roles)} for split in ("train", "valid")]
    assert parts["text", "label"] == parts["text",]  # a tokenizer, or a language model, sees nothing that is held out
    train, valid = parts["text",]
    assert not train & valid


@pytest.mark.parametrize(
    ("text", "by", "ends"),
    [
        ("0123456789 " * 500, "number", True),  # whatever part of it is held out, the rest has it too
        ("the same line\n" * 100, "number", True),
        ("a line\n" * 15 + " ".join(sentences(3000)), "block", False),
        (" ".join(sentences(150)), "snippet", False),
        ("\n".join(sentences(150)), "line", False),
    ],
)
def test_the_unit_follows_from_the_text(tmp_path, text, by, ends):
    (tmp_path / "a.txt").write_text(text)
    data = DataSettings(train=str(tmp_path / "a.txt"))
    chosen = held_out(Asked(data, ("text",)))
    assert (chosen.by, chosen.ends) == (by, ends)
    train, valid = ("".join(r.fields["text"] for r in read(chosen.settled(data), s)) for s in ("train", "valid"))
    assert sorted(train + valid) == sorted(text)
    assert 0.01 < len(valid) / len(text) < 0.16


def test_a_rule_can_be_chosen(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(sentences(2000)))
    for by in UNITS:
        chosen = held_out(Asked(DataSettings(train=str(path), hold_out_by=by), ("text",)))
        assert chosen.by == by
        assert 0.02 < chosen.held_size / chosen.size < 0.1
    with pytest.raises(DataError, match=r"cannot be cut into blocks.*data\.hold_out_by=document"):
        list(read(DataSettings(train=str(path), hold_out_by="block", documents="line"), "train"))
    with pytest.raises(DataError, match=r"too little.*data\.valid"):
        list(read(DataSettings(train=str(path), hold_out_by="document"), "train"))
    with pytest.raises(DataError, match="nothing is held out by"):
        list(read(DataSettings(train=str(path), hold_out_by="line", hold_out_below=1e-9), "valid"))


def test_what_is_said():
    found = HeldOut("paragraph", 0.05, 312, 6113, 24_800, 496_000)
    assert str(found) == "312 of 6,113 paragraphs (24.8 of 496.0 kB), spread over the text"
    assert str(HeldOut("document", 0.05, 3, 60, 800, 16_000)) == "3 of 60 records (800 bytes of 16.0 kB)"
    assert str(HeldOut("number", ends=True)) == "the end of each text"


def test_of_large_data_the_choice_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(sentences(500)))
    asked = Asked(DataSettings(train=str(path)), ("text",))
    small = held_out(asked)
    monkeypatch.setattr(readers, "QUICK", 100)
    assert held_out(asked) == small
    monkeypatch.setattr(readers, "choose", None)  # it is not called again
    assert held_out(asked) == small


# ---------------------------------------------------------------------- runs of earlier versions


def test_the_old_rule_has_the_old_fingerprint(tmp_path):
    """Or runs that were begun by an earlier version could not be resumed. The sums were computed by that version."""
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {number}, and some words after it\n" for number in range(200)))
    data = DataSettings(train=str(path), hold_out_by="number")
    assert fingerprint(data, "train")[:16] == "037df8abd8d21bfa"
    assert fingerprint(data.model_copy(update={"hold_out": 0.1}), "valid")[:16] == "1226f793aca7bbd4"
    assert (
        fingerprint(data.model_copy(update={"valid": str(path), "train": "python-docs"}), "valid")[:16]
        == "bb3cb934b08971fe"
    )
    assert fingerprint(DataSettings(train=str(path)), "train") != fingerprint(data, "train")


def test_a_licence_at_the_end_is_not_all_that_is_held_out(tmp_path):
    (tmp_path / "book.txt").write_text("\n\n".join([*sentences(900), *["licence " + one for one in sentences(100)]]))
    valid = "".join(record.fields["text"] for record in read(DataSettings(train=str(tmp_path / "book.txt")), "valid"))
    paragraphs = [one for one in valid.split("\n\n") if one]
    assert sum(one.startswith("licence") for one in paragraphs) < 0.3 * len(paragraphs)
    numbers = [int(one.removeprefix("licence ").split()[0]) for one in paragraphs]
    assert min(numbers) < 200
    assert max(numbers) > 700


def test_a_rule_that_was_chosen_serves_less_data_than_it_was_chosen_for(tmp_path):
    """An evaluation after most rows are gone."""
    path = tmp_path / "a.txt"
    path.write_text("\n".join(sentences(400)))
    data = DataSettings(train=str(path), documents="line")
    settled = held_out(Asked(data, ("text",))).settled(data)
    (first, *_) = [record.fields["text"] for record in read(settled, "valid")]
    path.write_text(f"{first}\nanother line\n")
    assert [record.fields["text"] for record in read(settled, "valid")] == [first]
    assert held_out(Asked(settled, ("text",))).units == 2
