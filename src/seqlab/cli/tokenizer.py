"""`seqlab tokenizer`: train a tokenizer, use it, and compare several."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqlab.cli.completion import files, folders, recipe_names

if TYPE_CHECKING:
    from seqlab.recipe import PartSettings
    from seqlab.tokenizers import Tokenizer
    from seqlab.tokenizers.measure import Measure

Texts = Callable[[bool], Iterable[str]]
MOST_WORDS = 8
SAMPLE = "The unhappiest tokenizers can't re-read 1,234 naïve words, e.g. “antidisestablishmentarianism”!"


@click.group(
    invoke_without_command=True,
    epilog="Example: seqlab tokenizer train bpe book.txt --vocab-size 2000 --out tokenizers/book",
)
@click.pass_context
def tokenizer(context: click.Context) -> None:
    """Train, use and compare tokenizers.

    A tokenizer is stored in a folder. Commands that take such a folder also take a run folder.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@tokenizer.command(epilog="Example: seqlab tokenizer train wordpiece book.txt lowercase=true --out tokenizers/book")
@click.argument("kind")
@click.argument("given", nargs=-1, required=True, metavar="FILE... [KEY=VALUE]...", shell_complete=files)
@click.option("--vocab-size", type=int, help="Size of the vocabulary, including special tokens.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    shell_complete=folders,
    help="Where to save the tokenizer.",
)
def train(kind: str, given: tuple[str, ...], vocab_size: int | None, out: Path) -> None:
    """Learn a vocabulary from texts.

    KIND is character, byte, word, bpe, classic-bpe, ...; the error for an unknown KIND lists them all. FILE may also be
    a folder, a pattern in quotes, a .gz file or the name of a built-in data set. KEY=VALUE sets a key of the recipe
    section `tokenizer`: lowercase=true, min_frequency=5, ...
    """
    from seqlab.cli.display import Bar
    from seqlab.recipe import DataSettings
    from seqlab.tokenizers.fitted import fitted

    files = [one for one in given if "=" not in one or Path(one).exists()]
    if not files:
        raise click.UsageError("give a FILE to learn from")
    settings = _settings(kind, vocab_size, f"--vocab-size {vocab_size}", [one for one in given if one not in files])
    _check_free(out)
    with Bar("tokenizer"):
        learned = fitted(settings, DataSettings(train=files, valid=[]))
    learned.save(out)
    click.echo(f"{out}: {learned.kind}, {learned.vocab_size} tokens")


def _check_free(out: Path) -> None:
    """Check that a tokenizer can be saved here, before anything is learnt."""
    from seqlab.errors import RunError

    hint = "choose another folder for --out"
    above = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not above.is_dir():
        raise RunError("is a file, not a folder", where=str(above), hint=hint)
    if not os.access(above, os.W_OK | os.X_OK):
        raise RunError("cannot write here", where=str(above), hint=hint)
    if (out / "tokenizer.json").exists():
        raise RunError("already holds a tokenizer", where=str(out), hint=hint)


