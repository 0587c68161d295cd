"""The page docs/own-classes.md: its files are written, its commands and its Python are run, from top to bottom.

torch is imported once, by a process that then forks for every command and every Python block. Each of them therefore
begins like a new process: it knows the files that earlier blocks have written, and the classes of its own `--code`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from seqlab.metrics import judge
from seqlab.runs.run import use_code

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "own-classes.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")

SESSION = """
import json, os, shlex, subprocess, sys, traceback

import torch._dynamo
import seqlab.cli.display, seqlab.cli.train, seqlab.runs.launch
from seqlab import cli, registry

for family, members in registry.FAMILIES.items():
    for name in members:
        registry.find(family, name)


def python(text):
    exec(compile(text, "<block>", "exec"), {"__name__": "__main__"})


def seqlab_command(arguments):
    sys.argv = ["seqlab", *arguments]
    cli.main()


def forked(action, given):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action(given)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"this failed: {given}")


for language, text in json.loads(sys.argv[1]):
    if language == "python":
        forked(python, text)
        continue
    for line in text.replace("\\\\\\n", " ").splitlines():
        print("$", line)
        before, _, command = line.rpartition("| ")
        if before:
            said = subprocess.run(["bash", "-euc", before], check=True, capture_output=True).stdout
            reading, writing = os.pipe()
            os.write(writing, said)
            os.close(writing)
            os.dup2(reading, 0)
        if command.startswith("seqlab "):
            forked(seqlab_command, shlex.split(command)[1:])
        else:
            subprocess.run(["bash", "-euc", line], check=True)
"""


def blocks():
    return BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_the_page_works_as_printed(tmp_path):
    run = []
    for language, text in blocks():
        if named := FILE.match(text):
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
        else:
            run.append((language, text))
    command = [sys.executable, "-c", SESSION, json.dumps(run)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    options = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


def test_every_block_is_a_file_or_is_run():
    text = PAGE.read_text(encoding="utf-8")
    assert len(re.findall("^```", text, flags=re.MULTILINE)) == 2 * len(blocks())
    for language, block in blocks():
        assert language in {"sh", "python"} or FILE.match(block), block
    files = [named[1] for _, block in blocks() if (named := FILE.match(block))]
    assert len(files) == len(set(files)) > 8


def test_the_metric_of_the_page_on_metrics(tmp_path):
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    (file,) = (block for _, block in BLOCK.findall(text) if FILE.match(block))
    (tmp_path / "first_word.py").write_text(file, encoding="utf-8")
    use_code(tmp_path / "first_word.py")
    found = judge(["first-word"], ["a cat sat", ""], [["the cat sat", "a cat"], ["the"]])["first-word"]
    assert (found.value, found.better) == (50.0, "higher")
