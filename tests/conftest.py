"""What all tests share: a cache of their own, seeds, threads, an order, and which of them may be skipped.

    --seed N|random    every test begins with generators seeded by N and its own name; 0 by default
    --shuffle          in an order drawn from the seed: files, and the tests within each file
    --threads N        that torch computes with; 1 by default
    --kernels FOLDER   where compiled code is kept from run to run; by default it is thrown away
    --strict-skips     a test that is skipped for a reason that is not expected (`EXPECTED_SKIPS`) fails the session

The first line says which seed it is: the same options again repeat a run.
"""

import hashlib
import importlib.util
import os
import random
import re
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

SHARED = Path(__file__).resolve().parents[1] / "../shared/data"
sys.path.insert(0, str(Path(__file__).parent))  # `tolerance` is imported by name

NO_COMPILER = os.environ.get("CXX") == "false" or not (shutil.which("c++") or shutil.which("g++"))
EXPECTED_SKIPS = {
    r"^the shared data has no .* here$": not SHARED.exists(),
    r"^there is no C\+\+ compiler ": NO_COMPILER,
    r"^mkdocs is not installed$": importlib.util.find_spec("mkdocs") is None,  # `make docs` installs it
    r"^bash is not installed$": shutil.which("bash") is None,
    r"^mounting is not permitted here": True,  # a container may lack the right
}
"""Reasons for which a test may be skipped, and whether that is so on this machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("seqlab")
    group.addoption("--seed", default="0", metavar="N|random", help="of every generator, mixed with the test's name")
    group.addoption("--shuffle", action="store_true", help="run files, and the tests within each, in a random order")
    group.addoption("--threads", type=int, default=1, metavar="N", help="threads that torch computes with")
    group.addoption("--kernels", metavar="FOLDER", help="where compiled code is kept from run to run")
    group.addoption("--strict-skips", action="store_true", help="fail if a skip is not expected")


NUMERIC = {
    *("contracts", "decoding", "doctor", "inspection", "models", "nn", "objectives", "reference", "tasks"),
    *("test_averaging.py", "test_evaluation.py", "test_mixing.py", "test_optimizers.py", "test_ranks.py"),
}
"""Folders and files whose tests compute: they depend on instruction sets, threads and compilers. `-m numeric`"""


# ---------------------------------------------------------------------- the cache


def pytest_configure(config: pytest.Config) -> None:
    _make_cache(config)
    _read_seed(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(NamesFailures(config))


def _make_cache(config: pytest.Config) -> None:
    """A folder that is thrown away, before the first file is imported; the processes of pytest-xdist share what they
    compile."""
    made = Path(tempfile.mkdtemp(prefix="seqlab-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
    kernels = getattr(config, "workerinput", {}).get("kernels") or config.option.kernels or made / "kernels"
    config.option.kernels = str(Path(kernels).resolve())
    Path(kernels).mkdir(mode=0o700, parents=True, exist_ok=True)
    (made / "cache").mkdir()
    (made / "cache" / "compiled").symlink_to(config.option.kernels)
    os.environ["SEQLAB_CACHE"] = str(made / "cache")


# ---------------------------------------------------------------------- seeds and order


def _read_seed(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    config.option.seed = secrets.randbelow(2**32) if given == "random" else int(given)
    # examples are drawn from the seed too, and no test has a time limit
    hypothesis.settings.register_profile("seqlab", deadline=None, print_blob=True, database=None)
    hypothesis.settings.load_profile("seqlab")
    hypothesis.core.global_force_seed = config.option.seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """The processes of pytest-xdist draw no seeds of their own."""
    node.workerinput |= {"seed": node.config.option.seed, "kernels": node.config.option.kernels}


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.get_terminal_writer().line(f"seqlab: {_again(session.config)}")


def _again(config: pytest.Config) -> str:
    return f"--seed {config.option.seed}" + (" --shuffle" if config.option.shuffle else "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files stay together: what a file trains once for all its tests is not trained again."""
    for item in items:
        if {item.path.parent.name, item.path.name} & NUMERIC:
            item.add_marker(pytest.mark.numeric)
    if config.option.shuffle:
        items.sort(key=lambda item: (_number(config, str(item.path)), _number(config, item.nodeid)))


def _number(config: pytest.Config, name: str) -> int:
    """A function of the seed and a name alone, whatever ran before."""
    return int.from_bytes(hashlib.sha256(f"{config.option.seed} {name}".encode()).digest()[:4])


def _seed(config: pytest.Config, name: str) -> None:
    import numpy as np
    import torch

    seed = _number(config, name)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a file draws when it is imported."""
    if isinstance(collector, pytest.Module):
        _seed(collector.config, collector.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> None:
    """What fixtures draw that several tests share: which test asks for them first depends on the order."""
    if fixturedef.scope != "function":
        _seed(request.config, f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}")


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    _seed(request.config, request.node.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = (yield).get_result()
    if report.failed:
        report.sections.append(("seed", f"again with the same numbers: {_again(item.config)}"))


class NamesFailures:
    """At once: a session that is stopped before its end prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f" {report.nodeid} failed")


# ---------------------------------------------------------------------- skips


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter) -> None:
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if skipped:
        terminalreporter.section("skipped")
    for reason, count in sorted(skipped.items()):
        mark = "" if _expected(reason) else "  (not expected)"
        terminalreporter.write_line(f"{count:5} {reason}{mark}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.option.strict_skips or hasattr(session.config, "workerinput"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = {_reason(report) for report in reporter.stats.get("skipped", [])}
    if session.exitstatus == pytest.ExitCode.OK and not all(map(_expected, skipped)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reason(report) -> str:
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)


def _expected(reason: str) -> bool:
    return any(here and re.search(pattern, reason) for pattern, here in EXPECTED_SKIPS.items())


# ---------------------------------------------------------------------- what tests use


@pytest.fixture(scope="session")
def _own_cache() -> None:
    """Token stores of tests go to a folder of their own: see `_make_cache`."""


@pytest.fixture(autouse=True)
def _threads(request: pytest.FixtureRequest):
    """The same number for each test: one by default, since tensors are small and others are at work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(request.config.option.threads)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def _own_names():
    """Classes that the tests of a file register (`--code mine.py`) are forgotten after it."""
    from seqlab import registry
    from seqlab.runs import run

    registered, imported = dict(registry._given), dict(run._imported)
    yield
    registry._given.clear()
    registry._given.update(registered)
    run._imported.clear()
    run._imported.update(imported)


@pytest.fixture
def double():
    """Weights and numbers are made in double precision."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """`shared_data("ptb")` is that folder or file of the shared data; the test is skipped where it is missing."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"the shared data has no {name} here")
        return path.resolve()

    return find
