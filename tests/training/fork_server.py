"""Imports torch and seqlab once, then runs command lines in forked children: a start costs milliseconds.

Reads lines of JSON: {"arguments": [...], "environment": {...}, "output": FILE} starts a child and answers its process
id; {"wait": ID} answers its exit code. No torch operation runs here, so that children inherit no threads.
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback

import torch._dynamo  # noqa: F401  (an optimizer imports it)

import seqlab.cli.display  # (likewise what `train` imports)
import seqlab.cli.train
import seqlab.runs.launch  # noqa: F401
from seqlab import cli, registry

for family, members in registry.FAMILIES.items():
    for name in members:
        registry.find(family, name)


def slow_down_fsync(seconds: float) -> None:
    """So that a save takes long enough to be hit."""
    fsync = os.fsync

    def slow(handle: int) -> None:
        fsync(handle)
        time.sleep(seconds)

    os.fsync = slow


def run(order: dict) -> int:
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(order["environment"])
    os.chdir(os.environ.get("FOLDER", "."))
    if "SLOW_FSYNC" in os.environ:
        slow_down_fsync(float(os.environ["SLOW_FSYNC"]))
    sys.argv = ["seqlab", *order["arguments"]]
    faulthandler.enable(sys.__stderr__)
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def exit_code(child: int, seconds: float = 600) -> int:
    """Wait for a child; one that hangs is aborted and leaves behind where each of its threads was.

    The limit is shorter than that of a test, which would otherwise end without a word about the child.
    """
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            running.discard(child)
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGABRT)
            end += 10
        time.sleep(0.002)


running: set[int] = set()
for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        print(exit_code(order["wait"]), flush=True)
        continue
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = run(order)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    running.add(child)
    print(child, flush=True)
for child in running:
    os.kill(child, signal.SIGKILL)
