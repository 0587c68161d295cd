"""`seqlab predict`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seqlab.cli.completion import files, folders
from seqlab.cli.options import checkpoint, code_option, device, settings_among


@click.command(epilog="Example: echo 'a fine film' | seqlab predict runs/sentiment --json")
@click.argument("run", shell_complete=folders)
@click.argument("files", nargs=-1, metavar="[FILE | KEY=VALUE]...", shell_complete=files)
@click.option("--lines", is_flag=True, help="Read FILE as plain text with one example per line, even an empty one.")
@click.option(
    "--batch-size", type=click.IntRange(1), help="Number of examples computed together; affects only speed and memory."
)
@click.option("--steps", type=click.IntRange(1), help="Number of steps to forecast; the recipe's horizon by default.")
@click.option("--beam", type=click.IntRange(1), help="Beam size, for runs that generate texts; 1 is greedy.")
@click.option(
    "--n-best",
    type=click.IntRange(1),
    help="Show the N best answers of the beam search, each with its ranking score and log-probability.",
)
@click.option(
    "--alignments",
    is_flag=True,
    help="Show which source token each generated token attends to most, as source-target pairs of positions from 0; "
    "--json also gives the tokens.",
)
@checkpoint
@device
@code_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def predict(
    run: str,
    files: tuple[str, ...],
    lines: bool,
    batch_size: int | None,
    steps: int | None,
    beam: int | None,
    n_best: int | None,
    alignments: bool,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Predict with RUN for each example in FILE, or for each line of standard input if FILE is missing or -.

    Every line gets an answer, even an empty one. With --json, each answer has its `file` and `line`, the `text` as
    given, and the number of its tokens that are not in the vocabulary (`unknown`).

    KEY=VALUE says how to read FILE if its columns or format differ from the training data: data.columns.text=body,
    data.format=csv or data.documents=line.
    """
    from seqlab.cli.streams import STDIN, echo_json, given_or_typed, is_typed, note_unknown
    from seqlab.errors import RunError
    from seqlab.runs.run import load
    from seqlab.tasks.abilities import Writes

    loaded = load(run, checkpoint=checkpoint, code=code, device=device)
    if beam or n_best or alignments:
        if not isinstance(loaded.task, Writes):
            hint = "leave --beam, --n-best and --alignments out"
            raise RunError("does not generate texts", where=str(loaded.folder), hint=hint)
        if beam and n_best and n_best > beam:
            raise click.UsageError(f"--n-best {n_best} is more than --beam {beam}")
        width = max(beam or loaded.recipe.decoding.beam or 1, n_best or 1)
        searched = {"beam": width, "best": n_best or loaded.recipe.decoding.best, "alignments": alignments}
        loaded = loaded.changed({f"decoding.{key}": value for key, value in searched.items()})
    named, reading = settings_among(files)
    loaded = loaded.changed(reading) if reading else loaded
    typed, unknown, whole = is_typed(named), [], dict[str, None]()
    with given_or_typed(named) as given:
        for answer in loaded.predict(given, lines=typed or lines, batch_size=batch_size, steps=steps):
            if typed and "file" in answer:
                answer["file"] = STDIN
            unknown.append((_place(answer), answer.get("unknown", 0)))
            if "error" in answer:
                click.echo(f"{_place(answer)}: {answer['error']}; not answered", err=True)
            if _several_lines(answer):
                whole[answer["file"]] = None
            if as_json:
                echo_json(answer)
                continue
            for one in answer.get("n_best", [answer]):
                shown = {**answer, **one}
                columns = ["rank", "log_probability", "answer", "text"] if n_best else ["answer", "text"]
                columns = [key for key in columns if key != "text" or "tags" not in answer]  # tags come with the words
                columns += ["alignment"] if alignments else []
                there = [key for key in columns if key in shown or "error" in shown]
                click.echo("\t".join(_shown(shown.get(key, "")) for key in there))
    if whole:
        first, *others = whole
        names, each = (f"{first} and {len(others):,} more are", " each") if others else (f"{first} is", "")
        click.echo(f"note: {names} answered as one text{each}; use --lines to answer line by line", err=True)
    note_unknown(unknown)


def _place(answer: dict[str, Any]) -> str:
    counted = next((key for key in ("line", "row") if key in answer), None)
    return f"{answer['file']}, {counted} {answer[counted]}" if counted else answer.get("file", "")


def _several_lines(answer: dict[str, Any]) -> bool:
    """Whether a whole plain text was read as one example."""
    from seqlab.data.formats.files import format_of

    return "\n" in answer.get("text", "").strip() and format_of(Path(answer["file"])) == "txt"


def _shown(value: object) -> str:
    """Format a value on one line."""
    return f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
