"""`seqlab tokenizer`: train a tokenizer, use it, and compare several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seqlab.tokenizers.measure import Measure

SAMPLE = "The unhappiest tokenizers can't re-read 1,234 naïve words, e.g. “antidisestablishmentarianism”!"


@click.group(
    invoke_without_command=True,
    epilog="Example: seqlab tokenizer train bpe book.txt --vocab-size 2000 --out tokenizers/book",
)
@click.pass_context
def tokenizer(context: click.Context) -> None:
    """Train, use and compare tokenizers.

    A tokenizer lives in a folder; where one is asked for, a run will do.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@tokenizer.command(epilog="Example: seqlab tokenizer train bpe book.txt --vocab-size 2000 --out tokenizers/book")
@click.argument("kind")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--vocab-size", type=int, help="Tokens in the vocabulary, special ones included.")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Where to save it.")
def train(kind: str, files: tuple[str, ...], vocab_size: int | None, out: Path) -> None:
    """Learn a vocabulary from texts.

    KIND is character, byte, word, bpe, classic-bpe, symbols or ids. A FILE may also be a folder, a pattern in quotes,
    a .gz file or the name of a built-in data set.
    """
    from seqlab import registry
    from seqlab.cli.progress import Bar
    from seqlab.errors import RunError
    from seqlab.recipe import DataSettings
    from seqlab.tokenizers.fitted import fitted

    if (out / "tokenizer.json").exists():
        raise RunError("there is a tokenizer here already", where=str(out), hint="choose another folder for --out")
    cls = registry.find("tokenizer", kind)
    with Bar("tokenizer"):
        learned = fitted(_settings(cls, kind, vocab_size), DataSettings(train=list(files), valid=[]))
    learned.save(out)
    click.echo(f"{out}: {kind}, {learned.vocab_size} tokens")


@tokenizer.command(epilog='Example: seqlab tokenizer encode runs/my-run "To be, or not to be"')
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="Ids, pieces and offsets as JSON.")
def encode(folder: Path, text: str | None, as_json: bool) -> None:
    """The ids of a text, and the piece each stands for.

    Without TEXT, or if it is -, the text is read from the standard input.
    """
    from seqlab.cli.streams import read_stdin
    from seqlab.tokenizers import load_tokenizer

    loaded = load_tokenizer(folder)
    encoding = loaded.encode(read_stdin() if text in (None, "-") else str(text))
    pieces = [loaded.token(index) for index in encoding.ids]
    if as_json:
        found = {"ids": encoding.ids, "pieces": pieces, "offsets": encoding.offsets}
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        click.echo(" ".join(map(str, encoding.ids)))
        click.echo("|".join(pieces))


@tokenizer.command(epilog="Example: seqlab tokenizer decode tokenizers/book 312 7 45")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("ids", nargs=-1, type=int)
def decode(folder: Path, ids: tuple[int, ...]) -> None:
    """The text of ids.

    Without IDS they are read from the standard input, with blanks between them.
    """
    from seqlab.cli.streams import read_stdin
    from seqlab.errors import DataError
    from seqlab.tokenizers import load_tokenizer

    loaded = load_tokenizer(folder)
    given = list(ids) or _integers(read_stdin())
    for index in given:
        if not 0 <= index < loaded.vocab_size:
            raise DataError(
                f"there is no token {index}", where=str(folder), hint=f"ids are 0 to {loaded.vocab_size - 1}"
            )
    click.echo(loaded.decode(given))


@tokenizer.command(epilog="Example: seqlab tokenizer show tokenizers/book runs/my-run --data book.txt")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER...")
@click.option("--text", help="Measure on this text.")
@click.option("--data", metavar="FILE", help="Measure on this file, folder, pattern or built-in data set.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def show(folders: tuple[Path, ...], text: str | None, data: str | None, as_json: bool) -> None:
    """Compare tokenizers on a text: size, length of what they make of it, unknowns, and where they cut."""
    from seqlab.data.readers import read_texts
    from seqlab.tokenizers import load_tokenizer
    from seqlab.tokenizers.measure import measure

    if text is not None and data is not None:
        raise click.UsageError("give --text or --data, not both")
    measures = {}
    for folder in folders:
        loaded = load_tokenizer(folder)
        texts = read_texts([data], loaded.unit == "symbol") if data else [SAMPLE if text is None else text]
        measures[str(folder)] = measure(loaded, texts)
    if as_json:
        rows = [{"folder": folder, **_row(found), "pieces": found.pieces} for folder, found in measures.items()]
        click.echo(json.dumps(rows, ensure_ascii=False))
    else:
        _print_table(measures)


def _row(found: Measure) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "vocab_size": found.vocab_size,
        "tokens": found.tokens,
        "tokens_per_word": round(found.tokens_per_word, 2),
        "bytes_per_token": round(found.bytes_per_token, 2),
        "unknown": found.unknown,
    }


def _print_table(measures: dict[str, Measure]) -> None:
    rows = [["tokenizer", "kind", "vocabulary", "tokens", "tokens/word", "bytes/token", "unknown"]]
    rows += [[folder, *map(str, _row(found).values())] for folder, found in measures.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        click.echo("  ".join(cells))
    click.echo()
    for folder, found in measures.items():
        click.echo(f"{folder.ljust(widths[0])}  {'|'.join(found.pieces)}")


def _settings(cls: Any, kind: str, vocab_size: int | None) -> Any:
    from pydantic import ValidationError

    from seqlab.errors import RecipeError

    try:
        return cls.Settings(kind=kind) if vocab_size is None else cls.Settings(kind=kind, vocab_size=vocab_size)
    except ValidationError as error:
        fault = error.errors()[0]["msg"].lower()
        raise RecipeError(f"--vocab-size {vocab_size} does not suit '{kind}': {fault}") from None


def _integers(text: str) -> list[int]:
    from seqlab.errors import DataError

    try:
        return [int(part) for part in text.split()]
    except ValueError:
        raise DataError("ids are whole numbers with blanks between them", where="standard input") from None
