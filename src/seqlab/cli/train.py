"""`seqlab train`"""

from __future__ import annotations

from typing import Any

import click

from seqlab.cli.completion import folders, recipe_keys, recipe_names
from seqlab.cli.options import OWN_CLASSES, code_option


@click.command(
    epilog="Example: seqlab train lm/gpt data.train=my.txt model.width=128 training.budget=3m --out runs/mine"
)
@click.argument("recipe", shell_complete=recipe_names)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=recipe_keys)
@click.option("--out", metavar="RUN", shell_complete=folders, help="Run folder; runs/NAME by default.")
@click.option("--resume", is_flag=True, help="Continue the run in the folder, or start one if there is none.")
@click.option(
    "--check", is_flag=True, help="Do not train; check the first loss, overfit one batch and estimate the time."
)
@code_option(OWN_CLASSES)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def train(
    recipe: str,
    overrides: tuple[str, ...],
    out: str | None,
    resume: bool,
    check: bool,
    code: str | None,
    as_json: bool,
) -> None:
    """Train RECIPE and save the run in a folder.

    RECIPE is the name of a shipped recipe (see `seqlab recipes`), a YAML file, or a run folder, whose recipe is then
    trained anew. Any of its keys can be set: data.train=FILE, tokenizer.kind=character, model.width=256,
    training.steps=1000 or training.budget=45s, training.seed=1, ...
    """
    from seqlab.recipe import Recipe

    loaded = _with_code(code, lambda: Recipe.load(recipe, overrides))
    if check:
        _check(loaded, as_json)
        return
    from seqlab.cli.display import Bar
    from seqlab.cli.streams import echo_json
    from seqlab.runs.launch import train as launch

    with Bar(loaded.name or "train", quiet=as_json) as bar:
        run = launch(loaded, out=out, resume=resume, code=code, watcher=bar)
    from seqlab.training.distributed import is_first

    if not is_first():
        return
    last: dict[str, Any] = next((entry["valid"] for entry in reversed(run.log) if "valid" in entry), {})
    if as_json:
        known = run.recipe.environment
        notes = {name: known[name] for name in ("held_out", "overlap", "compared") if name in known}
        echo_json({"run": str(run.folder), "best_step": run.step, "last": last, **notes})
        return
    click.echo(f"finished: {run.folder} (best checkpoint: step {run.step})")
    from seqlab.models.language_model import LanguageModel
    from seqlab.tasks.abilities import Writes

    own = f" --code {code}" if "code" in run.recipe.environment else ""
    if not isinstance(run.objective.body, LanguageModel) or isinstance(run.task, Writes):
        click.echo(f"try: seqlab predict {run.folder} FILE{own}    or: seqlab evaluate {run.folder}{own}")
        return
    tokenizer = run.tokenizer
    prompt = "The" if tokenizer.unit != "symbol" else tokenizer.decode([min(2, tokenizer.vocab_size - 1)])
    click.echo(f"try: seqlab generate {run.folder} --prompt {prompt!r}{own}    or: seqlab evaluate {run.folder}{own}")


def _with_code(code: str | None, then: Any) -> Any:
    if code is not None:
        from seqlab.runs.run import use_code

        use_code(code)
    return then()


def _check(recipe: Any, as_json: bool) -> None:
    from seqlab.cli.display import Bar
    from seqlab.cli.streams import echo_json
    from seqlab.cli.tables import table
    from seqlab.runs.checkup import check

    with Bar("check", quiet=as_json):
        findings = check(recipe)
    if as_json:
        echo_json([finding.__dict__ for finding in findings])
    else:
        rows = [["ok" if one.ok else "LOOK", one.name, one.value, one.note] for one in findings]
        table(["", "check", "found", "what it means"], rows)
    raise click.exceptions.Exit(0 if all(one.ok for one in findings) else 1)
