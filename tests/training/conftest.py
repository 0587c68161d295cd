"""Command lines that start at once: `server.start("train", ...)` forks a process that has imported everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the tests share `small_runs`, which is imported by name


@dataclass
class Child:
    server: Server
    id: int
    output_file: Path

    @property
    def output(self) -> str:
        return self.output_file.read_text(encoding="utf-8")

    def signal(self, number: int) -> None:
        os.kill(self.id, number)

    def wait(self) -> int:
        """The exit code; minus the number of the signal that killed it."""
        return int(self.server.ask({"wait": self.id}))


class Server:
    """`seqlab` commands in processes of their own, forked from one that has everything imported."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).parent / "fork_server.py")]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, order: dict) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the fork server ended"
        return answer

    def start(self, *arguments: str | Path, **environment: str) -> Child:
        self.count += 1
        output = self.folder / f"{self.count}.txt"
        order = {"arguments": [str(a) for a in arguments], "environment": environment, "output": str(output)}
        return Child(self, int(self.ask(order)), output)

    def run(self, *arguments: str | Path, **environment: str) -> tuple[int, str]:
        """Exit code and output."""
        child = self.start(*arguments, **environment)
        return child.wait(), child.output


@pytest.fixture(scope="session", autouse=True)
def _one_thread_from_the_start() -> None:
    """The number of threads is written into runs; fixtures of modules run before those of tests."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def server(_own_cache: None, tmp_path_factory: pytest.TempPathFactory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    assert server.process.stdin is not None
    server.process.stdin.close()
    server.process.wait()
