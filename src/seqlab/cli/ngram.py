"""`seqlab ngram`: the size and sparsity of n-gram models, and ARPA files."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from seqlab.cli.completion import files, folders

if TYPE_CHECKING:
    from seqlab.models.ngram import Size
    from seqlab.runs.run import Run


@click.group(invoke_without_command=True, epilog="Example: seqlab ngram show runs/my-ngram --data other.txt")
@click.pass_context
def ngram(context: click.Context) -> None:
    """Inspect n-gram models, and exchange them with other programs as ARPA files."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@ngram.command(epilog="Example: seqlab ngram show runs/my-ngram --data other.txt")
@click.argument("run", shell_complete=folders)
@click.option(
    "--data",
    multiple=True,
    metavar="FILE",
    shell_complete=files,
    help="Measure on FILE instead of the run's held-out data.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(run: str, data: tuple[str, ...], as_json: bool) -> None:
    """Show the size and sparsity of an n-gram model by order.

    n-grams: those in the model of RUN; possible: all combinations of its tokens; share: n-grams / possible; in the
    text: before pruning; once: the share of these that occur only once; held out: the share of the n-grams of the
    held-out data, or of FILE, that are in the model.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.runs.conversion import ngram_of

    loaded = _loaded(run)
    model = ngram_of(loaded)
    sizes = model.sizes(_tokens(loaded, data))
    if as_json:
        found = {"run": run, "vocab_size": model.vocab_size, "bytes": sum(size.bytes for size in sizes)}
        echo_json({**found, "orders": [asdict(size) for size in sizes]})
        return
    from seqlab.cli.tables import table

    titles = ["order", "n-grams", "possible", "share", "in the text", "once", "held out", "bytes"]
    table(titles, [_row(size) for size in sizes])
    made = loaded.recipe.to_dict()["model"]
    pruned = f"pruned {made['prune']}" if made["prune"] else "not pruned"
    how = f"{made['smoothing']}, {pruned}" if loaded.recipe.data.train else "imported"
    total, room = sum(size.ngrams for size in sizes), sum(size.bytes for size in sizes)
    click.echo(f"{how}; vocabulary of {model.vocab_size:,}; {total:,} n-grams in {room:,} bytes")


@ngram.command(name="export", epilog="Example: seqlab ngram export runs/my-ngram my.arpa.gz")
@click.argument("run", shell_complete=folders)
@click.argument("file", shell_complete=files)
def export_(run: str, file: str) -> None:
    """Write the n-gram model of RUN as an ARPA file.

    FILE is .arpa, or .arpa.gz to compress it. KenLM, SRILM and other programs can read it.
    """
    from seqlab.runs.conversion import export_arpa

    export_arpa(_loaded(run), file)
    click.echo(f"written: {file}")


@ngram.command(name="import", epilog="Example: seqlab ngram import other.arpa runs/other")
@click.argument("file", shell_complete=files)
@click.argument("out", shell_complete=folders)
def import_(file: str, out: str) -> None:
    """Make a run folder from an ARPA file.

    OUT works with score, evaluate and generate like any other run. Its tokens are the words of FILE, separated by
    spaces.
    """
    from seqlab.runs.conversion import import_arpa, ngram_of

    run = import_arpa(file, out)
    sizes = " + ".join(f"{size.ngrams:,}" for size in ngram_of(run).sizes())
    click.echo(f"{out}: {sizes} n-grams")
    click.echo(f"try: seqlab evaluate {out} --data my.txt    or: seqlab ngram show {out}")


def _loaded(run: str) -> Run:
    from seqlab.runs.run import load

    return load(run)


def _tokens(run: Run, data: tuple[str, ...]) -> Any:
    """Return the tokens of the files, or of the held-out data; None for an imported model."""
    if not data and not run.recipe.data.train:
        return None
    split: Any = run.held_out(list(data) or None)
    return split.tokens


def _row(size: Size) -> list[object]:
    def share(part: float | None, of: float = 1) -> str:
        return "–" if part is None or not of else f"{part / of:.2%}"

    return [
        size.order,
        size.ngrams,
        f"{size.possible:,}" if size.possible < 10**15 else f"{size.possible:.1e}",
        f"{size.ngrams / size.possible:.2g}",
        "–" if size.in_text is None else size.in_text,
        share(size.once, size.in_text or 0),
        share(size.hits),
        size.bytes,
    ]
