"""`seqlab recipes`"""

from __future__ import annotations

import json

import click

from seqlab.cli.completion import recipe_names
from seqlab.cli.options import OWN_CLASSES, code_option


@click.command(epilog="Example: seqlab recipes lm/gpt > mine.yaml; seqlab recipes lm/gpt --keys")
@click.argument("name", required=False, shell_complete=recipe_names)
@click.option("--keys", "as_keys", is_flag=True, help="List the recipe's keys: value, type, range, default, meaning.")
@code_option(OWN_CLASSES)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recipes(name: str | None, as_keys: bool, code: str | None, as_json: bool) -> None:
    """List the shipped recipes, or print the one called NAME.

    With --keys, NAME may also be a YAML file.
    """
    import yaml

    from seqlab.cli.tables import listing
    from seqlab.errors import RecipeError, nearest
    from seqlab.recipe_tree import described, shipped, shipped_text

    if code is not None:
        from seqlab.runs.run import use_code

        use_code(code)
    if as_keys:
        return _keys(name, as_json)
    if name is None:
        return listing(described(), as_json)
    if name not in shipped():
        raise RecipeError(f"no recipe '{name}'", hint=nearest(name, shipped()))
    text = shipped_text(name)
    click.echo(json.dumps(yaml.safe_load(text)) if as_json else text, nl=as_json)


def _keys(name: str | None, as_json: bool) -> None:
    from seqlab.cli.streams import echo_json
    from seqlab.cli.tables import table
    from seqlab.recipe import Recipe
    from seqlab.recipe_keys import keys_in

    if name is None:
        raise click.UsageError("--keys needs the name of a recipe: seqlab recipes lm/gpt --keys")
    found = keys_in(Recipe.load(name))
    if as_json:
        return echo_json([{**key.to_dict(), "value": value} for key, value in found])
    rows = [
        [f"{key.name}={_shown(value)}", _kinds(key.type, key.range), key.default, key.about] for key, value in found
    ]
    table(["key=value", "type", "default", "meaning"], rows)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _kinds(kinds: str, bounds: str) -> str:
    return f"{kinds}, {bounds}" if bounds else kinds
