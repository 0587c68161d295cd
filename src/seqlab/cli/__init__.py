"""The command line. Each command is one thin file, loaded only when it is called."""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "train": "Train a recipe into a run folder.",
    "evaluate": "Measure a run on held-out data.",
    "generate": "Continue a prompt.",
    "score": "Log-probability and perplexity of lines; ranking; next words.",
    "compare": "Train several recipes under one budget: one table, one plot.",
    "tokenizer": "Train, use and compare tokenizers.",
    "recipes": "List the shipped recipes, or print one.",
    "data": "Look at data before training on it.",
    "demo": "Train an n-gram, an LSTM and a GPT on built-in text and compare them.",
}


class Lazy(click.Group):
    """Knows its commands by name, and imports one only to run it."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"seqlab.cli.{name}"), name)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from seqlab.errors import nearest

            raise click.UsageError(f"no command '{args[0]}'; {nearest(args[0], COMMANDS)}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: seqlab train lm/gpt data.train=my.txt training.budget=3m --out runs/mine",
)
@click.version_option(package_name="seqlab", message="%(version)s")
def group() -> None:
    """Train, measure and use sequence models, from n-grams to GPT."""


def main() -> None:
    """Run a command; what a person can put right is one line on stderr and exit code 2."""
    from seqlab.errors import SeqlabError

    try:
        group(standalone_mode=False)
    except SeqlabError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(130 if type(error).__name__ == "Interrupted" else 2)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "seqlab"
        click.echo(f"error: {error.format_message()} (see `{path} --help`)", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
