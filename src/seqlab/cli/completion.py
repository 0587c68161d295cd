"""`seqlab completion`, and the completion of files, recipes, studies and recipe keys for all commands."""

from __future__ import annotations

import os
from glob import escape, glob
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from seqlab.recipe_keys import RecipeKey

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
    click.echo(_with_key_value(script) if shell == "bash" else script)


def _with_key_value(script: str) -> str:
    """Make bash see key=value as one word, and add no space after `key=` or a folder."""
    end = "    return 0\n"
    assert script.count(end) == 1
    script = script.replace(end, f"    [[ ${{COMPREPLY[0]-}} == *[=/] ]] && compopt -o nospace\n{end}")
    return script + "COMP_WORDBREAKS=${COMP_WORDBREAKS//=}\n"


def files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file or folder."""
    return [CompletionItem(typed, type="file")]


def folders(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Let the shell complete the name of a folder, such as that of a run."""
    return [CompletionItem(typed, type="dir")]


def recipe_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the shipped recipes; leave files to the shell."""
    return _shipped("recipe", typed) or files(context, parameter, typed)


def study_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the shipped studies; leave files to the shell."""
    return _shipped("study", typed) or files(context, parameter, typed)


def recipes_and_keys(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the shipped recipes and the keys of the first one named; leave files to the shell."""
    keys = recipe_keys(context, parameter, typed) if typed and "/" not in typed else []
    return [*_shipped("recipe", typed), *keys] or files(context, parameter, typed)


def _shipped(what: str, typed: str) -> list[CompletionItem]:
    from seqlab.recipe_tree import described

    return [CompletionItem(name, help=about) for name, about in described(what).items() if name.startswith(typed)]


def recipe_keys(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete `key=` for the keys of the named recipe, with their meanings; then values, or files if it is text."""
    name, given, value = typed.partition("=")
    if not given:
        return [CompletionItem(f"{key.name}=", help=key.about) for key in _keys(context, name)]
    key = next((key for key in _keys(context, name) if key.name in (name, f"{name}.kind")), None)
    return [CompletionItem(f"{name}={one}") for one in (_values(key, value) if key else [])]


def _keys(context: click.Context, typed: str) -> list[RecipeKey]:
    """Return the keys that begin with what is typed."""
    from seqlab.errors import SeqlabError
    from seqlab.recipe import Recipe
    from seqlab.recipe_keys import SECTIONS, keys_in, section_keys

    section = typed.partition(".")[0]
    shared = section_keys(section) if section in SECTIONS else []  # without importing a model, which takes a second
    if found := [key for key in shared if key.name.startswith(typed)]:
        return found
    try:
        return [key for key, _ in keys_in(Recipe.load(_recipe(context))) if key.name.startswith(typed)]
    except (SeqlabError, OSError):
        return []


def _recipe(context: click.Context) -> str:
    """Return the first recipe on the command line, or one that most keys are found in."""
    several = [one for one in context.params.get("recipes") or () if "=" not in one]
    return context.params.get("recipe") or (several[0] if several else "lm/gpt")


def _values(key: RecipeKey, typed: str) -> list[str]:
    from seqlab.recipe_keys import choices, takes_text

    found = [one for one in choices(key) if one.startswith(typed)]
    return found or (_paths(typed) if takes_text(key) else [])


def _paths(typed: str) -> list[str]:
    return sorted(f"{path}/" if os.path.isdir(path) else path for path in glob(f"{escape(typed)}*"))
