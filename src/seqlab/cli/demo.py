"""`seqlab demo`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seqlab.cli.completion import folders

if TYPE_CHECKING:
    from seqlab.runs.comparison import Result

RECIPES = ("lm/ngram", "lm/lstm", "lm/gpt")


@click.command(epilog="Example: seqlab demo --budget 20s --out runs/quick")
@click.option("--budget", default="60s", show_default=True, metavar="TIME", help="Training time of each model.")
@click.option(
    "--out", default="runs/demo", show_default=True, shell_complete=folders, help="Folder for the runs and the plot."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(budget: str, out: str, as_json: bool) -> None:
    """Train a 5-gram, an LSTM and a GPT on Python's own documentation, for the same time each; then mix them.

    The table and the plot show which model predicts held-out text best, and what the mixture of the three adds.
    """
    from seqlab.cli.compare import check_budget, report
    from seqlab.cli.display import Bar
    from seqlab.runs.comparison import compare, mixed
    from seqlab.runs.run import load

    check_budget(budget)
    folder = _free(Path(out))
    results = compare(RECIPES, budget=budget, out=folder, watch=lambda name: Bar(name, quiet=as_json))
    mixture = mixed(results, folder / "mixture")
    report([*results, mixture], folder, as_json)
    if as_json:
        return
    _explain(results, mixture)
    prompt = "The list"
    for result in (*results, mixture):
        (text,) = load(result.folder).generate(prompt, tokens=60, seed=1)
        click.echo(click.style(f"\n{result.name} writes:", bold=True))
        click.echo((prompt + text).strip())
    last = results[-1].folder
    click.echo(click.style("\ntry next:", bold=True))
    click.echo(f"  seqlab generate {last} --prompt 'def ' --tokens 200 --temperature 0.7")
    click.echo(f"  seqlab score {last} --suggest        (type the beginning of a sentence, then Ctrl-D)")
    click.echo("  seqlab train lm/gpt data.train=YOUR.txt training.budget=3m --out runs/mine")
    click.echo("  seqlab compare lm/lstm lm/gpt --budget 2m --seeds 3")


def _explain(parts: list[Result], mixture: Result) -> None:
    """Explain what the mixture is made of, and why it wins if it does."""
    from seqlab.runs.comparison import predicted
    from seqlab.runs.run import load

    (entry,) = load(mixture.folder).log
    weights = ", ".join(f"{part.name} {weight:.0%}" for part, weight in zip(parts, entry["weights"], strict=True))
    click.echo(f"The mixture averages the probabilities of the three ({weights}; fitted on the held-out text).")
    unit = predicted(parts)
    if mixture.metrics[unit] < 0.99 * min(part.metrics[unit] for part in parts):
        click.echo("It wins because its parts make different mistakes: the 5-gram remembers the phrases it has seen,")
        click.echo("while the neural networks generalise to phrases they have not.")
    else:
        click.echo("The neural networks have learnt too little to improve on the 5-gram: set a longer --budget.")


def _free(folder: Path) -> Path:
    """Return the folder, or the next one that is free, so that the demo can be run again."""
    number, free = 2, folder
    while free.exists():
        free, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return free
