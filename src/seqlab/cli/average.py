"""`seqlab average`"""

from __future__ import annotations

from pathlib import Path

import click

from seqlab.cli.completion import folders
from seqlab.cli.options import code_option, device


@click.command(epilog="Example: seqlab average runs/mine --last 5 --out runs/averaged")
@click.argument("run", shell_complete=folders)
@click.option("--out", required=True, metavar="FOLDER", shell_complete=folders, help="Where to write the new run.")
@click.option("--last", default=5, show_default=True, type=click.IntRange(2), help="Number of checkpoints to average.")
@device
@code_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def average(run: str, out: str, last: int, device: str, code: str | None, as_json: bool) -> None:
    """Average the weights of the newest checkpoints of RUN into a new run.

    A run saves a checkpoint every training.checkpoint_every steps and keeps the newest training.keep of them.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.runs.averaging import average as averaged
    from seqlab.training.log import read_log

    made = averaged(run, out, last=last, code=code, device=device)
    (entry,) = made.log
    if as_json:
        echo_json({"run": out, "steps": entry["averaged"], **entry["valid"]})
        return
    metric = made.task.metric
    others = [other["valid"][metric] for other in read_log(Path(run) / "log.jsonl") if "valid" in other]
    choose = max if made.task.better == "higher" else min
    best = f" (best checkpoint of {run}: {choose(others):.4f})" if others else ""
    click.echo(f"steps {', '.join(map(str, entry['averaged']))}: {out}")
    click.echo(f"held-out {metric} {entry['valid'][metric]:.4f}{best}")
