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
    """Read all of standard input, which must be UTF-8 whatever the terminal is set to."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        hint = "convert it first, for example with iconv"
        what = f"not UTF-8 text (line {line}, byte {error.start})"
        raise DataError(what, where="standard input", hint=hint) from None


STDIN = "standard input"


def is_typed(files: Sequence[str]) -> bool:
    """Whether a command reads standard input: no file is named, or only `-`."""
    return list(files) in ([], ["-"])


@contextmanager
def given_or_typed(files: Sequence[str]) -> Iterator[list[str]]:
    """Yield the files of a command or, if there are none, standard input as a file; errors then name standard input."""
    if not is_typed(files):
        yield list(files)
        return
    text = read_stdin()
    if not text:
        raise DataError("has no lines", where=STDIN, hint="give a FILE, or pipe lines in")
    with tempfile.TemporaryDirectory() as folder:
        typed = Path(folder) / "input"
        typed.write_text(text, encoding="utf-8", newline="")
        try:
            yield [str(typed)]
        except SeqlabError as error:
            where = error.where and error.where.replace(str(typed), STDIN)
            raise type(error)(error.what, where=where, hint=error.hint) from None


LISTED = 5


def note_unknown(counts: Sequence[tuple[str, int]]) -> None:
    """Print one line about tokens that are not in the vocabulary: how many, and where."""
    found = [(place, count) for place, count in counts if count]
    if found:
        total = sum(count for _, count in found)
        tokens = "1 token is" if total == 1 else f"{total:,} tokens are"
        listed = ", ".join(f"{place}: {count:,}" for place, count in found[:LISTED])
        rest = f", and {len(found) - LISTED:,} more" if len(found) > LISTED else ""
        click.echo(f"note: {tokens} not in the vocabulary, and read as unknown ({listed}{rest})", err=True)


def echo_json(data: Any) -> None:
    """Print data as one line of JSON; numbers that JSON lacks, such as an infinite perplexity, become null."""
    click.echo(json.dumps(finite(data), allow_nan=False))


def finite(data: Any) -> Any:
    """Replace infinite and NaN numbers in plain data by None."""
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
