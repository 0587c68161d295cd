"""Text in from standard input, JSON out for programs."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from seqlab.errors import DataError, SeqlabError


def read_stdin() -> str:
    """All of standard input, which must be UTF-8 whatever the terminal is set to."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        hint = "convert it first, for instance with iconv"
        what = f"not UTF-8 text (line {line}, byte {error.start})"
        raise DataError(what, where="standard input", hint=hint) from None


@contextmanager
def given_or_typed(files: Sequence[str]) -> Iterator[list[str]]:
    """The files of a command; where there are none, standard input as a file. Errors say standard input."""
    if files:
        yield list(files)
        return
    with tempfile.TemporaryDirectory() as folder:
        typed = Path(folder) / "input"
        typed.write_text(read_stdin(), encoding="utf-8", newline="")
        try:
            yield [str(typed)]
        except SeqlabError as error:
            where = error.where and error.where.replace(str(typed), "standard input")
            raise type(error)(error.what, where=where, hint=error.hint) from None


def echo_json(data: Any) -> None:
    """One line; what JSON has no number for (an infinite perplexity) is null."""
    click.echo(json.dumps(finite(data), allow_nan=False))


def finite(data: Any) -> Any:
    """Plain data without what JSON has no number for."""
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
