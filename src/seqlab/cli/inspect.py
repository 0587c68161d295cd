"""`seqlab inspect`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqlab.cli.completion import files, folders
from seqlab.cli.options import checkpoint, code_option, device, picture

if TYPE_CHECKING:
    from seqlab.data.batching.batches import Batch
    from seqlab.runs.run import Run


@click.group(epilog="Example: seqlab inspect gradients runs/mine --out gradients.png")
def inspect() -> None:
    """Look inside a run: gradients through time, the loss around its weights, attention, beam search."""


out = click.option(
    "--out",
    metavar="FILE",
    callback=picture,
    shell_complete=files,
    help="Where to save the picture (.png, .svg or .pdf); in the run folder by default.",
)
code = code_option()
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object; draw the picture only with --out."
)
rows = click.option(
    "--rows", default=16, show_default=True, type=click.IntRange(1), help="Number of held-out windows or examples."
)


@inspect.command(epilog="Example: seqlab inspect gradients runs/mine --length 200 --json")
@click.argument("run", shell_complete=folders)
@click.option(
    "--length", default=100, show_default=True, type=click.IntRange(2), help="Number of positions to look back."
)
@rows
@out
@checkpoint
@device
@code
@as_json
def gradients(
    run: str,
    length: int,
    rows: int,
    out: str | None,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Show how far back the gradients of RUN reach.

    Also shows what its recurrent matrices do to gradients, and how open its gates are.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.inspection.gradients import health
    from seqlab.models.language_model import LanguageModel
    from seqlab.tasks.abilities import Writes

    loaded = _loaded(run, checkpoint, code, device)
    language = isinstance(loaded.objective.body, LanguageModel)
    streams = language and not isinstance(loaded.task, Writes)
    found = health(loaded.objective, _windows(loaded, rows, length) if streams else _batch(loaded, rows), length)
    if as_json:
        echo_json(asdict(found))
    else:
        from seqlab.cli.tables import table

        table(
            ["matrix", "spectral radius", "largest singular value", "smallest"],
            [
                [one.name, f"{one.radius:.3f}", f"{one.singular[0]:.3f}", f"{one.singular[-1]:.3f}"]
                for one in found.matrices
            ],
        )
        if found.gates:
            shown = [[one.name, f"{one.mean:.2f}", f"{one.shut:.1%}", f"{one.open:.1%}"] for one in found.gates]
            table(["gate", "mean", "below 0.1", "above 0.9"], shown)
    _draw(out, loaded.folder / "gradients.png", as_json, "gradient_health", found)


@inspect.command(epilog="Example: seqlab inspect surface runs/mine --points 31 --out surface.svg")
@click.argument("run", shell_complete=folders)
@click.option("--points", default=21, show_default=True, type=click.IntRange(3, 201), help="Points in each direction.")
@click.option(
    "--span",
    type=click.FloatRange(0, min_open=True),
    help="Distance along the gradient; a few steps by default.",
)
@click.option(
    "--clip",
    default=None,
    type=click.FloatRange(0, min_open=True),
    help="Clip gradients at this norm; as in training by default.",
)
@rows
@out
@checkpoint
@device
@code
@as_json
def surface(
    run: str,
    points: int,
    span: float | None,
    clip: float | None,
    rows: int,
    out: str | None,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Show the loss around the weights of RUN.

    The two directions are down the gradient and across it.
    """
    from seqlab.cli.display import Bar
    from seqlab.cli.streams import echo_json
    from seqlab.inspection.surface import surface as look

    loaded = _loaded(run, checkpoint, code, device)
    training = loaded.recipe.training
    with Bar("surface", quiet=as_json):
        found = look(
            loaded.objective,
            _batch(loaded, rows),
            rate=training.learning_rate,
            clip_norm=clip or training.clip_norm or float("inf"),
            points=points,
            span=span,
        )
    if as_json:
        echo_json(asdict(found))
    else:
        click.echo(
            f"gradient norm {found.gradient_norm:.4g}; step length {found.step:.4g}, clipped {found.clipped:.4g}"
        )
    _draw(out, loaded.folder / "surface.png", as_json, "loss_surface", found)


