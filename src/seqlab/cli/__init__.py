"""The command line. Each command is one thin module, imported only when it is called."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

COMMANDS = {
    "train": "Train a recipe and save the run in a folder.",
    "evaluate": "Evaluate a run on held-out data.",
    "predict": "Predict classes, tags, forecasts or translations with a run.",
    "back-translate": "Make training pairs from monolingual text with a run that translates the other way.",
    "generate": "Continue a prompt.",
    "score": "Score lines: log-probability and perplexity, ranking, next words.",
    "metrics": "Score the output of any system against references: BLEU, chrF, TER, ROUGE, METEOR, WER, CER.",
    "compare": "Train several recipes on the same budget: one table, one plot.",
    "study": "Repeat a classic study: several training runs, one table, one picture.",
    "mix": "Combine several runs into one that averages their predictions.",
    "average": "Average the weights of a run's last checkpoints into a new run.",
    "accept": "Accept files of a run folder that were edited by hand.",
    "ngram": "Show the size and sparsity of n-gram models; export and import ARPA files.",
    "inspect": "Look inside a run: gradients through time, loss surface, attention, beam search.",
    "tokenizer": "Train, use and compare tokenizers.",
    "recipes": "List the shipped recipes, print one, or explain its keys.",
    "data": "Check data before training on it; list or clear the cache.",
    "doctor": "Report what this machine has, and test seqlab on it.",
    "completion": "Print a completion script for bash, zsh or fish.",
    "demo": "Train an n-gram, an LSTM and a GPT on built-in text, compare them, and mix them.",
}


class Lazy(click.Group):
    """A group that knows its commands by name and imports each one only when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        known = name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"seqlab.cli.{known}"), known)
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
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},  # examples on one line
    epilog="Example: seqlab train lm/gpt data.train=my.txt training.budget=3m --out runs/mine",
)
@click.version_option(package_name="seqlab", message="%(version)s")
@click.pass_context
def group(context: click.Context) -> None:
    """Train, measure and use sequence models, from n-grams to GPT."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> None:
    """Run a command; an error the user can correct is one line on stderr and exit code 2."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    if "WORLD_SIZE" in os.environ:  # otherwise DDP warns on each rank about a setting that is intended
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if isinstance(sys.stdout, io.TextIOWrapper):  # a character the terminal lacks becomes `?` instead of an error
        sys.stdout.reconfigure(errors="replace")
    try:
        with cautions():
            code = group(prog_name="seqlab", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except BrokenPipeError:  # the reader has closed the pipe; the rest must not be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        sys.exit(_told(error))
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
        sys.exit(130)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or stop at once during an import, where libraries swallow it or remain half-loaded."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            click.echo("stopped", err=True)
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


@contextmanager
def cautions() -> Iterator[None]:
    """Print each Caution of the library as one line on stderr, and repeated ones only once."""
    from seqlab.errors import Caution

    with warnings.catch_warnings():
        usual, said = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *about: Any) -> None:
            if not issubclass(category, Caution):
                usual(message, category, *about)
            elif str(message) not in said:
                said.add(str(message))
                click.echo(f"note: {message}", err=True)

        warnings.simplefilter("always", Caution)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


TRACEBACK = "SEQLAB_TRACEBACK"
"""The environment variable that prints the calls behind an error in a file of one's own."""


def _in_own_code(error: Exception) -> str | None:
    """Return the place in a file given as --code that an error comes out of; None if none was loaded."""
    loaded = sys.modules.get("seqlab.runs.run")  # importing it would take torch
    return None if loaded is None else loaded.place_in_own_code(error)


def _told(error: Exception) -> int:
    """Print an error as one line and return the exit code; re-raise an unexpected error."""
    from seqlab.errors import SeqlabError

    if type(error).__name__ == "Interrupted":  # by name: its module needs torch
        click.echo(str(error), err=True)
        return 130
    if isinstance(error, click.Abort):
        click.echo("stopped", err=True)
        return 130
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "seqlab"
        what = f"{error.format_message()} (see `{path} --help`)"
    elif isinstance(error, SeqlabError):
        what = str(error)
    elif isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif (place := _in_own_code(error)) is not None:
        if os.environ.get(TRACEBACK):
            traceback.print_exception(error)
        found = traceback.format_exception_only(error)[-1].strip()
        what = f"in {place}: {found}" + ("" if os.environ.get(TRACEBACK) else f" (the calls: {TRACEBACK}=1)")
    else:
        raise error
    click.echo(f"error: {' '.join(what.splitlines())}", err=True)
    return 2
