"""A run killed with SIGKILL at twenty random moments ends with the same bits as one that was never killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_runs import READINGS, differences, last_step, outcome, recipe, until, write_recipe

from seqlab.training.log import read_log

STEPS = 60
KILLS = {"at any moment": 4, "inside a save": 4, "while starting": 2}  # for each way of reading


def epoch(run: Path) -> int:
    return max((entry.get("epoch", 0) for entry in read_log(run / "log.jsonl")), default=0)


def saving(run: Path) -> bool:
    return any((run / "checkpoints").glob(".draft-*"))


@pytest.mark.parametrize("reading", READINGS)
def test_killed_twenty_times(reading: str, server, tmp_path: Path) -> None:
    plan = recipe(tmp_path, reading, steps=STEPS, report_every=1, checkpoint_every=1 if reading == "windows" else 2)
    file = write_recipe(plan, tmp_path / "recipe.yaml")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    # the whole run has nothing to do with the fork server
    command = [sys.executable, "-c", "from seqlab.cli import main; main()", "train", file, "--out", str(whole)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    undisturbed = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **silent)

    chance = random.Random(f"{reading} 1")
    ways = [way for way, times in KILLS.items() for _ in range(times)]
    chance.shuffle(ways)
    targets = sorted(chance.sample(range(2, STEPS - 4), len(ways)))
    found, epochs, drafts = [], [], 0
    for way, target in zip(ways, targets, strict=True):
        slow = {"SLOW_FSYNC": "0.003"} if way == "inside a save" else {}
        child = server.start("train", file, "--out", killed, "--resume", **slow)
        if way == "while starting":
            time.sleep(chance.uniform(0, 0.1))
        else:
            until(lambda: last_step(killed) >= target, child)  # noqa: B023
            if way == "inside a save":
                until(lambda: saving(killed), child, pause=0)
            time.sleep(chance.uniform(0, 0.03 if way == "at any moment" else 0.008))
        child.signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, child.output
        drafts += saving(killed) and way != "while starting"  # what it would find was left by the one before
        found.append(last_step(killed))
        epochs.append(epoch(killed))
    print(f"{reading}: killed at steps {found} in epochs {epochs}, {drafts} times inside a save")

    assert max(epochs.count(one) for one in epochs) >= 2, "several kills in one epoch"
    assert max(epochs) >= 1, "kills past the first epoch"
    assert drafts >= 1, "kills inside a save"
    code, output = server.run("train", file, "--out", killed, "--resume")
    assert code == 0, output
    assert undisturbed.wait() == 0
    assert differences(outcome(whole), outcome(killed)) == []
    assert last_step(whole) == STEPS
