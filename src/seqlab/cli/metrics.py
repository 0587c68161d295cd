"""`seqlab metrics`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqlab.cli.completion import files
from seqlab.cli.options import OWN_CLASSES, code_option

if TYPE_CHECKING:
    from seqlab.metrics import Difference, Figure
    from seqlab.recipe import PartSettings

STDIN = "-"


@click.command(
    epilog="Example: seqlab metrics mine.txt reference.txt --metric bleu,chrf,wer --against other.txt --json"
)
@click.argument("hypothesis", metavar="HYP", shell_complete=files)
@click.argument("references", metavar="REF...", nargs=-1, required=True, shell_complete=files)
@click.option(
    "--metric",
    "names",
    default="bleu,chrf,ter",
    show_default=True,
    metavar="NAMES",
    help="Any of bleu, chrf, chrf++, ter, rouge (rouge-1, rouge-2, rouge-l), meteor, wer, cer, exact, "
    "or your own (--code).",
)
@click.option(
    "--against",
    "others",
    multiple=True,
    metavar="FILE",
    shell_complete=files,
    help="Output of another system to compare with: is the difference significant?",
)
@click.option("--lowercase", is_flag=True, help="BLEU, chrF, WER, CER, exact: ignore case (the others always do).")
@click.option("--stem", is_flag=True, help="ROUGE: compare word stems, so that 'runs' matches 'running'.")
@click.option(
    "--tokenize",
    type=click.Choice(["13a", "intl", "zh", "char", "none"]),
    default="13a",
    show_default=True,
    help="BLEU: how to split words; zh for Chinese, char for other texts without spaces.",
)
@click.option(
    "--resamples",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Number of resamples for the intervals; 0 computes none.",
)
@click.option("--seed", type=click.IntRange(0), default=12345, show_default=True, help="Seed of the resampling.")
@code_option(OWN_CLASSES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def metrics(
    hypothesis: str,
    references: tuple[str, ...],
    names: str,
    others: tuple[str, ...],
    lowercase: bool,
    stem: bool,
    tokenize: str,
    resamples: int,
    seed: int,
    code: str | None,
    as_json: bool,
) -> None:
    """Score HYP, the output of any system, against one or more REF. Line n of HYP is compared with line n of each REF.

    Files are plain text or .gz; - is standard input. Scores are percentages over the whole text, with 95 % intervals
    from resampling lines.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.metrics import Judged

    files = [hypothesis, *references, *others]
    if files.count(STDIN) > 1:
        raise click.UsageError("only one of the files can be standard input (-)")
    if others and not resamples:
        raise click.UsageError("--against needs --resamples above 0")
    if code is not None:
        from seqlab.runs.run import use_code

        use_code(code)
    asked = _asked(names, {"lowercase": lowercase, "stem": stem, "tokenize": tokenize})
    texts = {name: _lines(name) for name in files}
    for name in files[1:]:
        _same_length(hypothesis, texts[hypothesis], name, texts[name])
    those = list(zip(*(texts[name] for name in references), strict=True))
    judged = {
        name: Judged(asked, texts[name], those, resamples=resamples, seed=seed)
        for name in dict.fromkeys([hypothesis, *others])
    }
    figures = {name: one.figures() for name, one in judged.items()}
    differences = {name: judged[hypothesis].against(judged[name]) for name in others}
    if as_json:
        plain = {name: _plain(figures[name]) for name in figures}
        about = {"lines": len(those), "resamples": resamples, "seed": seed, "metrics": plain[hypothesis]}
        compared = [
            {"file": name, "metrics": plain[name], "differences": _plain(found)} for name, found in differences.items()
        ]
        notes = judged[hypothesis].cautions
        echo_json({"file": hypothesis, **about, "against": compared, **({"notes": notes} if notes else {})})
        return
    _show(hypothesis, figures, differences)


def _asked(names: str, options: dict[str, Any]) -> list[PartSettings]:
    """Return the settings of each metric, with the options that it accepts."""
    from seqlab import registry
    from seqlab.metrics.judging import GROUPS

    asked = []
    for given in filter(None, map(str.strip, names.split(","))):
        for name in GROUPS.get(given, (given,)):
            settings = registry.find("metric", name, where="--metric").Settings
            own = {key: value for key, value in options.items() if key in settings.model_fields}
            asked.append(settings(kind=name, **own))
    return asked


def _lines(file: str) -> list[str]:
    """Return all lines of a text, including empty ones, without line endings."""
    from seqlab.cli.streams import read_stdin
    from seqlab.data.formats.files import find_files, lines, pieces
    from seqlab.errors import DataError

    if file == STDIN:
        found = read_stdin().removesuffix("\n").split("\n")
        found = [] if found == [""] else found
    elif Path(file).is_dir():
        raise DataError("is a folder", where=file, hint="give a file")
    else:
        path, *more = find_files(file)
        if more:
            raise DataError(f"matches {1 + len(more)} files", where=file, hint="give one file")
        found = [line for _, line in lines(pieces(path), file)]
    if not found:
        raise DataError("has no lines", where=_name(file), hint="give a file with at least one line; it may be empty")
    return [line.removesuffix("\r") for line in found]


def _same_length(one: str, ours: list[str], other: str, theirs: list[str]) -> None:
    from seqlab.errors import DataError

    if len(ours) != len(theirs):
        what = f"{_name(one)} has {_count(ours)} and {_name(other)} has {_count(theirs)}"
        raise DataError(what, hint="give files with the same number of lines")


def _count(lines: list[str]) -> str:
    return f"{len(lines):,} line{'s' if len(lines) != 1 else ''}"


def _name(file: str) -> str:
    return "standard input" if file == STDIN else file


def _title(file: str) -> str:
    return Path(_name(file)).name


def _plain(found: dict[str, Figure] | dict[str, Difference]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in found.items()}


def _show(
    hypothesis: str, figures: dict[str, dict[str, Figure]], differences: dict[str, dict[str, Difference]]
) -> None:
    from seqlab.cli.tables import shown, table

    mine = figures[hypothesis]
    rows = [[name, one.better, shown(one.value), *_between(one.interval)] for name, one in mine.items()]
    resampled = any(one.interval for one in mine.values())
    table(["metric", "better", _title(hypothesis), *(["95 % interval"] if resampled else [])], rows)
    for other, found in differences.items():
        rows = [
            [
                name,
                shown(figures[other][name].value),
                shown(one.value, "+.2f"),
                *_between(one.interval),
                shown(one.p_value, ".3f"),
                f"{shown(100 * one.better_in, '.1f')} %",
            ]
            for name, one in found.items()
        ]
        table(["metric", _title(other), "difference", "95 % interval", "p", f"{_title(hypothesis)} better in"], rows)
    (lines,) = {one.lines for one in mine.values()}
    click.echo(f"{lines:,} line{'s' if lines != 1 else ''}; signatures:")
    for one in mine.values():
        click.echo(f"  {one.signature}")


def _between(interval: tuple[float, float] | None) -> list[str]:
    from seqlab.cli.tables import shown

    if interval is None:
        return []
    low, high = map(shown, interval)
    return [low if low == "–" else f"{low} to {high}"]
