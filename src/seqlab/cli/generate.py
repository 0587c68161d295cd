"""`seqlab generate`"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import click

from seqlab.cli.completion import folders
from seqlab.cli.options import checkpoint, code_option, device


@click.command(epilog="Example: seqlab generate runs/mine --prompt 'The list' --tokens 80 --top-p 0.9 --seed 1")
@click.argument("run", shell_complete=folders)
@click.option("--prompt", default="", help="Text to continue.")
@click.option("--tokens", type=click.IntRange(1), help="Maximum number of new tokens.")
@click.option("--temperature", type=click.FloatRange(0), help="0 is greedy; higher is more random.")
@click.option("--top-k", type=click.IntRange(1), help="Sample only from the K most likely tokens.")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Sample only from the most likely tokens whose probabilities sum to P.",
)
@click.option("--beam", type=click.IntRange(1), help="Search for the most probable text with this beam size instead.")
@click.option("--samples", default=1, type=click.IntRange(1), help="Number of texts to generate.")
@click.option(
    "--seed", default=0, type=click.IntRange(0, 2**63 - 1), metavar="INTEGER", help="The same seed gives the same text."
)
@checkpoint
@device
@code_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def generate(
    run: str,
    prompt: str,
    tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    beam: int | None,
    samples: int,
    seed: int,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Continue a prompt with RUN. A single text is printed as it is generated.

    For a translator, the prompt is the source, and only the translation is printed.
    """
    from seqlab.cli.streams import note_unknown
    from seqlab.runs.run import load
    from seqlab.tasks.abilities import Writes

    if beam is not None and any(option is not None for option in (temperature, top_k, top_p)):
        raise click.UsageError("--beam searches instead of sampling: leave out --temperature, --top-k and --top-p")
    for name, value in {"--temperature": temperature, "--top-p": top_p}.items():
        if value is not None and not math.isfinite(value):
            raise click.UsageError(f"{name} {value} is not a finite number")
    loaded = load(run, checkpoint=checkpoint, code=code, device=device)
    unknown = loaded.unknown([prompt])[0]
    begins = "" if isinstance(loaded.task, Writes) else prompt
    if beam is not None:
        from seqlab.decoding.beam import Beam

        found = loaded.beam(prompt, Beam(beam), tokens)[:samples]
        scores = {"log_probabilities": [score for _, score in found]}
        _show([begins + text for text, _ in found], {**scores, "unknown": unknown}, as_json)
    elif as_json or samples > 1:
        choose = loaded.choose(seed, temperature, top_k, top_p)
        texts = loaded.generate(prompt, tokens=tokens, choose=choose, samples=samples)
        _show([begins + text for text in texts], {"unknown": unknown}, as_json)
    else:
        choose = loaded.choose(seed, temperature, top_k, top_p)
        pieces = (piece for _, piece in loaded.stream([prompt], choose=choose, tokens=tokens))
        first = next(pieces)  # an unreadable prompt is an error before anything is printed
        for piece in chain((begins, first), pieces):
            click.echo(piece, nl=False)
        click.echo()
    note_unknown([("--prompt", unknown)])


def _show(texts: list[str], about: dict[str, Any], as_json: bool) -> None:
    if as_json:
        from seqlab.cli.streams import echo_json

        echo_json({"texts": texts, **about})
        return
    scores = about.get("log_probabilities")
    for number, text in enumerate(texts, 1):
        score = "" if scores is None else f" (log-probability {scores[number - 1]:.3f})"
        click.echo(f"--- {number}{score}\n{text}")
