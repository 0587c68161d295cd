"""`seqlab score`"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from seqlab.cli.completion import files, folders
from seqlab.cli.options import checkpoint, code_option, device

if TYPE_CHECKING:
    from seqlab.decoding.scoring import Score


@click.command(epilog="Example: printf 'a cat sat\\nsat cat a\\n' | seqlab score runs/mine --rank")
@click.argument("run", shell_complete=folders)
@click.argument("file", required=False, shell_complete=files)
@click.option("--rank", is_flag=True, help="Sort the lines, most probable first.")
@click.option(
    "--suggest",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=5,
    metavar="[K]",
    help="Show the K most likely next words after each line (5 by default).",
)
@checkpoint
@device
@code_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def score(
    run: str,
    file: str | None,
    rank: bool,
    suggest: int | None,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Print the natural log-probability and the perplexity of each line of FILE, or of standard input.

    Every line is scored, even an empty one: on its end alone if the run was trained on lines, otherwise on 0 tokens.
    Tokens that are not in the vocabulary are scored as the unknown token, and counted.
    """
    from seqlab.cli.display import Bar
    from seqlab.cli.streams import echo_json, note_unknown
    from seqlab.runs.run import load

    loaded = load(run, checkpoint=checkpoint, code=code, device=device)
    lines = _lines(file)
    texts = [text for _, text in lines]
    if suggest is not None:
        unknown = loaded.unknown(texts)
        for (number, text), count in zip(lines, unknown, strict=True):
            words = loaded.suggest(text, suggest)
            if as_json:
                found = [{"word": one.word, "log_probability": one.log_probability} for one in words]
                echo_json({"line": number, "text": text, "unknown": count, "next": found})
            else:
                click.echo(f"{text} … {', '.join(f'{one.word} ({one.log_probability:.2f})' for one in words)}")
        note_unknown([(f"line {number}", count) for (number, _), count in zip(lines, unknown, strict=True)])
        return
    with Bar("score", quiet=as_json):
        scored = [(number, text, one) for (number, text), one in zip(lines, loaded.score(texts), strict=True)]
    if rank:
        scored.sort(key=lambda line: (not line[2].tokens, -line[2].log_probability))  # lines without tokens come last
    if as_json:
        for number, text, one in scored:
            figures = asdict(one) | {"perplexity": one.perplexity}
            echo_json({"line": number, "text": text, **figures})
    else:
        _show(scored)
    note_unknown([(f"line {number}", one.unknown) for number, _, one in scored])


def _lines(file: str | None) -> list[tuple[int, str]]:
    """Return all lines with their numbers, including empty ones."""
    from seqlab.cli.streams import STDIN, read_stdin
    from seqlab.data.reading.readers import read
    from seqlab.errors import DataError
    from seqlab.recipe import DataSettings

    if file is None or file == "-":
        text = read_stdin()
        if not text:
            raise DataError("no lines to score", where=STDIN, hint="give a FILE, or pipe lines in")
        lines = text.removesuffix("\n").split("\n")
        return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1)]
    settings = DataSettings(train=file, valid=file, documents="line", format="txt", empty_lines=True)
    return [(record.line, record.fields["text"]) for record in read(settings, "valid")]


def _show(scored: list[tuple[int, str, Score]]) -> None:
    """Print the scores, with a column for unknown tokens if there are any."""
    some = any(one.unknown for _, _, one in scored)
    click.echo(f"log-prob   perplexity  tokens{'  unknown' if some else ''}  text")
    for _, text, one in scored:
        perplexity = f"{one.perplexity:10.2f}" if one.tokens else f"{'–':>10}"
        unknown = f"  {one.unknown:7d}" if some else ""
        click.echo(f"{one.log_probability:9.3f}  {perplexity}  {one.tokens:6d}{unknown}  {text}")
