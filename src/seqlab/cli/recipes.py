"""`seqlab recipes`"""

from __future__ import annotations

import json

import click


@click.command(epilog="Example: seqlab recipes lm/gpt > mine.yaml")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recipes(name: str | None, as_json: bool) -> None:
    """List the shipped recipes, or print the one called NAME."""
    import yaml

    from seqlab.cli.tables import listing
    from seqlab.errors import RecipeError, nearest
    from seqlab.recipe_tree import described, shipped, shipped_text

    if name is None:
        return listing(described(), as_json)
    if name not in shipped():
        raise RecipeError(f"no recipe '{name}'", hint=nearest(name, shipped()))
    text = shipped_text(name)
    click.echo(json.dumps(yaml.safe_load(text)) if as_json else text, nl=as_json)
