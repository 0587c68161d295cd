"""Options that several commands share."""

from __future__ import annotations

import click

device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="Where to compute: auto, cpu, mps, cuda or cuda:1.",
)
