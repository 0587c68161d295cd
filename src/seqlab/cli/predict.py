"""`seqlab predict`"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from seqlab.cli.options import device


@click.command(epilog="Example: echo 'a fine film' | seqlab predict runs/sentiment --json")
@click.argument("run")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--batch-size", type=click.IntRange(1), help="Only speed and memory depend on it.")
@click.option("--steps", type=click.IntRange(1), help="How far a forecast reaches; the recipe's horizon by default.")
@device
@click.option("--code", metavar="FILE", help="The file that the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def predict(
    run: str,
    files: tuple[str, ...],
    batch_size: int | None,
    steps: int | None,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """What RUN answers for each example of FILE, or for each line of the input."""
    from seqlab.cli.streams import echo_json
    from seqlab.run import load

    loaded = load(run, code=code, device=device, warn=lambda message: click.echo(message, err=True))
    with tempfile.TemporaryDirectory() as folder:
        given = list(files)
        if not given:
            typed = Path(folder) / "input"
            typed.write_bytes(sys.stdin.buffer.read())
            given = [str(typed)]
        for answer in loaded.predict(given, lines=not files, batch_size=batch_size, steps=steps):
            if as_json:
                echo_json(answer)
            else:
                click.echo("\t".join(str(answer[key]) for key in ("answer", "text") if key in answer))
