"""What `conftest.py` promises of every session: seeds, order, threads and skips."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DRAWS = """
import random, numpy as np, pytest, torch

AT_IMPORT = torch.rand(()).item()

@pytest.fixture(scope="module")
def shared():
    return torch.rand(()).item()

@pytest.mark.parametrize("number", range(6))
def test_draw(number, shared):
    print("DRAWN", number, AT_IMPORT, shared, random.random(), np.random.rand(), torch.rand(()).item())

def test_threads():
    print("THREADS", torch.get_num_threads())
"""
SKIPS = """
import pytest

def test_expected():
    pytest.skip("mounting is not permitted here (a container)")

def test_unexpected():
    {body}
"""


@pytest.fixture
def session(tmp_path):
    """Runs pytest with our conftest on a file of its own."""

    def run(text, *options):
        (tmp_path / "test_some.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "-s", *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def drawn(ended):
    assert ended.returncode == 0, ended.stdout
    return re.findall(r"DRAWN (.*)", ended.stdout)


def test_what_a_test_draws_depends_on_the_seed_and_its_name_alone(session):
    first = drawn(session(DRAWS))
    assert len({line.split()[-1] for line in first}) == 6
    assert drawn(session(DRAWS, "-k", "3"))[0] in first
    shuffled = drawn(session(DRAWS, "--shuffle"))
    assert shuffled != first
    assert sorted(shuffled) == first
    other = drawn(session(DRAWS, "--seed", "7"))
    assert not {number for line in first for number in line.split()[1:]} & {
        n for line in other for n in line.split()[1:]
    }


def test_a_random_seed_is_said_and_repeats_the_run(session):
    ended = session(DRAWS, "--seed", "random", "--shuffle")
    said = re.search(r"seqlab: (--seed \d+ --shuffle)", ended.stdout).group(1)
    assert drawn(session(DRAWS, *said.split())) == drawn(ended)
    failed = session("def test_it():\n    assert 0 > 1", "--seed", "random")
    assert failed.returncode == 1
    assert re.search(r"again with the same numbers: --seed \d+", failed.stdout)


def test_as_many_threads_as_asked_for(session):
    assert "THREADS 2\n" in session(DRAWS, "--threads", "2").stdout


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "two"])
def test_a_skip_that_nobody_expects_is_a_failure(session, processes):
    odd, fine = SKIPS.format(body='pytest.skip("it is late")'), SKIPS.format(body="pass")
    assert session(odd, *processes).returncode == 0
    assert session(fine, "--strict-skips", *processes).returncode == 0
    ended = session(odd, "--strict-skips", *processes)
    assert ended.returncode == 1
    assert "1 it is late  (not expected)" in ended.stdout
    assert "1 mounting is not permitted here (a container)\n" in ended.stdout
