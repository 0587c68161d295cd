"""Numbers in table cells, and cells that lack one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from seqlab.data.formats.rows import Row

MISSING = ("", "nan", "na", "n/a", "null", "none", "-", "?")
"""What tables contain where a number is missing, in lower case."""


def plain_rows(numbered: Iterable[tuple[int, str]], empty: bool = False) -> Iterator[Row]:
    """Yield the rows of plain text with columns 1, 2, ...; an empty line is a row without cells if `empty` is true."""
    for number, line in numbered:
        cells = [cell for cell in re.split(r"\s*[,;]\s*|\s+", line.strip()) if cell]
        if cells or empty:
            yield Row(number, {str(place): cell for place, cell in enumerate(cells, 1)})


def is_missing(cell: object) -> bool:
    return cell is None or str(cell).strip().lower() in MISSING


def number_in(cell: object) -> float | None:
    """Return the finite number in a cell, or None; also None for 1_000, which Python would accept."""
    if not isinstance(cell, int | float | str) or (isinstance(cell, str) and "_" in cell):
        return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
