"""The command line in this process, a small text, and three runs that are trained once for all tests."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

WHO = ["the cat", "the dog", "a bird", "my friend", "the old man", "she", "he", "the student"]
DOES = ["sat on", "looked at", "walked to", "opened", "ran past", "found", "painted", "read about"]
WHAT = ["the mat", "the house", "a book", "the river", "their laptops", "the garden", "a letter", "the café"]
STEPS = 40


@dataclass
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error:")]


def run_command(*arguments: object, stdin: str | bytes = "") -> Said:
    """`seqlab ARGUMENTS` through the same `main` as the console script, without the cost of a new process."""
    from seqlab.cli import main

    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with (
        mock.patch.object(sys, "argv", ["seqlab", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    texts = [stream.buffer.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err)]
    return Said(int(str(code or 0)), *texts)


@pytest.fixture(scope="session")
def seqlab() -> Callable[..., Said]:
    return run_command


@pytest.fixture(scope="session")
def script() -> str:
    """The console script as it was installed."""
    path = Path(sys.executable).with_name("seqlab")
    if not path.exists():
        pytest.skip("the console script is not installed beside this Python")
    return str(path)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """400 short sentences, one a line, with a letter that is not ASCII."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    sentences = [f"{draw.choice(WHO)} {draw.choice(DOES)} {draw.choice(WHAT)}{draw.choice('.!')}" for _ in range(400)]
    path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def commands(text) -> dict[str, list[str]]:
    """How each run is trained."""
    data = [f"data.train={text}", "data.documents=line"]
    steps = [f"training.steps={STEPS}", "training.batch_size=8"]
    small = ["tokenizer.kind=byte", "model.width=32", "model.depth=1", "model.context=32", "task.window=32"]
    return {
        "ngram": ["train", "lm/ngram", *data, "tokenizer.kind=word"],
        "lstm": ["train", "lm/lstm", *data, "tokenizer.kind=character", "model.width=32", *steps],
        "gpt": ["train", "lm/gpt", *data, *small, *steps],
    }


@pytest.fixture(scope="session")
def runs(tmp_path_factory, commands) -> dict[str, Path]:
    """One finished run of each kind; tests that change one copy it first."""
    folder = tmp_path_factory.mktemp("runs")
    for name, command in commands.items():
        said = run_command(*command, "--out", folder / name)
        assert said.code == 0, said.err
    return {name: folder / name for name in commands}
