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

    from seqlab.errors import RecipeError, nearest
    from seqlab.recipe_tree import shipped, shipped_text

    names = shipped()
    if name is None:
        about = {one: yaml.safe_load(shipped_text(one))["about"] for one in names}
        if as_json:
            click.echo(json.dumps(about))
            return
        width = max(map(len, names))
        for one in names:
            click.echo(f"{one:{width}}  {about[one]}")
        return
    if name not in names:
        raise RecipeError(f"no recipe '{name}'", hint=nearest(name, names))
    text = shipped_text(name)
    click.echo(json.dumps(yaml.safe_load(text)) if as_json else text, nl=as_json)
