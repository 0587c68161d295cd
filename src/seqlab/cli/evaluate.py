"""`seqlab evaluate`"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqlab.cli.completion import files, folders
from seqlab.cli.options import checkpoint, code_option, device, picture, settings_among

if TYPE_CHECKING:
    from seqlab.runs.run import Run
    from seqlab.tasks.abilities import Writes

CAUTIONS = ("scores", "changed", "overlap", "compared")
"""Entries of a signature that are printed as notes, on separate lines."""


@click.command(epilog="Example: seqlab evaluate runs/mine --data other.txt --scramble 0.5 --json")
@click.argument("run", shell_complete=folders)
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--data",
    multiple=True,
    metavar="FILE",
    shell_complete=files,
    help="Evaluate on FILE instead of the run's held-out data.",
)
@click.option(
    "--scramble",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Also measure with the inner letters of this share of the words permuted (Aoccdrnig to a rscheearch).",
)
@click.option("--metric", metavar="NAME,...", help="Metrics of generated texts: bleu, chrf, ter, rouge, wer, ...")
@click.option("--by-length", is_flag=True, help="Also score generated texts separately by source length.")
@click.option("--beam", type=click.IntRange(1), help="Beam size, for runs that generate texts; 1 is greedy.")
@click.option(
    "--errors",
    is_flag=True,
    help="Also analyse the errors: confusions, calibration, the worst and the most surprising examples "
    "(of the unscrambled data, even with --scramble).",
)
@click.option(
    "--worst",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Number of examples of each kind that --errors lists.",
)
@click.option(
    "--out",
    metavar="FILE",
    callback=picture,
    shell_complete=files,
    help="Where to save the picture of --errors (.png, .svg or .pdf); in the run folder by default. With --json, it is "
    "drawn only if --out is given.",
)
@click.option(
    "--batch-size", type=click.IntRange(1), help="Number of examples computed together; affects only speed and memory."
)
@checkpoint
@device
@code_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    run: str,
    settings: tuple[str, ...],
    data: tuple[str, ...],
    scramble: float | None,
    metric: str | None,
    by_length: bool,
    beam: int | None,
    errors: bool,
    worst: int,
    out: str | None,
    batch_size: int | None,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Evaluate RUN on its held-out data, or on FILE. Each token is scored exactly once.

    KEY=VALUE says how to read FILE if its columns or format differ from the training data: data.columns.text=body,
    data.format=csv or data.documents=line.
    """
    from seqlab.cli.display import Bar
    from seqlab.inspection.error_report import report as error_report
    from seqlab.runs.run import load

    reading = _reading(settings, data)
    if out is not None and not errors:
        raise click.UsageError("--out names the picture of --errors: add --errors")
    loaded = load(run, checkpoint=checkpoint, code=code, device=device)
    loaded = loaded.changed(reading) if reading else loaded
    if beam is not None:
        _check_writes(loaded, run, "--beam")
        loaded = loaded.changed({"decoding.beam": beam})
    metrics = None if metric is None else _known(metric)
    if by_length:
        _check_by_length(loaded, run, metrics)
    files = list(data) or None
    with Bar("evaluate", quiet=as_json):
        columns = {"value": loaded.evaluate(files, batch_size, metrics=metrics, lengths=by_length)}
        if scramble is not None:
            columns["scrambled"] = loaded.evaluate(files, batch_size, scramble, metrics)
        report = error_report(loaded.outcomes(files, batch_size), worst) if errors else None
    if as_json:
        _print_json(columns, report)
    else:
        _print_tables(columns, report)
    if report is not None and (out is not None or not as_json):
        _draw(report, loaded.folder / "errors.png" if out is None else Path(out), err=as_json)


def _reading(settings: tuple[str, ...], data: tuple[str, ...]) -> list[str]:
    """Return the settings for reading FILE; there must be no others, and a FILE to read."""
    others, reading = settings_among(settings)
    if others:
        raise click.UsageError(f"'{others[0]}' does not set how data is read; name files with --data")
    if reading and not data:
        raise click.UsageError(f"{reading[0]} applies only to data other than the run's own: add --data FILE")
    return reading


def _known(metric: str) -> list[str]:
    """Return the names of the metrics; report an unknown one before the work, not after it."""
    from seqlab.metrics.judging import metrics_of

    names = [name.strip() for name in metric.split(",")]
    metrics_of(names)
    return names


def _check_writes(loaded: Run, run: str, option: str) -> Writes:
    """Return the task, which must generate the texts that an option is about."""
    from seqlab.errors import RunError
    from seqlab.tasks.abilities import Writes

    if not isinstance(loaded.task, Writes):
        raise RunError("generates no texts to score", where=run, hint=f"leave {option} out")
    return loaded.task


def _check_by_length(loaded: Run, run: str, metrics: list[str] | None) -> None:
    """--by-length needs a task that writes texts, and a metric for them."""
    from seqlab.errors import RunError

    task = _check_writes(loaded, run, "--by-length")
    if not (task.judges if metrics is None else metrics):
        raise RunError("--by-length needs a metric", where=run, hint="add --metric bleu")


def _print_json(columns: dict[str, dict[str, Any]], report: dict[str, Any] | None) -> None:
    from seqlab.cli.streams import echo_json

    scrambled = {name: found for name, found in columns.items() if name != "value"}
    echo_json({**columns["value"], **scrambled, **({} if report is None else {"errors": report})})


def _print_tables(columns: dict[str, dict[str, Any]], report: dict[str, Any] | None) -> None:
    """Print a table of figures, one per variable and one per length if there are any, the signature and the errors."""
    from seqlab.cli.tables import by_length_table, error_tables, table

    bins = columns["value"].pop("by_length", [])
    for found in columns.values():
        found.pop("notes", None)  # already printed as warnings
    if not columns["value"].get("too_long"):
        columns["value"].pop("too_long", None)
    signatures = [found.pop("signature") for found in columns.values()]
    whole = [name for name in columns["value"] if "." not in name]
    rows = [[name.replace("_", " "), *(_shown(found[name]) for found in columns.values())] for name in whole]
    table(["metric", *columns], rows)
    if variables := _by_variable(columns["value"]):
        figures = list(next(iter(variables.values())))
        titles = [name.replace("_", " ") for name in figures]
        table(["column", *titles], [[name, *(_shown(own[f]) for f in figures)] for name, own in variables.items()])
    if bins:
        by_length_table(bins)
    shown = [f"{name.replace('_', ' ')} {value}" for name, value in signatures[-1].items() if name not in CAUTIONS]
    if shown:
        click.echo(f"signature: {', '.join(shown)}")
    if report is not None:
        error_tables(report)


def _draw(report: dict[str, Any], path: Path, err: bool) -> None:
    from seqlab.inspection import figures

    figures.errors(report, path)
    click.echo(f"drawn: {path}", err=err)


def _by_variable(figures: dict[str, float]) -> dict[str, dict[str, float]]:
    """Group figures by the variable of a forecast: {"mse.temperature": 0.3} → {"temperature": {"mse": 0.3}}."""
    found: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        figure, dot, variable = name.partition(".")
        if dot:
            found.setdefault(variable, {})[figure] = value
    return found


def _shown(value: float | int) -> str | int:
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if abs(value) >= 0.1 or value == 0 else f"{value:.4g}"
