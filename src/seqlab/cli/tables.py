"""Tables for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from seqlab.metrics.lengths import Bin


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers to the right, words to the left."""
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, title in enumerate(titles):
        numbers = all(isinstance(row[column], int | float) or _numeric(str(row[column])) for row in rows)
        out.add_column(title, justify="right" if numbers and rows else "left", overflow="fold")
    for row in rows:
        out.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(out)


def by_length_table(bins: Sequence[Bin]) -> None:
    """A column for each bin of source lengths, a row for each of its figures."""
    titles = [f"{own['shortest']}–{own['longest']}\n{own['lines']:,} lines" for own in bins]
    names = bins[0]["figures"]
    table(["source, characters", *titles], [[name, *(f"{own['figures'][name]:.2f}" for own in bins)] for name in names])


TITLES = {
    "labels": "labels, the worst first",
    "types": "types of spans, the worst first",
    "confusions": "most often taken for something else",
    "calibration": "calibration: how sure it is, and how often right",
    "confidently_wrong": "wrong, and most sure of it",
    "most_errors": "sentences with the most errors",
    "words_wrong": "words most often wrong",
    "worst": "worst by chrF of the sentence",
    "surprising": "most surprising: what is right had the least probability",
    "columns": "residuals (truth − forecast) by column and step ahead",
    "largest": "largest residuals",
    "surprising_lines": "most surprising lines",
    "surprising_tokens": "most surprising tokens",
}
WIDEST = 12
"""Labels of a confusion matrix that a terminal has room for."""
MOST_ROWS = 20
LONGEST_NAME = 32
LONGEST = 70
"""Characters of a text in a table."""


def error_tables(report: Mapping[str, Any]) -> None:
    """The parts of a report of `inspection.errors` that are rows; the rest is in its picture and in the JSON."""
    confusion = report.get("confusion")
    if confusion is not None and len(confusion["labels"]) <= WIDEST:
        click.echo("what is taken for what: given in rows, found in columns")
        rows = zip(confusion["labels"], confusion["counts"], strict=True)
        table(["", *confusion["labels"]], [[label, *counts] for label, counts in rows])
    for name, title in TITLES.items():
        rows = report.get(name, [])
        if isinstance(rows, list) and rows:
            click.echo(title + (f" (expected calibration error {report['ece']:.3f})" if name == "calibration" else ""))
            shown = [_row(row) for row in rows[:MOST_ROWS]]
            table([key.replace("_", " ") for key in shown[0]], [list(row.values()) for row in shown])
            if len(rows) > MOST_ROWS:
                click.echo(f"and {len(rows) - MOST_ROWS:,} more: --json has all\n")


def _row(row: Mapping[str, Any]) -> dict[str, object]:
    """A row for people: file and line as one place, numbers with few digits, texts that fit."""
    place = {}
    if "file" in row:
        counted, line = list(row.items())[1]
        file = row["file"] if len(row["file"]) <= LONGEST_NAME else f"…{row['file'][1 - LONGEST_NAME :]}"
        place = {"place": f"{file}:{line}"}
        row = {key: value for key, value in row.items() if key not in ("file", counted)}
    return {**place, **{key: _cell(value) for key, value in row.items()}}


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1000 else f"{value:.6g}"
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if isinstance(value, str):
        line = " ".join(value.split()) if value.strip() else repr(value) if value else ""
        return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
    return value


def listing(about: Mapping[str, str], as_json: bool) -> None:
    """A name and what it is about, a line each."""
    if as_json:
        click.echo(json.dumps(about))
        return
    width = max(map(len, about))
    for name, text in about.items():
        click.echo(f"{name:{width}}  {text}")


def _numeric(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.replace(",", "").replace("±", "").replace(".", "").replace(" ", "").isdigit() or text == "–"