@tokenizer.command(epilog='Example: seqlab tokenizer encode runs/my-run "To be, or not to be"')
@click.argument("folder", type=click.Path(path_type=Path), shell_complete=folders)
@click.argument("text", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print ids, pieces and offsets as JSON.")
def encode(folder: Path, text: str | None, as_json: bool) -> None:
    """Print the ids of a text, and the piece that each stands for.

    Without TEXT, or if it is -, the text is read from standard input.
    """
    from seqlab.cli.streams import read_stdin

    loaded = _loaded(folder)
    encoding = loaded.encode(read_stdin() if text in (None, "-") else str(text))
    pieces = [loaded.token(index) for index in encoding.ids]
    if as_json:
        found = {"ids": encoding.ids, "pieces": pieces, "offsets": encoding.offsets}
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        click.echo(" ".join(map(str, encoding.ids)))
        click.echo("|".join(pieces))


@tokenizer.command(epilog="Example: seqlab tokenizer decode tokenizers/book 312 7 45")
@click.argument("folder", type=click.Path(path_type=Path), shell_complete=folders)
@click.argument("ids", nargs=-1, type=int)
def decode(folder: Path, ids: tuple[int, ...]) -> None:
    """Print the text that IDS stand for.

    Without IDS, they are read from standard input, separated by spaces.
    """
    from seqlab.cli.streams import read_stdin
    from seqlab.errors import DataError

    loaded = _loaded(folder)
    given = list(ids) or _integers(read_stdin())
    for index in given:
        if not 0 <= index < loaded.vocab_size:
            raise DataError(
                f"token {index} does not exist", where=str(folder), hint=f"give ids from 0 to {loaded.vocab_size - 1}"
            )
    click.echo(loaded.decode(given))


@tokenizer.command(
    epilog="Example: seqlab tokenizer show bpe:2000 character runs/my-run --data book.txt --word unhappiest"
)
@click.argument("tokenizers", nargs=-1, required=True, metavar="TOKENIZER...", shell_complete=folders)
@click.option("--text", help="Measure on this text.")
@click.option(
    "--data", metavar="FILE", shell_complete=files, help="Measure on this file, folder, pattern or built-in data set."
)
@click.option(
    "--learn",
    metavar="FILE",
    shell_complete=files,
    help="Learn each KIND from this file instead of the text it is measured on.",
)
@click.option(
    "--recipe",
    metavar="RECIPE",
    shell_complete=recipe_names,
    help="Learn from a recipe's training data and measure on its held-out data.",
)
@click.option("--word", "words", multiple=True, help="Show how this word is split; can be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(
    tokenizers: tuple[str, ...],
    text: str | None,
    data: str | None,
    learn: str | None,
    recipe: str | None,
    words: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare tokenizers on a text.

    Shows the vocabulary size, the number of tokens, the unknown tokens, and how words are split. TOKENIZER is the
    folder of a tokenizer or of a run, or a KIND that is learnt on the spot, such as word or bpe:2000 (with a vocabulary
    size). Without --word, words are chosen on which tokenizers tend to differ: a frequent, a rare, an unseen and a
    scrambled one.
    """
    from seqlab.tokenizers.measure import measure, pieces, telling_words

    if sum(given is not None for given in (text, data, recipe)) > 1:
        raise click.UsageError("give one of --text, --data and --recipe")
    if learn is not None and recipe is not None:
        raise click.UsageError("give --learn or --recipe, not both")
    measured, learnt = _sources(text, data, learn, recipe)
    loaded = {name: _found(name, learnt) for name in tokenizers}
    if learnt is measured and any(_is_kind(name) for name in tokenizers):
        click.echo("kinds are learnt from the text they are measured on, which flatters them: see --learn", err=True)
    if words:
        labels = dict.fromkeys(words, "")
    elif data is None and recipe is None:
        labels = dict.fromkeys((SAMPLE if text is None else text).split()[:MOST_WORDS], "")
    else:
        labels = {
            word: label
            for label, word in telling_words(measured(all(one.unit == "symbol" for one in loaded.values()))).items()
        }
    rows = [
        {
            "tokenizer": name,
            **_row(measure(one, measured(one.unit == "symbol"))),
            "words": {word: pieces(one, word) for word in labels},
        }
        for name, one in loaded.items()
    ]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
    else:
        _print_tables(rows, labels)


def _sources(text: str | None, data: str | None, learn: str | None, recipe: str | None) -> tuple[Texts, Texts]:
    """Return what to measure on and what to learn from: functions that give their texts, or symbols, at every call."""
    from seqlab.data.reading.readers import read, read_texts
    from seqlab.recipe import Recipe

    if recipe is not None:
        settings = Recipe.load(recipe).data
        return (
            lambda symbols: (record.fields["text"] for record in read(settings, "valid", symbols=symbols)),
            lambda symbols: (record.fields["text"] for record in read(settings, "train", symbols=symbols)),
        )
    given = [SAMPLE if text is None else text]
    measured: Texts = (lambda symbols: read_texts([data], symbols)) if data is not None else lambda symbols: given
    return measured, measured if learn is None else lambda symbols: read_texts([learn], symbols)


def _is_kind(name: str) -> bool:
    from seqlab import registry

    return name.partition(":")[0] in registry.names("tokenizer")


def _found(name: str, learnt: Texts) -> Tokenizer:
    """Load the tokenizer of a folder, or learn one of a kind; `./word` is a folder even if `word` is a kind."""
    from seqlab import registry
    from seqlab.errors import RecipeError, RunError, nearest

    kind, _, size = name.partition(":")
    if _is_kind(name):
        if size and not size.isdecimal():
            raise RecipeError(f"'{name}': the vocabulary size must be a whole number", hint=f"write {kind}:2000")
        cls = registry.find("tokenizer", kind)
        settings = _settings(kind, int(size) if size else None, name)
        learned: Tokenizer = cls.fit(learnt(cls.unit == "symbol"), settings)
        return learned
    if not Path(name).exists():
        hint = f"{nearest(kind, registry.names('tokenizer'))}, or give a folder that has a tokenizer"
        raise RunError(f"neither a folder nor a kind of tokenizer: '{name}'", hint=hint)
    return _loaded(Path(name))


def _loaded(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder; the files of a run must be unchanged since its training."""
    from seqlab.tokenizers import load_tokenizer
    from seqlab.training.manifest import check_run

    if (folder / "recipe.yaml").is_file():
        check_run(folder)
    return load_tokenizer(folder)


def _row(found: Measure) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "vocab_size": found.vocab_size,
        "tokens": found.tokens,
        "tokens_per_word": round(found.tokens_per_word, 2),
        "characters_per_token": round(found.characters_per_token, 2),
        "bytes_per_token": round(found.bytes_per_token, 2),
        "unknown": found.unknown,
        "unknown_share": round(found.unknown_share, 4),
    }


def _print_tables(rows: list[dict[str, Any]], labels: dict[str, str]) -> None:
    from seqlab.cli.tables import table

    titles = ["tokenizer", "kind", "vocabulary", "tokens", "tokens/word", "characters/token", "bytes/token", "unknown"]
    cells = [[f"{cell:.2f}" if isinstance(cell, float) else cell for cell in list(row.values())[:7]] for row in rows]
    unknown = [f"{row['unknown']:,} ({row['unknown_share']:.1%})" if row["unknown"] else "–" for row in rows]
    table(titles, [[*own, count] for own, count in zip(cells, unknown, strict=True)])
    cuts = []
    for word, label in labels.items():
        for number, row in enumerate(rows):
            title = "" if number else f"{word} ({label})" if label else word
            cut = row["words"][word]
            cuts.append([title, row["tokenizer"], len(cut), "|".join(cut)])
    table(["word", "tokenizer", "tokens", "split"], cuts)


def _settings(kind: str, vocab_size: int | None, place: str, overrides: Iterable[str] = ()) -> PartSettings:
    """Return the settings of a kind, as in a recipe; `place` is where the size was given."""
    from seqlab.errors import RecipeError
    from seqlab.recipe import part_settings
    from seqlab.recipe_tree import RecipeTree, settings_of

    section = RecipeTree({"kind": kind}, file=kind)
    if vocab_size is not None:
        if "vocab_size" not in settings_of("tokenizer", kind, None).model_fields:
            what = f"the vocabulary size of '{kind}' cannot be chosen"
            raise RecipeError(what, where=place, hint="leave the size out, or choose another kind, such as bpe")
        section.set("vocab_size", vocab_size, place)
    for override in overrides:
        section.override(override)
    return part_settings("tokenizer", section)


def _integers(text: str) -> list[int]:
    from seqlab.errors import DataError

    try:
        return [int(part) for part in text.split()]
    except ValueError:
        raise DataError("ids must be whole numbers separated by spaces", where="standard input") from None
