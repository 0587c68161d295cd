"""Numbers in the cells of tables, and cells that lack one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from seqlab.data.formats.rows import Row

MISSING = ("", "nan", "na", "n/a", "null", "none", "-", "?")
"""What a table has where a number is missing, in small letters."""


def plain_rows(numbered: Iterable[tuple[int, str]], empty: bool = False) -> Iterator[Row]:
    """Columns are called 1, 2, ...; an empty line has none, and is a row only where that is wanted."""
    for number, line in numbered:
        cells = [cell for cell in re.split(r"\s*[,;]\s*|\s+", line.strip()) if cell]
        if cells or empty:
            yield Row(number, {str(place): cell for place, cell in enumerate(cells, 1)})


def is_missing(cell: object) -> bool:
    return cell is None or str(cell).strip().lower() in MISSING


def number_in(cell: object) -> float | None:
    """A number, or None: of 1_000, which Python would read, too."""
    if not isinstance(cell, int | float | str) or (isinstance(cell, str) and "_" in cell):
        return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
