"""`seqlab compare`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqlab.cli.completion import folders, recipes_and_keys
from seqlab.cli.options import OWN_CLASSES, code_option

if TYPE_CHECKING:
    from seqlab.metrics.lengths import Bin
    from seqlab.recipe import Recipe
    from seqlab.runs.comparison import Result


@click.command(epilog="Example: seqlab compare lm/ngram lm/lstm lm/gpt --budget 60s --seeds 3 data.train=my.txt")
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE... [KEY=VALUE]...", shell_complete=recipes_and_keys)
@click.option(
    "--budget", metavar="TIME", help="Training time of each recipe, 60s by default; or set training.steps=N instead."
)
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1), help="Number of seeds to train each recipe with."
)
@click.option(
    "--out", default="runs/compare", show_default=True, shell_complete=folders, help="Folder for the runs and the plot."
)
@code_option(OWN_CLASSES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(
    recipes: tuple[str, ...], budget: str | None, seeds: int, out: str, code: str | None, as_json: bool
) -> None:
    """Train each RECIPE on the same budget and show which one wins, and at what cost: one table, one plot.

    Models that generate texts, such as translators, are also compared by source length.

    KEY=VALUE sets a key in all recipes. Finished runs in the folder are reused.
    """
    from seqlab.cli.display import Bar
    from seqlab.recipe_tree import parsed
    from seqlab.runs.comparison import compare as run_all
    from seqlab.runs.comparison import says_how_long

    overrides = [one for one in recipes if "=" in one]
    if says_how_long(map(parsed, overrides)):
        if budget is not None:
            raise click.UsageError("give either --budget or training.steps")
    else:
        budget = budget or "60s"
        check_budget(budget)
    if len(overrides) == len(recipes):
        raise click.UsageError("name at least one RECIPE, such as lm/gpt")
    if code is not None:
        from seqlab.runs.run import use_code

        use_code(code)
    loaded = [_loaded(one, overrides) for one in recipes if "=" not in one]
    results = run_all(
        loaded, budget=budget, seeds=seeds, out=out, code=code, watch=lambda name: Bar(name, quiet=as_json)
    )
    report(results, Path(out), as_json)


def check_budget(budget: str) -> None:
    from seqlab.errors import RecipeError
    from seqlab.recipe import seconds

    try:
        seconds(budget)
    except ValueError as error:
        raise RecipeError(f"'{budget}' is not a valid budget", where="--budget", hint=str(error)) from None


def _loaded(name: str, overrides: list[str]) -> Recipe:
    from seqlab.errors import RecipeError
    from seqlab.recipe import Recipe

    try:
        return Recipe.load(name, overrides)
    except RecipeError as error:  # an override may suit one recipe and not another
        where = f"{name}, {error.where}" if error.where and not error.where.startswith(name) else error.where
        raise RecipeError(error.what, where=where, hint=error.hint) from None


def report(results: list[Result], out: Path, as_json: bool) -> None:
    """Print the table, quality by source length for models that generate texts, cautions and the plots."""
    from seqlab.runs.comparison import by_length, cautions, rows, unit

    bins = by_length(results)
    plots = {"plot": str(draw(results, out / "curves.png"))}
    if bins:
        plots["plot_by_length"] = str(draw_by_length(bins, unit(results), out / "by_length.png"))
    if as_json:
        from seqlab.cli.streams import echo_json

        table_data: list[dict[str, Any]] = [asdict(row) for row in rows(results)]
        found = {"unit": unit(results), "table": table_data, "by_length": bins, "cautions": cautions(results)}
        echo_json({**found, "runs": [asdict(one) for one in results], **plots})
        return
    from seqlab.cli.tables import by_length_table, table

    columns = _columns(results)
    table(list(columns), list(zip(*columns.values(), strict=True)))
    if bins:
        click.echo(f"{unit(results)} by source length:")
        by_length_table(bins)
    for caution in cautions(results):
        click.echo(caution)
    for plot in plots.values():
        click.echo(f"plot: {plot}")


def _columns(results: list[Result]) -> dict[str, list[object]]:
    from seqlab.runs.comparison import rows, unit

    several = len({one.seed for one in results}) > 1
    found, by = rows(results), unit(results)
    digits = 2 if by in found[0].written else 3
    columns: dict[str, list[object]] = {
        "model": [row.name for row in found],
        f"held-out {by.replace('_', ' ')}": [
            f"{row.value:.{digits}f}" + (f" ± {row.spread:.{digits}f}" if several else "") for row in found
        ],
    }
    for metric in found[0].written:
        if metric != by:
            columns[metric] = [f"{row.written[metric]:.2f}" for row in found]
    if any(row.perplexity is not None for row in found):
        columns["perplexity"] = ["–" if row.perplexity is None else f"{row.perplexity:.1f}" for row in found]
    if any(row.unknown for row in found):
        columns["unknown %"] = [f"{100 * row.unknown:.2f}" for row in found]
    columns |= {
        "parameters": [row.parameters for row in found],
        "training": ["–" if row.flops is None else _flop(row.flops) for row in found],
        "tokens/s": [f"{row.tokens_per_second:,.0f}" if row.tokens_per_second else "–" for row in found],
        "seconds": [f"{row.seconds:.1f}" for row in found],
    }
    return columns


def _flop(count: float) -> str:
    """3.1e12 → 3.1 TFLOP"""
    prefixes = ["", "k", "M", "G", "T", "P", "E"]
    while count >= 999.5 and len(prefixes) > 1:
        count, prefixes = count / 1000, prefixes[1:]
    return f"{count:.3g} {prefixes[0]}FLOP"


def draw(results: list[Result], path: Path) -> Path:
    from seqlab.inspection.figures import curves
    from seqlab.runs.comparison import predicted

    by = predicted(results)
    lines: dict[str, list[list[tuple[float, float]]]] = {}
    for one in results:
        lines.setdefault(one.name, []).append([(point["seconds"], point[by]) for point in one.curve])
    title = "The same data, the same time: which model predicts best?"
    curves(lines, path, title, "seconds of training", f"held-out {by.replace('_', ' ')}")
    return path


def draw_by_length(bins: list[Bin], metric: str, path: Path) -> Path:
    from seqlab.inspection.figures import curves

    lines = {name: [[(place, own["figures"][name]) for place, own in enumerate(bins)]] for name in bins[0]["figures"]}
    ticks = [f"{own['shortest']}–{own['longest']}\n{own['lines']:,} lines" for own in bins]
    title = "Which model holds up on long sources?"
    curves(lines, path, title, "characters of the source", f"held-out {metric}", ticks)
    return path
