"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

READING = re.compile(r"data\.(columns|format|documents)\b[^=]*=")
"""Settings that say how a file is read, and may be others for files that a run was not trained on."""


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
    help="Which weights: those of a step that was saved, the last ones, or the best on held-out data.",
)


def picture(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """What cannot be drawn is better said before the work than after it."""
    if value is not None and (Path(value).suffix.lower() not in (".png", ".svg", ".pdf") or Path(value).is_dir()):
        raise click.BadParameter(f"'{value}' is no name of a picture: it should end in .png, .svg or .pdf")
    return value


def settings_among(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of files, and settings for reading them (data.columns.text=body), apart."""
    settings = [one for one in arguments if READING.match(one)]
    return [one for one in arguments if one not in settings], settings
