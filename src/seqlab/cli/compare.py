"""`seqlab compare`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seqlab.comparison import Result
    from seqlab.recipe import Recipe


@click.command(epilog="Example: seqlab compare lm/ngram lm/lstm lm/gpt --budget 60s --seeds 3 data.train=my.txt")
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE... [KEY=VALUE]...")
@click.option("--budget", default="60s", show_default=True, metavar="TIME", help="Training time of each.")
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="Trainings of each.")
@click.option("--out", default="runs/compare", show_default=True, help="The folder for the runs and the plot.")
@click.option("--code", metavar="FILE", help="A Python file of your own that registers classes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(recipes: tuple[str, ...], budget: str, seeds: int, out: str, code: str | None, as_json: bool) -> None:
    """Train each RECIPE under one equal budget and show which one wins: one table, one plot.

    KEY=VALUE sets a key in all of them. Runs that are finished in the folder already are taken as they are.
    """
    from seqlab.cli.progress import Bar
    from seqlab.comparison import compare as run_all

    check_budget(budget)
    overrides = [one for one in recipes if "=" in one]
    if len(overrides) == len(recipes):
        raise click.UsageError("name at least one RECIPE, such as lm/gpt")
    if code is not None:
        from seqlab.run import use_code

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
        raise RecipeError(f"'{budget}' is no budget", where="--budget", hint=str(error)) from None


def _loaded(name: str, overrides: list[str]) -> Recipe:
    from seqlab.errors import RecipeError
    from seqlab.recipe import Recipe

    try:
        return Recipe.load(name, overrides)
    except RecipeError as error:  # an override may suit one recipe and not another
        where = f"{name}, {error.where}" if error.where and not error.where.startswith(name) else error.where
        raise RecipeError(error.what, where=where, hint=error.hint) from None


def report(results: list[Result], out: Path, as_json: bool) -> None:
    """The table, what speaks against it, and the plot."""
    from seqlab.comparison import cautions, rows, unit

    by = unit(results)
    plot = draw(results, out / "curves.png")
    if as_json:
        table_data: list[dict[str, Any]] = [asdict(row) for row in rows(results)]
        runs = [asdict(one) for one in results]
        from seqlab.cli.streams import echo_json

        echo_json({"unit": by, "table": table_data, "cautions": cautions(results), "runs": runs, "plot": str(plot)})
        return
    from seqlab.cli.tables import table

    columns = _columns(results)
    table(list(columns), list(zip(*columns.values(), strict=True)))
    for caution in cautions(results):
        click.echo(caution)
    click.echo(f"plot: {plot}")


def _columns(results: list[Result]) -> dict[str, list[object]]:
    from seqlab.comparison import rows, unit

    several = len({one.seed for one in results}) > 1
    found = rows(results)
    columns: dict[str, list[object]] = {
        "model": [row.name for row in found],
        f"held-out {unit(results).replace('_', ' ')}": [
            f"{row.value:.3f} ± {row.spread:.3f}" if several else f"{row.value:.3f}" for row in found
        ],
    }
    if any(row.perplexity is not None for row in found):
        columns["perplexity"] = ["–" if row.perplexity is None else f"{row.perplexity:.1f}" for row in found]
    if any(row.unknown for row in found):
        columns["unknown %"] = [f"{100 * row.unknown:.2f}" for row in found]
    columns |= {
        "parameters": [row.parameters for row in found],
        "tokens/s": [f"{row.tokens_per_second:,.0f}" for row in found],
        "seconds": [f"{row.seconds:.1f}" for row in found],
    }
    return columns


def draw(results: list[Result], path: Path) -> Path:
    from seqlab.comparison import unit
    from seqlab.inspection.figures import curves

    by = unit(results)
    lines: dict[str, list[list[tuple[float, float]]]] = {}
    for one in results:
        lines.setdefault(one.name, []).append([(point["seconds"], point[by]) for point in one.curve])
    title = "The same data, the same time: which model predicts best?"
    curves(lines, path, title, "seconds of training", f"held-out {by.replace('_', ' ')}")
    return path
