"""Non-text sequences (notes, clicks, pixels) stored as text: symbols separated by blanks."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from contextlib import suppress

BLANK = re.compile(r"\s")
BLANK_INSIDE = "␣"


def joined(elements: Sequence[object]) -> str:
    """["C4", "E4"] → "C4 E4"; a blank inside a symbol becomes ␣. A ValueError names the first invalid element."""
    symbols = []
    for place, element in enumerate(elements, 1):
        if isinstance(element, bool) or not isinstance(element, int | str):
            raise ValueError(f"element {place} is {_shown(element)}: neither a whole number nor text")
        if element == "":
            raise ValueError(f"element {place} is empty")
        symbols.append(BLANK.sub(BLANK_INSIDE, element) if isinstance(element, str) else str(element))
    return " ".join(symbols)


def parsed(cell: str) -> str | list[object]:
    """Parse a table cell that may hold a list in JSON or Python syntax: '["a", 1]' → ["a", 1]."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return cell
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = parse(text)
            if isinstance(found, list):
                return found
    raise ValueError("looks like a list but is not valid: write [1, 2], or symbols separated by blanks")


def _shown(element: object) -> str:
    text = json.dumps(element) if isinstance(element, dict | list | float | bool | None) else repr(element)
    return text if len(text) <= 40 else f"{text[:37]}..."
