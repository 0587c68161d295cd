"""Back-translation: a run from target to source makes pairs of texts that nobody has translated."""

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
    """Of sources and of targets."""


def back_translate(
    run: Run,
    texts: str | Sequence[str],
    out: str | os.PathLike[str],
    *,
    choose: Choose | None = None,
    batch_size: int | None = None,
) -> BackTranslated:
    """A .tsv or .jsonl file of pairs for a run in the other direction: each line of `texts` is a target, and what `run`
    answers to it is the source. Lines that are empty, too long or answered by nothing are left out.

    Sources are searched for as the recipe of `run` says, or drawn token by token with `choose`. Columns have the names,
    or the numbers, by which `run` reads its own pairs.

    Sennrich et al. 2016, https://arxiv.org/abs/1511.06709; Edunov et al. 2018, https://arxiv.org/abs/1808.09381 (drawn)

    >>> seqlab.back_translate(seqlab.load("runs/en-de"), "mono.en", "synthetic.tsv", choose=Sample(seed=1))
    """
    path, role = Path(out), _only_text(run)
    if path.suffix not in (".tsv", ".jsonl"):
        raise DataError("the name of the pairs should end in .tsv or .jsonl", where=str(path), hint="give another one")
    if path.exists():
        raise DataError("is there already", where=str(path), hint="give another name, or remove it")
    columns = _columns(run.recipe.data, role)
    table = _Json(columns) if path.suffix == ".jsonl" else _Table(columns)
    data = _plain(run, texts)
    task = run.task
    if not isinstance(task, Writes):
        raise RunError("this kind of task writes no answers", where=str(run.folder), hint="give a translator")
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
            hint = "give a text, one sentence a line"
            raise DataError("no line was answered", where=described(data, "valid"), hint=hint)
    return BackTranslated(written, skipped, columns)


def _only_text(run: Run) -> str:
    """The role of the one text that a run translates."""
    conditions: dict[str, str] = getattr(run.recipe.task, "conditions", {})
    if list(conditions.values()) != ["text"]:
        hint = "give a run of translation from target to source"
        raise RunError("does not make a text out of a text", where=str(run.folder), hint=hint)
    return next(iter(conditions))


def _plain(run: Run, texts: str | Sequence[str]) -> DataSettings:
    valid = texts if isinstance(texts, str) else list(texts)
    data = run.recipe.data.model_copy(update={"valid": valid, "format": "txt", "documents": "line"})
    for path in sources(data, "valid"):
        if isinstance(path, str):
            raise DataError(f"'{path}' is no file", hint="give a text, one sentence a line")
        if isinstance(path, Path) and format_of(path) != "txt":
            raise DataError("is no plain text", where=str(path), hint="give a text, one sentence a line")
    return data


def _shown(answers: Iterator[Answer], size: int | None) -> Iterator[Answer]:
    """Line by line, with the progress of the work."""
    with work("translating back", size) as advance:
        done = 0
        for answer in answers:
            yield answer
            done += bytes_of(answer["text"]) + 1
            advance(done)


# ------------------------------------------------------------------- how pairs are written


def _columns(data: DataSettings, role: str) -> tuple[Column, Column]:
    """Of the source and of the target: what `run` reads its targets and its sources from."""
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
    """With a header, unless columns are numbers. A tab inside a text becomes a blank."""

    def __init__(self, columns: tuple[Column, Column]) -> None:
        numbers = [column for column in columns if isinstance(column, int)]
        if len(numbers) == 1:
            hint = "write .jsonl, or name both columns in data.columns of the run"
            raise DataError("one column has a name and the other a number", hint=hint)
        self.head = "" if numbers else "\t".join(map(str, columns)) + "\n"
        self.places = numbers or [0, 1]
        self.width = max(2, *(place + 1 if place >= 0 else -place for place in self.places))

    def row(self, source: str, target: str) -> str:
        cells = [""] * self.width
        for place, text in zip(self.places, (source, target), strict=True):
            cells[place] = text.translate(BLANKS)
        return "\t".join(cells) + "\n"


BLANKS = dict.fromkeys(map(ord, "\t\n\r"), " ")
