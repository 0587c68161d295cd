"""`seqlab data`: check data before training on it, and manage the cache."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from seqlab.cli.completion import files

if TYPE_CHECKING:
    from seqlab.data.checks.file_checks import Finding


@click.group(invoke_without_command=True, epilog="Example: seqlab data check train.txt --valid valid.txt")
@click.pass_context
def data(context: click.Context) -> None:
    """Check data before training on it; list or clear the cache."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@data.command(epilog="Example: seqlab data check train.txt --valid valid.txt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=files)
@click.option(
    "--valid",
    multiple=True,
    metavar="FILE",
    shell_complete=files,
    help="Validation data; a line that also occurs in FILE is a fault.",
)
@click.option(
    "--max-line",
    default=10_000,
    show_default=True,
    type=click.IntRange(1),
    help="Report lines that have more characters than this.",
)
@click.option(
    "--keep",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Number of places to list for each kind.",
)
@click.option(
    "--format",
    default="auto",
    type=click.Choice(["auto", "txt", "jsonl", "csv", "tsv", "fasta", "conll", "conllu"]),
    help="Format of all FILEs; by default from the extension, or conll if all lines have equally many columns.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(files: tuple[str, ...], valid: tuple[str, ...], max_line: int, keep: int, format: str, as_json: bool) -> None:
    """Find faults in data files.

    Shows how often each fault occurs, and the first places (file, line and byte). FILE may be a file, a folder or
    a pattern. .gz files are unpacked, the rows of .jsonl, .csv, .tsv, .parquet and .npy files are parsed, and words in
    columns (CoNLL) are compared by sentence. The exit code is 1 if there are faults, and 0 if there are none, or only
    notes such as empty lines.
    """
    from seqlab.data.checks.report import examine

    findings = examine(files, valid, max_line, keep, format)
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
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("first in file", overflow="fold")
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("byte", justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    for finding in findings:
        titles = ["fault" if finding.fault else "note", finding.kind, f"{finding.count:,}"]
        for place in finding.places:
            table.add_row(*titles, place.file, str(place.line), str(place.byte), place.what)
            titles = ["", "", ""]
    if findings:
        console = Console(markup=False, highlight=False, emoji=False)
        if not console.is_terminal:
            console.width = max(console.width, 140)
        console.print(table)


def _count(number: int, noun: str, several: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


@data.command(epilog="Example: seqlab data cache --clear 30d")
@click.option("--clear", metavar="AGE", help="Remove entries unused for this long, such as 12h or 30d; or `all`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cache(clear: str | None, as_json: bool) -> None:
    """List the cache of encoded texts and learnt tokenizers.

    The environment variable SEQLAB_CACHE names its folder. When the cache exceeds SEQLAB_CACHE_LIMIT (20GB), the least
    recently used entries are removed. Entries that a process is using are never removed.
    """
    import time

    from seqlab.cli.streams import echo_json
    from seqlab.cli.tables import table
    from seqlab.data.progress import readable_size as size
    from seqlab.data.storage.cache import cache_folder, cache_limit, entries

    now, limit, age = time.time(), cache_limit(), None if clear is None else _age(clear)
    removed = [one for one in entries() if age is not None and now - one.used >= age and one.remove()]
    left = entries()
    total, freed = (sum(one.bytes for one in some) for some in (left, removed))
    if as_json:
        listed = [{**one.__dict__, "folder": str(one.folder), "about": one.about} for one in left]
        found = {"folder": str(cache_folder()), "limit": limit, "bytes": total, "removed": len(removed)}
        echo_json({**found, "freed": freed, "entries": listed})
        return
    if clear is not None:
        click.echo(f"removed {_count(len(removed), 'entry', 'entries')}, {size(freed)}")
    if left:
        rows = [[one.kind, size(one.bytes), _ago(now - one.used), one.about] for one in reversed(left)]
        table(["", "size", "last used", "of"], rows)
    most = "no limit" if limit is None else f"limit {size(limit)}"
    click.echo(f"{cache_folder()}: {_count(len(left), 'entry', 'entries')}, {size(total)} ({most})")


def _age(text: str) -> float:
    """Return an age in seconds; `all` is 0."""
    import re

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if text != "all" and not match:
        raise click.UsageError(f"--clear '{text}' is not an age; write 12h, 30d or all")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else 0.0


def _ago(seconds: float) -> str:
    for unit, length in {"d": 86400, "h": 3600, "m": 60}.items():
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"
