"""`seqlab completion`, and the completion of recipe names and recipe keys."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(epilog="Example: seqlab completion fish > ~/.config/fish/completions/seqlab.fish")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that lets SHELL complete the commands, options, recipes and recipe keys of seqlab.

    For bash, add `eval "$(seqlab completion bash)"` to ~/.bashrc; for zsh, `eval "$(seqlab completion zsh)"` to
    ~/.zshrc.
    """
    made = get_completion_class(shell)
    assert made is not None
    script = made(click.Group(), {}, "seqlab", "_SEQLAB_COMPLETE").source()
    click.echo(script + ("COMP_WORDBREAKS=${COMP_WORDBREAKS//=}  # key=value is one word\n" if shell == "bash" else ""))


def recipe_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the shipped recipes; leave files to the shell."""
    from seqlab.recipe_tree import described

    known = described()
    found = [CompletionItem(name, help=about) for name, about in known.items() if name.startswith(typed)]
    return found or [CompletionItem(typed, type="file")]


def recipe_keys(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete `key=` for the keys of the named recipe, with their meanings; and the values of keys that have few."""
    from seqlab.errors import SeqlabError
    from seqlab.recipe import Recipe
    from seqlab.recipe_keys import SECTIONS, RecipeKey, keys_in, section_keys

    section = typed.partition(".")[0]
    try:
        if section in SECTIONS:  # without importing a model, which takes a second
            keys: list[RecipeKey] = section_keys(section)
        else:
            keys = [key for key, _ in keys_in(Recipe.load(context.params.get("recipe") or "lm/gpt"))]
    except (SeqlabError, OSError):
        return []
    name, given, value = typed.partition("=")
    if given:
        choices = [one for key in keys if key.name == name and " | " in key.type for one in key.type.split(" | ")]
        return [CompletionItem(f"{name}={one}") for one in choices if one.startswith(value)]
    return [CompletionItem(f"{key.name}=", help=key.about) for key in keys if key.name.startswith(typed)]
