"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from seqlab.cli.completion import files

READING = re.compile(r"data\.(columns|format|documents)\b[^=]*=")
"""Settings for reading a file, which may differ for files that a run was not trained on."""


def _step_or_name(context: click.Context, parameter: click.Parameter, value: str) -> int | str:
    if value in ("last", "best"):
        return value
    if not value.isdecimal():
        raise click.BadParameter(f"'{value}' is not a step, 'last' or 'best'")
    return int(value)


device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="Where to compute: auto, cpu, mps, cuda or cuda:1.",
)

checkpoint = click.option(
    "--checkpoint",
    default="best",
    show_default=True,
    callback=_step_or_name,
    metavar="STEP|last|best",
    help="Which checkpoint to load: that of a step, the last one, or the best one on held-out data.",
)


def picture(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Check the name of a picture before the work rather than after it."""
    if value is not None and (Path(value).suffix.lower() not in (".png", ".svg", ".pdf") or Path(value).is_dir()):
        raise click.BadParameter(f"'{value}' is not a picture file: the name should end in .png, .svg or .pdf")
    return value


def settings_among(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate file names from settings for reading them (data.columns.text=body)."""
    settings = [one for one in arguments if READING.match(one)]
    return [one for one in arguments if one not in settings], settings


OWN_CLASSES = "A Python file that registers your own classes."


def code_option(help: str = "The Python file that the run was trained with.") -> Callable[[Any], Any]:
    """--code FILE, once: of two files, the second one would silently win."""

    def only(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
        if len(given) > 1:
            raise click.UsageError("give --code once; the file can import others from its folder")
        return given[0] if given else None

    return click.option("--code", metavar="FILE", multiple=True, callback=only, shell_complete=files, help=help)
