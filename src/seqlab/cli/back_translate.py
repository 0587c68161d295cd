"""`seqlab back-translate`"""

from __future__ import annotations

import json
import math
import shlex

import click

from seqlab.cli.completion import files, folders
from seqlab.cli.options import code_option, device


@click.command(epilog="Example: seqlab back-translate runs/en-de mono.en --temperature 1 --out synthetic.tsv")
@click.argument("run", shell_complete=folders)
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=files)
@click.option(
    "--out", required=True, metavar="FILE", shell_complete=files, help="Where to write the pairs: .tsv or .jsonl."
)
@click.option("--beam", type=click.IntRange(1), help="Beam size; 1 is greedy. The recipe's by default.")
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    help="Sample at this temperature instead of searching; 1 samples from the model's own distribution.",
)
@click.option(
    "--seed",
    default=0,
    type=click.IntRange(0, 2**63 - 1),
    metavar="INTEGER",
    help="The same seed gives the same samples.",
)
@click.option(
    "--batch-size", type=click.IntRange(1), help="Number of examples computed together; affects only speed and memory."
)
@device
@code_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def back_translate(
    run: str,
    files: tuple[str, ...],
    out: str,
    beam: int | None,
    temperature: float | None,
    seed: int,
    batch_size: int | None,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Make training pairs from monolingual text.

    Each line of FILE, or of standard input, is a target; its translation by RUN, which translates from target to
    source, is the source. Lines are left out if they are empty, too long or have an empty translation.
    """
    if beam is not None and temperature is not None:
        raise click.UsageError("--beam searches and --temperature samples: leave one of them out")
    if temperature is not None and not math.isfinite(temperature):
        raise click.UsageError(f"--temperature {temperature} is not a finite number")
    from seqlab.cli.display import Bar
    from seqlab.cli.streams import echo_json, given_or_typed
    from seqlab.runs.back_translation import back_translate as made_by
    from seqlab.runs.run import load

    loaded = load(run, code=code, device=device)
    choose = None if temperature is None else loaded.choose(seed, temperature)
    loaded = loaded if beam is None else loaded.changed({"decoding.beam": beam})
    with given_or_typed(files) as given, Bar("back-translate", quiet=as_json):
        made = made_by(loaded, given, out, choose=choose, batch_size=batch_size)
    if as_json:
        echo_json({"pairs": out, "written": made.written, "skipped": made.skipped})
        return
    left = f", {made.skipped:,} of {made.written + made.skipped:,} lines left out" if made.skipped else ""
    click.echo(f"{made.written:,} pairs{left}: {out}")
    source, target = map(json.dumps, made.columns)
    named = [f"data.train=[PAIRS, {json.dumps(out)}]", f"data.columns={{source: {source}, target: {target}}}"]
    click.echo("to train on them together with PAIRS that have the same columns:")
    click.echo(f"try: seqlab train translation/transformer {' '.join(map(shlex.quote, named))}")
