"""Tables for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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


def listing(about: Mapping[str, str], as_json: bool) -> None:
    """A name and what it is about, a line each."""
    if as_json:
        click.echo(json.dumps(about))
        return
    width = max(map(len, about))
    for name, text in about.items():
        click.echo(f"{name:{width}}  {text}")


def _numeric(text: str) -> bool:
    return text.replace(",", "").replace("±", "").replace(".", "").replace(" ", "").isdigit() or text == "–"
