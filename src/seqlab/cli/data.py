"""`seqlab data`: look at data before training on it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from seqlab.data.checks import Finding


@click.group(invoke_without_command=True, epilog="Example: seqlab data check train.txt --valid valid.txt")
@click.pass_context
def data(context: click.Context) -> None:
    """Look at data before training on it."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@data.command(epilog="Example: seqlab data check train.txt --valid valid.txt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--valid",
    multiple=True,
    metavar="FILE",
    help="Validation data: lines that are in FILE... too are a fault.",
)
@click.option(
    "--max-line",
    default=10_000,
    show_default=True,
    type=click.IntRange(1),
    help="Longest line, in characters.",
)
@click.option("--keep", default=5, show_default=True, type=click.IntRange(1), help="How many of each kind to list.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(files: tuple[str, ...], valid: tuple[str, ...], max_line: int, keep: int, as_json: bool) -> None:
    """Find what is wrong with data files, with file, line and byte.

    FILE may be a file, a folder or a pattern; .gz files are unpacked, and the rows of .jsonl, .csv and .tsv
    files parsed. The exit code is 1 when there are faults, and 0 when there are none or only notes, such as
    empty lines.
    """
    from seqlab.data.doctor import examine

    findings = examine(files, valid, max_line, keep)
    faults = sum(finding.count for finding in findings if finding.fault)
    notes = sum(finding.count for finding in findings if not finding.fault)
    if as_json:
        _print_json(findings, faults, notes)
    else:
        _print_table(findings)
        click.echo(f"{_count(faults, 'fault')}, {_count(notes, 'note')}" if findings else "clean: nothing found")
    sys.exit(1 if faults else 0)


def _print_json(findings: list[Finding], faults: int, notes: int) -> None:
    import json
    from dataclasses import asdict

    listed = [{"fault": finding.fault, **asdict(finding)} for finding in findings]
    click.echo(json.dumps({"faults": faults, "notes": notes, "findings": listed}, ensure_ascii=False, indent=1))


def _print_table(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("kind", no_wrap=True)
    table.add_column("file", overflow="fold")
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("byte", justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    for finding in findings:
        severity = "fault" if finding.fault else "note"
        if finding.rest:
            table.add_row(severity, finding.kind, "", "", "", f"and {finding.rest:,} more")
        else:
            place = (finding.file, str(finding.line), str(finding.byte))
            table.add_row(severity, finding.kind, *place, finding.what)
    if findings:
        console = Console(markup=False, highlight=False, emoji=False)
        if not console.is_terminal:
            console.width = max(console.width, 140)
        console.print(table)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
