"""`seqlab study`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seqlab.cli.completion import folders, study_names
from seqlab.cli.options import OWN_CLASSES, code_option

if TYPE_CHECKING:
    from seqlab.studies.study import Study


@click.command(epilog="Example: seqlab study adding along.steps=[50,100] seeds=1 --only lstm,elman --out runs/adding")
@click.argument("name", required=False, metavar="[NAME|FILE]", shell_complete=study_names)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--only", metavar="ARM,...", help="Run only these arms of the study.")
@click.option(
    "--out",
    metavar="FOLDER",
    shell_complete=folders,
    help="Folder for runs, table and picture; runs/study-NAME by default.",
)
@code_option(OWN_CLASSES)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def study(
    name: str | None, overrides: tuple[str, ...], only: str | None, out: str | None, code: str | None, as_json: bool
) -> None:
    """Run the study NAME, or your own study (a YAML FILE). Without a name, list the shipped studies.

    KEY=VALUE sets a key of the study: `seeds=1`, `set.training.steps=500` (in all of its recipes). Finished runs in
    the folder are reused, so an interrupted study continues where it stopped when you start it again.
    """
    from seqlab.cli.display import Bar
    from seqlab.cli.streams import echo_json, finite
    from seqlab.cli.tables import listing, table
    from seqlab.recipe_tree import described

    if name is None:
        return listing(described("study"), as_json)
    from seqlab.training.trainer import Interrupted

    if code is not None:
        from seqlab.runs.run import use_code

        use_code(code)
    folder = Path(out or f"runs/study-{Path(name).stem}")
    chosen = _chosen(name, overrides, only)
    try:
        report = chosen.run(folder, code, lambda one: Bar(one, quiet=as_json))
    except Interrupted:
        raise Interrupted("stopped and saved; run the same command again to continue") from None
    picture = folder / "study.png"
    data = finite({"study": name, **report.data, "notes": report.notes, "picture": str(picture)})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    report.draw(picture)
    if as_json:
        echo_json(data)
        return
    table(report.titles, report.rows)
    for note in report.notes:
        click.echo(note)
    click.echo(f"picture: {picture}")


def _chosen(name: str, overrides: tuple[str, ...], only: str | None) -> Study:
    from seqlab.errors import RecipeError
    from seqlab.studies.study import load
    from seqlab.studies.trainings import Trainings

    study = load(name, overrides)
    if only is None:
        return study
    if not isinstance(study, Trainings):
        raise RecipeError(f"'{name}' has no arms", where="--only", hint="leave it out")
    return study.only(only.split(","))
