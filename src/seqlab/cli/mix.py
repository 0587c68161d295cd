"""`seqlab mix`"""

from __future__ import annotations

from typing import Any

import click

from seqlab.cli.completion import files, folders
from seqlab.cli.options import code_option, device


@click.command(epilog="Example: seqlab mix runs/lstm runs/5gram --out runs/mixed")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=folders)
@click.option("--out", required=True, metavar="FOLDER", shell_complete=folders, help="Where to write the new run.")
@click.option(
    "--weight",
    "weights",
    multiple=True,
    type=float,
    help="Weight of a run, given once per run; fitted on held-out data by default.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="FILE",
    shell_complete=files,
    help="Held-out data, if the runs do not hold out the same data.",
)
@device
@code_option("The Python file that the runs were trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def mix(
    runs: tuple[str, ...],
    out: str,
    weights: tuple[float, ...],
    data: tuple[str, ...],
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Combine several runs into one that predicts the weighted mean of their predictions.

    By default, the weights are those that make the held-out data most probable. All runs must share one tokenizer.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.cli.tables import table
    from seqlab.runs.mixing import mix as mixed

    run = mixed(runs, out, weights=weights or None, data=data or None, code=code, device=device)
    (entry,) = run.log
    parts = list(zip(runs, entry["weights"], strict=True))
    if as_json:
        found = [{"run": name, "weight": weight} for name, weight in parts]
        echo_json({"run": out, "weights": found, "fitted": entry["fitted"], **entry["valid"], **_notes(entry)})
        return
    table(["run", "weight"], [[name, f"{weight:.4f}"] for name, weight in parts])
    fitted = " (weights fitted on this data)" if entry["fitted"] else ""
    click.echo(f"held-out perplexity {entry['valid']['perplexity']:.2f}{fitted}: {out}")


def _notes(entry: dict[str, Any]) -> dict[str, Any]:
    return {"notes": entry["notes"]} if "notes" in entry else {}
