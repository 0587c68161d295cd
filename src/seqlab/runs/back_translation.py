"""Back-translation: a run from target to source makes training pairs from monolingual text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqlab.data.formats.files import draft_of, format_of
from seqlab.data.progress import bytes_of, work
from seqlab.data.reading.readers import described, size, sources
from seqlab.decoding.choose import Choose
from seqlab.errors import DataError, RunError
from seqlab.recipe import DataSettings
from seqlab.runs.run import Answer, Run
from seqlab.tasks.abilities import Writes
from seqlab.tasks.translation import TARGET

Column = str | int


@dataclass(frozen=True)
class BackTranslated:
    """How many lines became pairs, and how many could not."""

    written: int
    skipped: int
    columns: tuple[Column, Column]
    """The columns of sources and of targets."""


def back_translate(
    run: Run,
    texts: str | Sequence[str],
    out: str | os.PathLike[str],
    *,
    choose: Choose | None = None,
    batch_size: int | None = None,
) -> BackTranslated:
    """Write a .tsv or .jsonl file of pairs for training in the other direction.

    Each line of `texts` is a target, and its translation by `run` is the source. Lines are left out if they are empty,
    too long or have an empty translation.

    Sources are decoded as the recipe of `run` says, or sampled token by token with `choose`. Columns have the names or
    numbers by which `run` reads its own pairs.

    Sennrich et al. 2016, https://arxiv.org/abs/1511.06709; with sampling: Edunov et al. 2018,
    https://arxiv.org/abs/1808.09381


    >>> seqlab.back_translate(seqlab.load("runs/en-de"), "mono.en", "synthetic.tsv", choose=Sample(seed=1))
    """
    path, role = Path(out), _only_text(run)
    if path.suffix not in (".tsv", ".jsonl"):
        raise DataError("the file name must end in .tsv or .jsonl", where=str(path), hint="choose another --out")
    if path.exists():
        raise DataError("already exists", where=str(path), hint="choose another --out, or remove the file")
    columns = _columns(run.recipe.data, role)
    table = _Json(columns) if path.suffix == ".jsonl" else _Table(columns)
    data = _plain(run, texts)
    task = run.task
    if not isinstance(task, Writes):
        raise RunError("this kind of task does not generate texts", where=str(run.folder), hint="give a translator")
    task = task if choose is None else task.drawn(choose)
    written = skipped = 0
    with draft_of(path) as draft, draft.open("w", encoding="utf-8", newline="\n") as file:
        file.write(table.head)
        answers = run.answers(task.asked(data), batch_size, task)
        for answer in _shown(answers, size(data, "valid")):
            source, target = answer["answer"], answer["text"]
            if target.strip() and source.strip():
                file.write(table.row(source, target))
                written += 1
            else:
                skipped += 1
        if not written:
            hint = "give a text with one sentence per line"
            raise DataError("no line was answered", where=described(data, "valid"), hint=hint)
    return BackTranslated(written, skipped, columns)


def _only_text(run: Run) -> str:
    """Return the role of the single text that a run translates."""
    conditions: dict[str, str] = getattr(run.recipe.task, "conditions", {})
    if list(conditions.values()) != ["text"]:
        hint = "give a run of translation from target to source"
        raise RunError("does not translate a single text into another", where=str(run.folder), hint=hint)
    return next(iter(conditions))


def _plain(run: Run, texts: str | Sequence[str]) -> DataSettings:
    valid = texts if isinstance(texts, str) else list(texts)
    data = run.recipe.data.model_copy(update={"valid": valid, "format": "txt", "documents": "line"})
    for path in sources(data, "valid"):
        if isinstance(path, str):
            raise DataError(f"'{path}' is not a file", hint="give a text with one sentence per line")
        if isinstance(path, Path) and format_of(path) != "txt":
            raise DataError("is not plain text", where=str(path), hint="give a text with one sentence per line")
    return data


def _shown(answers: Iterator[Answer], size: int | None) -> Iterator[Answer]:
    """Yield the answers line by line, and show progress."""
    with work("translating back", size) as advance:
        done = 0
        for answer in answers:
            yield answer
            done += bytes_of(answer["text"]) + 1
            advance(done)


# ------------------------------------------------------------------- writing pairs


def _columns(data: DataSettings, role: str) -> tuple[Column, Column]:
    """Return the columns of the source and of the target: those that `run` reads its targets and sources from."""
    if not {role, TARGET} & set(data.columns):
        return "source", TARGET
    return data.columns.get(TARGET, TARGET), data.columns.get(role, role)


class _Json:
    head = ""

    def __init__(self, columns: tuple[Column, Column]) -> None:
        self.source, self.target = map(str, columns)

    def row(self, source: str, target: str) -> str:
        return json.dumps({self.source: source, self.target: target}, ensure_ascii=False) + "\n"


class _Table:
    """Rows of a .tsv file, with a header unless columns are numbers. Tabs inside a text become spaces."""

    def __init__(self, columns: tuple[Column, Column]) -> None:
        numbers = [column for column in columns if isinstance(column, int)]
        if len(numbers) == 1:
            hint = "write .jsonl, or name both columns in data.columns of the run"
            raise DataError("one column is given by name and the other by number", hint=hint)
        self.head = "" if numbers else "\t".join(map(str, columns)) + "\n"
        self.places = numbers or [0, 1]
        self.width = max(2, *(place + 1 if place >= 0 else -place for place in self.places))

    def row(self, source: str, target: str) -> str:
        cells = [""] * self.width
        for place, text in zip(self.places, (source, target), strict=True):
            cells[place] = text.translate(BLANKS)
        return "\t".join(cells) + "\n"


BLANKS = dict.fromkeys(map(ord, "\t\n\r"), " ")
