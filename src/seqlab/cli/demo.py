"""`seqlab demo`"""

from __future__ import annotations

from pathlib import Path

import click

RECIPES = ("lm/ngram", "lm/lstm", "lm/gpt")


@click.command(epilog="Example: seqlab demo --budget 20s --out runs/quick")
@click.option("--budget", default="60s", show_default=True, metavar="TIME", help="Training time of each model.")
@click.option("--out", default="runs/demo", show_default=True, help="The folder for the runs and the plot.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(budget: str, out: str, as_json: bool) -> None:
    """Train a 5-gram, an LSTM and a GPT under one equal budget on the running Python's own documentation."""
    from seqlab.cli.compare import check_budget, report
    from seqlab.cli.progress import Bar
    from seqlab.comparison import compare
    from seqlab.run import load

    check_budget(budget)
    folder = _free(Path(out))
    results = compare(RECIPES, budget=budget, out=folder, watch=lambda name: Bar(name, quiet=as_json))
    report(results, folder, as_json)
    if as_json:
        return
    prompt = "The list"
    for result in results:
        (text,) = load(result.folder).generate(prompt, tokens=60, seed=1)
        click.echo(click.style(f"\n{result.name} writes:", bold=True))
        click.echo((prompt + text).strip())
    last = results[-1].folder
    click.echo(click.style("\ntry next:", bold=True))
    click.echo(f"  seqlab generate {last} --prompt 'def ' --tokens 200 --temperature 0.7")
    click.echo(f"  seqlab score {last} --suggest        (type the beginning of a sentence, then Ctrl-D)")
    click.echo("  seqlab train lm/gpt data.train=YOUR.txt training.budget=3m --out runs/mine")
    click.echo("  seqlab compare lm/lstm lm/gpt --budget 2m --seeds 3")


def _free(folder: Path) -> Path:
    """The folder, or the next that is free: a demo can be run again."""
    number, free = 2, folder
    while free.exists():
        free, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return free
