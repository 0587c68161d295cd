"""`seqlab score`"""

from __future__ import annotations

import click

from seqlab.cli.options import device


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
@device
@click.option("--code", metavar="FILE", help="The file that the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def score(
    run: str, file: str | None, rank: bool, suggest: int | None, device: str, code: str | None, as_json: bool
) -> None:
    """Log-probability (natural) and perplexity of each line of FILE, or of standard input."""
    from seqlab.cli.progress import Bar
    from seqlab.cli.streams import echo_json
    from seqlab.run import load

    loaded = load(run, code=code, device=device, warn=lambda message: click.echo(message, err=True))
    lines = _lines(file)
    if suggest is not None:
        for line in lines:
            words = loaded.suggest(line, suggest)
            if as_json:
                found = [{"word": one.word, "log_probability": one.log_probability} for one in words]
                echo_json({"text": line, "next": found})
            else:
                click.echo(f"{line} … {', '.join(f'{one.word} ({one.log_probability:.2f})' for one in words)}")
        return
    with Bar("score", quiet=as_json):
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
            echo_json({"text": line, **figures})
        else:
            click.echo(f"{one.log_probability:9.3f}  {one.perplexity:10.2f}  {one.tokens:6d}  {line}")


def _lines(file: str | None) -> list[str]:
    from seqlab.cli.streams import read_stdin
    from seqlab.data.readers import read
    from seqlab.errors import DataError
    from seqlab.recipe import DataSettings

    if file is None or file == "-":
        lines = [line.removesuffix("\r") for line in read_stdin().split("\n") if line.strip()]
        if not lines:
            raise DataError("no lines to score", where="standard input", hint="give a FILE, or pipe lines in")
        return lines
    settings = DataSettings(train=file, valid=file, documents="line", format="txt")
    return [record.fields["text"] for record in read(settings, "valid")]
