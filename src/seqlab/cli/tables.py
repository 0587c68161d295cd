"""Tables on the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from seqlab.metrics.lengths import Bin


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, with numbers aligned right and words left."""
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


def shown(figure: float, form: str = ".2f") -> str:
    """Return a figure as it is printed; a dash if there is none (NaN)."""
    return "–" if math.isnan(figure) else f"{figure:{form}}"


def by_length_table(bins: Sequence[Bin]) -> None:
    """Print a table with one column per bin of source lengths and one row per figure."""
    titles = [f"{own['shortest']}–{own['longest']}\n{own['lines']:,} lines" for own in bins]
    names = bins[0]["figures"]
    table(["source, characters", *titles], [[name, *(shown(own["figures"][name]) for own in bins)] for name in names])


TITLES = {
    "labels": "labels, worst first",
    "types": "span types, worst first",
    "confusions": "most frequent confusions",
    "calibration": "calibration: confidence, and how often it is right",
    "confidently_wrong": "wrong with the highest confidence",
    "most_errors": "sentences with the most errors",
    "words_wrong": "words most often wrong",
    "worst": "worst sentences by chrF",
    "surprising": "most surprising: the right answer had the lowest probability",
    "columns": "residuals (truth − forecast) by column and step ahead",
    "largest": "largest residuals",
    "surprising_lines": "most surprising lines",
    "surprising_tokens": "most surprising tokens",
}
WIDEST = 12
"""Number of labels for which a confusion matrix fits on a terminal."""
MOST_ROWS = 20
LONGEST_NAME = 32
LONGEST = 70
"""Characters of a text in a table."""


def error_tables(report: Mapping[str, Any]) -> None:
    """Print the parts of an error report that are rows; the rest is in its picture and in the JSON."""
    confusion = report.get("confusion")
    if confusion is not None and len(confusion["labels"]) <= WIDEST:
        click.echo("confusion matrix: true labels in rows, predicted labels in columns")
        rows = zip(confusion["labels"], confusion["counts"], strict=True)
        table(["", *confusion["labels"]], [[label, *counts] for label, counts in rows])
    for name, title in TITLES.items():
        rows = report.get(name, [])
        if isinstance(rows, list) and rows:
            click.echo(title + (f" (expected calibration error {report['ece']:.3f})" if name == "calibration" else ""))
            shown = [_row(row) for row in rows[:MOST_ROWS]]
            table([key.replace("_", " ") for key in shown[0]], [list(row.values()) for row in shown])
            if len(rows) > MOST_ROWS:
                click.echo(f"and {len(rows) - MOST_ROWS:,} more: use --json to see all\n")


def _row(row: Mapping[str, Any]) -> dict[str, object]:
    """Shorten a row for display: file and line as one place, numbers with few digits, texts that fit."""
    place = {}
    if "file" in row:
        counted, line = list(row.items())[1]
        file = row["file"] if len(row["file"]) <= LONGEST_NAME else f"…{row['file'][1 - LONGEST_NAME :]}"
        place = {"place": f"{file}:{line}" if counted == "line" else f"{file}, {counted} {line}"}
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
    """Print one line per name: the name and its description."""
    if as_json:
        click.echo(json.dumps(about))
        return
    width = max(map(len, about))
    for name, text in about.items():
        click.echo(f"{name:{width}}  {text}")


def _numeric(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.replace(",", "").replace("±", "").replace(".", "").replace(" ", "").isdigit() or text == "–"