@inspect.command(epilog="Example: seqlab inspect attention runs/translation-gnmt-v3 --row 5 --out attention.svg")
@click.argument("run", shell_complete=folders)
@click.option(
    "--row", default=0, show_default=True, type=click.IntRange(0), help="Index of the held-out example, from 0."
)
@click.option("--text", help="Your own source instead; separate several conditions with tabs.")
@out
@checkpoint
@device
@code
@as_json
def attention(
    run: str,
    row: int,
    text: str | None,
    out: str | None,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Show what RUN attends to as it generates the target.

    The picture is a matrix of target tokens by source tokens.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.decoding.alignment import attention_to_source
    from seqlab.inspection.attention_and_beam import history

    loaded = _writer(run, checkpoint, code, device)
    task, model = loaded.task, loaded.model
    source = _source(loaded, row, text)
    ((best, *_),) = task.searched(loaded.decoder, source)
    weights = attention_to_source(model, source, best.tokens, task.tokenizer.end_id)
    read = task.sources.pieces(source["tokens"][0].tolist())
    found = history(weights, read, task.sources.pieces(best.tokens))
    if as_json:
        echo_json(asdict(found))
    else:
        click.echo(task.tokenizer.decode(best.tokens))
    _draw(out, loaded.folder / "attention.png", as_json, "attention_history", found)


@inspect.command(epilog="Example: seqlab inspect beam runs/translation-gnmt-v3 --row 5 --width 3 --json")
@click.argument("run", shell_complete=folders)
@click.option(
    "--row", default=0, show_default=True, type=click.IntRange(0), help="Index of the held-out example, from 0."
)
@click.option("--text", help="Your own source instead; separate several conditions with tabs.")
@click.option("--width", type=click.IntRange(1), help="Beam size; the recipe's by default.")
@out
@checkpoint
@device
@code
@as_json
def beam(
    run: str,
    row: int,
    text: str | None,
    width: int | None,
    out: str | None,
    checkpoint: int | str,
    device: str,
    code: str | None,
    as_json: bool,
) -> None:
    """Show the tree that beam search explores with RUN.

    The picture shows the log-probability of every hypothesis.
    """
    from seqlab.cli.streams import echo_json
    from seqlab.decoding.beam import BeamNode
    from seqlab.inspection.attention_and_beam import BeamTree, branches, described

    loaded = _writer(run, checkpoint, code, device)
    hypotheses = width or loaded.recipe.decoding.beam or 1
    loaded = loaded.changed({"decoding.beam": hypotheses, "decoding.best": hypotheses})
    task: Any = loaded.task
    nodes: list[BeamNode] = []
    (found,) = task.searched(loaded.decoder, _source(loaded, row, text), nodes.append)
    tree = BeamTree(described(found, task.tokenizer), branches(nodes, task.sources.pieces))
    if as_json:
        echo_json(asdict(tree))
    else:
        from seqlab.cli.tables import table

        shown = [[f"{one['rank']:.3f}", f"{one['log_probability']:.3f}", one["text"]] for one in tree.found]
        table(["rank", "log p", "text"], shown)
    _draw(out, loaded.folder / "beam.png", as_json, "search_tree", tree)


def _writer(run: str, checkpoint: int | str, code: str | None, device: str) -> Any:
    """Load a run that generates texts."""
    from seqlab.errors import RunError
    from seqlab.runs.run import load
    from seqlab.tasks.abilities import Writes

    loaded = load(run, checkpoint=checkpoint, code=code, device=device)
    if not isinstance(loaded.task, Writes):
        raise RunError("does not translate", where=str(loaded.folder), hint="give a run such as translation/gnmt-v3")
    return loaded


def _source(run: Any, row: int, text: str | None) -> Any:
    """Return the source of a held-out example, or of a text."""
    import numpy as np

    from seqlab.data.randomness import Key
    from seqlab.errors import RunError

    if text is not None:
        return run.task.prompts([text]).source.to(run.device)
    split = run.held_out()
    if row >= len(split):
        raise RunError(f"held-out example {row} does not exist", hint=f"give a --row from 0 to {len(split) - 1}")
    return split.batch(np.array([row]), Key(0, 0)).to(run.device).part("source")


def _loaded(run: str, checkpoint: int | str, code: str | None, device: str) -> Run:
    from seqlab.errors import RunError
    from seqlab.inspection.gradients import cells_over_time
    from seqlab.runs.run import load

    loaded = load(run, checkpoint=checkpoint, code=code, device=device)
    what = f"has a model of kind '{loaded.recipe.model.kind}', which "
    if not list(loaded.objective.parameters()):
        hint = "give a run of a model with weights, such as lm/lstm"
        raise RunError(f"{what}has no weights and is not recurrent", where=str(loaded.folder), hint=hint)
    recurrent = any(True for _ in cells_over_time(loaded.objective))
    if click.get_current_context().info_name == "gradients" and not recurrent:
        hint = "give a run of a recurrent recipe such as lm/lstm, tagging/lstm or forecasting/lstm"
        raise RunError(f"{what}is not recurrent", where=str(loaded.folder), hint=hint)
    return loaded


def _batch(run: Run, rows: int) -> Batch:
    from seqlab.data.randomness import Key

    split = run.held_out()
    _, indices = next(iter(split.order(rows, seed=0).once()))
    return split.batch(indices, Key(0, 0)).to(run.device)


def _windows(run: Run, rows: int, length: int) -> Batch:
    """Return held-out tokens (rows, length), and the token after each."""
    import torch

    from seqlab.data.batching.batches import Batch
    from seqlab.errors import RunError

    held_out: Any = run.held_out()
    tokens = torch.as_tensor(held_out.tokens[: rows * (length + 1)].astype("int64"))
    count = len(tokens) // (length + 1)
    if count == 0:
        raise RunError(f"only {len(tokens)} tokens are held out", where=str(run.folder), hint="give a smaller --length")
    windows = tokens[: count * (length + 1)].view(count, length + 1).to(run.device)
    return Batch(tokens=windows[:, :-1], targets=windows[:, 1:])


def _draw(out: str | None, default: Path, as_json: bool, picture: str, found: object) -> None:
    from seqlab.inspection import figures

    if out is None and as_json:
        return
    path = Path(out) if out is not None else default
    getattr(figures, picture)(found, path)
    click.echo(f"drawn: {path}", err=as_json)
