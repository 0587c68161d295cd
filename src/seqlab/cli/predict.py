"""`seqlab predict`"""

from __future__ import annotations

import click

from seqlab.cli.options import device, settings_among


@click.command(epilog="Example: echo 'a fine film' | seqlab predict runs/sentiment --json")
@click.argument("run")
@click.argument("files", nargs=-1, metavar="[FILE | KEY=VALUE]...")
@click.option("--batch-size", type=click.IntRange(1), help="Only speed and memory depend on it.")
@click.option("--steps", type=click.IntRange(1), help="How far a forecast reaches; the recipe's horizon by default.")
@click.option("--beam", type=click.IntRange(1), help="Hypotheses of a search, where answers are texts; 1 is greedy.")
@click.option(
    "--n-best",
    type=click.IntRange(1),
    help="How many answers of the search to show, with what they are ranked by and log p.",
)
@click.option(
    "--alignments",
    is_flag=True,
    help="Show which token each token of the answer looked at most: read-written, from 0; --json has the tokens.",
)
@device
@click.option("--code", metavar="FILE", help="The file that the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def predict(
    run: str,
    files: tuple[str, ...],
    batch_size: int | None,
    steps: int | None,
    beam: int | None,
    n_best: int | None,
    alignments: bool,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """What RUN answers for each example of FILE, or for each line of the input.

    KEY=VALUE says how FILE is read where it is not like the training data: data.columns.text=body, data.format=csv
    or data.documents=line.
    """
    from seqlab.cli.streams import echo_json, given_or_typed
    from seqlab.errors import RunError
    from seqlab.run import load

    loaded = load(run, code=code, device=device, warn=lambda message: click.echo(message, err=True))
    if beam or n_best or alignments:
        if not loaded.task.writes:
            hint = "leave --beam, --n-best and --alignments out"
            raise RunError("does not answer with texts", where=str(loaded.folder), hint=hint)
        if beam and n_best and n_best > beam:
            raise click.UsageError(f"--n-best {n_best} are more than the hypotheses of --beam {beam}")
        width = max(beam or loaded.recipe.decoding.beam or 1, n_best or 1)
        searched = {"beam": width, "best": n_best or loaded.recipe.decoding.best, "alignments": alignments}
        loaded = loaded.changed({f"decoding.{key}": value for key, value in searched.items()})
    named, reading = settings_among(files)
    loaded = loaded.changed(reading) if reading else loaded
    with given_or_typed(named) as given:
        answers = loaded.predict(given, lines=not named, batch_size=batch_size, steps=steps)
        for number, answer in enumerate(answers, start=1):
            if "error" in answer:
                click.echo(f"example {number}: {answer['error']}; not answered", err=True)
            if as_json:
                echo_json(answer)
                continue
            for one in answer.get("n_best", [answer]):
                shown = {**answer, **one}
                columns = ["rank", "log_probability", "answer", "text"] if n_best else ["answer", "text"]
                columns += ["alignment"] if alignments else []
                there = [key for key in columns if key in shown or "error" in shown]
                click.echo("\t".join(_shown(shown.get(key, "")) for key in there))


def _shown(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
