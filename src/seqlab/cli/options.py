"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="Where to compute: auto, cpu, mps, cuda or cuda:1.",
)


def picture(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """What cannot be drawn is better said before the work than after it."""
    if value is not None and (Path(value).suffix.lower() not in (".png", ".svg", ".pdf") or Path(value).is_dir()):
        raise click.BadParameter(f"'{value}' is no name of a picture: it should end in .png, .svg or .pdf")
    return value
