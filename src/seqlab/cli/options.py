"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

READING = re.compile(r"data\.(columns|format|documents)\b[^=]*=")
"""Settings that say how a file is read, and may be others for files that a run was not trained on."""

device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="Where to compute: auto, cpu, mps, cuda or cuda:1.",
)


def settings_among(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of files, and settings for reading them (data.columns.text=body), apart."""
    settings = [one for one in arguments if READING.match(one)]
    return [one for one in arguments if one not in settings], settings
