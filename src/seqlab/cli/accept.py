"""`seqlab accept`"""

from __future__ import annotations

from pathlib import Path

import click

from seqlab.cli.completion import folders
from seqlab.cli.options import code_option


@click.command(epilog="Example: seqlab accept runs/mine --code my_cell.py")
@click.argument("run", shell_complete=folders)
@code_option("Another version of the Python file that the run was trained with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def accept(run: str, code: str | None, as_json: bool) -> None:
    """Accept the files of RUN as they are now: recipe.yaml, model.yaml and tokenizer/.

    All commands refuse a run whose files have been edited, removed or added since it was trained, because its results
    may differ. This command prints the differences and rewrites the manifest.

    With --code, the run also accepts a changed version of the Python file that it was trained with.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.errors import RunError
    from seqlab.training.lock import RunLock
    from seqlab.training.manifest import accept as accepted

    folder = Path(run)
    if not folder.is_dir():
        raise RunError(f"no run folder '{folder}'", hint="make one with `seqlab train`")
    with RunLock(folder):
        found = accepted(folder)
        if code is not None:
            from seqlab.runs.run import accept_code

            found |= accept_code(folder, code)
    if as_json:
        echo_json({"run": run, "accepted": found})
        return
    for name, what in found.items():
        click.echo(f"{name}: {what}")
    click.echo(f"accepted: {run}" if found else f"nothing has changed: {run}")
