"""`seqlab score`"""

from __future__ import annotations

import json
import sys

import click


@click.command(epilog="Example: printf 'a cat sat\\nsat cat a\\n' | seqlab score runs/mine --rank")
@click.argument("run")
@click.argument("file", required=False)
@click.option("--rank", is_flag=True, help="Most probable first.")
@click.option(
    "--suggest",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=5,
    metavar="[K]",
    help="The K (5) most likely next words after each line.",
)
@click.option("--code", metavar="FILE", help="The file that the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def score(run: str, file: str | None, rank: bool, suggest: int | None, code: str | None, as_json: bool) -> None:
    """Log-probability (natural) and perplexity of each line of FILE, or of standard input."""
    from seqlab.run import load

    lines = _lines(file)
    loaded = load(run, code=code, warn=lambda message: click.echo(message, err=True))
    if suggest is not None:
        for line in lines:
            words = loaded.suggest(line, suggest)
            found = [{"word": one.word, "log_probability": one.log_probability} for one in words]
            listed = ", ".join(f"{one.word} ({one.log_probability:.2f})" for one in words)
            click.echo(json.dumps({"text": line, "next": found}) if as_json else f"{line} … {listed}")
        return
    scored = list(zip(lines, loaded.score(lines), strict=True))
    if rank:
        scored.sort(key=lambda pair: -pair[1].log_probability)
    if not as_json:
        click.echo("log-prob   perplexity  tokens  text")
    for line, one in scored:
        if as_json:
            figures = {
                "log_probability": one.log_probability,
                "perplexity": one.perplexity,
                "tokens": one.tokens,
            }
            click.echo(json.dumps({"text": line, **figures}))
        else:
            click.echo(f"{one.log_probability:9.3f}  {one.perplexity:10.2f}  {one.tokens:6d}  {line}")


def _lines(file: str | None) -> list[str]:
    if file is None or file == "-":
        return [line.rstrip("\n") for line in sys.stdin if line.strip()]
    from seqlab.data.readers import read
    from seqlab.recipe import DataSettings

    settings = DataSettings(train=file, valid=file, documents="line", format="txt")
    return [record.fields["text"] for record in read(settings, "valid")]
