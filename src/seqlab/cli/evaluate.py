"""`seqlab evaluate`"""

from __future__ import annotations

import click

from seqlab.cli.options import device


@click.command(epilog="Example: seqlab evaluate runs/mine --data other.txt --json")
@click.argument("run")
@click.option("--data", multiple=True, metavar="FILE", help="Other data than the run's held-out part.")
@click.option("--batch-size", type=click.IntRange(1), help="Only speed and memory depend on it.")
@device
@click.option("--code", metavar="FILE", help="The file that the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    run: str, data: tuple[str, ...], batch_size: int | None, device: str, code: str | None, as_json: bool
) -> None:
    """Measure RUN on its held-out data, or on FILE: each token is scored exactly once."""
    from seqlab.cli.progress import Bar
    from seqlab.cli.streams import echo_json
    from seqlab.run import load

    loaded = load(run, code=code, device=device, warn=lambda message: click.echo(message, err=True))
    with Bar("evaluate", quiet=as_json):
        metrics = loaded.evaluate(list(data) or None, batch_size)
    if as_json:
        echo_json(metrics)
        return
    from seqlab.cli.tables import table

    signature = ", ".join(f"{name} {value}" for name, value in metrics.pop("signature").items())
    rows = [[name.replace("_", " "), f"{v:.4f}" if isinstance(v, float) else v] for name, v in metrics.items()]
    table(["metric", "value"], rows)
    click.echo(f"signature: {signature}")
