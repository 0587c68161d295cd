"""The numeric tests on the processors that this one can pretend to be: one run for each instruction set and library.

    python tests/everywhere.py                              all of them: `make test-everywhere`
    python tests/everywhere.py --all                        also those that change nothing on this processor
    python tests/everywhere.py --short                      three of them, and fewer tests: what CI runs
    python tests/everywhere.py --only kernels --out t.md    those whose name has `kernels` in it; the table is written
    python tests/everywhere.py -- --shuffle --seed random   what follows `--` is passed to pytest

Where the processor lacks an instruction set, the configuration is listed as not run. The last columns are fingerprints
of some hundred results of each library: they show what a configuration changes. Where all are those of one that was run
before, nothing would be new: the table says so, and `--all` runs it nevertheless.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SHORT = ["tests/nn", "tests/decoding", "tests/models/test_forecasters.py", "tests/contracts/test_language_models.py"]
LIBRARIES = ("ATen", "MKL", "oneDNN", "kernels")


@dataclass(frozen=True)
class Configuration:
    name: str
    environment: dict[str, str] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    """Instruction sets, as /proc/cpuinfo names them."""
    threads: int = 1
    short: bool = False


AVX2, AVX512 = frozenset({"avx2", "fma"}), frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"})
OLD = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "MKL_CBWR": "COMPATIBLE",
    "SEQLAB_NATIVE_ARCH": "x86-64",
}
CONFIGURATIONS = [
    Configuration("as it is"),
    Configuration("ATen for any processor", {"ATEN_CPU_CAPABILITY": "default"}),
    Configuration("ATen with AVX2", {"ATEN_CPU_CAPABILITY": "avx2"}, AVX2),
    Configuration("ATen with AVX-512", {"ATEN_CPU_CAPABILITY": "avx512"}, AVX512),
    Configuration("oneDNN with SSE4.1", {"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    Configuration("oneDNN with AVX2", {"ONEDNN_MAX_CPU_ISA": "AVX2"}, AVX2),
    Configuration("oneDNN with AVX-512", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, AVX512),
    Configuration("MKL with SSE4.2", {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}),
    Configuration("MKL with AVX2", {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, AVX2),
    Configuration("MKL with AVX-512", {"MKL_ENABLE_INSTRUCTIONS": "AVX512"}, AVX512),
    Configuration("MKL, the same bits anywhere", {"MKL_CBWR": "COMPATIBLE"}),
    Configuration("kernels for x86-64", {"SEQLAB_NATIVE_ARCH": "x86-64"}),
    Configuration("kernels for haswell", {"SEQLAB_NATIVE_ARCH": "haswell"}, AVX2 | {"bmi2"}),
    Configuration("kernels for native", {"SEQLAB_NATIVE_ARCH": "native"}),
    Configuration("an old processor", OLD, short=True),
    Configuration("two threads", threads=2, short=True),
    Configuration("no compiler", {"CXX": "false"}, short=True),
]


@dataclass
class Result:
    configuration: Configuration
    counts: tuple[int, int, int] | None = None
    """Passed, failed and skipped; none where it was not run."""
    why: str = "not run"
    seconds: float = 0.0
    bits: tuple[str, ...] = ("",) * len(LIBRARIES)

    @property
    def row(self) -> list[str]:
        name = self.configuration.name
        if self.counts is None:
            return [name, self.settings, self.why, "", "", "", *self.bits]
        return [name, self.settings, *map(str, self.counts), f"{self.seconds:.0f}", *self.bits]

    @property
    def settings(self) -> str:
        shown = [f"{key}={value}" for key, value in self.configuration.environment.items()]
        return " ".join(
            [*shown, *([f"{self.configuration.threads} threads"] if self.configuration.threads > 1 else [])]
        )


def instruction_sets() -> frozenset[str]:
    """What the processor can do; nothing is known of it but on Linux."""
    file = Path("/proc/cpuinfo")
    flags = re.search(r"(?m)^flags\s*:(.*)$", file.read_text()) if file.exists() else None
    return frozenset(flags.group(1).split()) if flags else frozenset()


def processor() -> str:
    file = Path("/proc/cpuinfo")
    text = file.read_text() if file.exists() else ""
    named = [re.search(rf"(?m)^{key}\s*: (.*)$", text) for key in ("model name", "cpu family", "model")]
    if not all(named):
        return platform.processor() or platform.machine()
    name, family, model = (found.group(1).strip() for found in named if found)
    return f"{name} (family {family}, model {model}), {os.cpu_count()} cores"


def environment(configuration: Configuration) -> dict[str, str]:
    threads = str(configuration.threads)
    asked = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    # threads that wait do not spin: on a busy machine the others would wait for them
    return {**os.environ, **configuration.environment, **asked, "OMP_WAIT_POLICY": "passive"}


def probed(configuration: Configuration) -> tuple[str, ...]:
    """The fingerprints of what each library computes."""
    command = [sys.executable, "tests/fingerprints.py"]
    ended = subprocess.run(command, env=environment(configuration), cwd=ROOT, capture_output=True, text=True)
    return tuple(ended.stdout.split()) if ended.returncode == 0 else ("?",) * len(LIBRARIES)


def run(
    configuration: Configuration, tests: list[str], more: list[str], kernels: Path, bits: tuple[str, ...]
) -> Result:
    threads = str(configuration.threads)
    report = kernels / "report.xml"
    report.unlink(missing_ok=True)
    workers = max(1, (os.cpu_count() or 1) // configuration.threads)
    options = ["-m", "numeric", "-n", str(workers), "--threads", threads, "--kernels", str(kernels / "compiled")]
    command = [sys.executable, "-m", "pytest", *options, "--strict-skips", f"--junitxml={report}", *more, *tests]
    begun = time.perf_counter()
    ended = subprocess.run(
        command, env=environment(configuration), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = time.perf_counter() - begun
    suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    keys = ("tests", "failures", "errors", "skipped")
    tests_run, failures, errors, skipped = (0 if suite is None else int(suite.get(key, 0)) for key in keys)
    failed = failures + errors
    if ended.returncode:
        print(ended.stdout[-20_000:], flush=True)
        failed = failed or 1  # a skip that is not expected, or nothing was run at all
    counts = (tests_run - failures - errors - skipped, failed, skipped)
    return Result(configuration, counts, seconds=seconds, bits=bits)


def same_bits(done: Result, one: Configuration, bits: tuple[str, ...]) -> bool:
    """Whether a configuration computes what one that was run has computed, as far as fingerprints tell."""
    return "?" not in bits and done.bits == bits and done.configuration.threads == one.threads


def table(results: list[Result]) -> str:
    head = ["configuration", "set", "passed", "failed", "skipped", "seconds", *LIBRARIES]
    rows = [head, ["---"] * len(head), *(result.row for result in results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="three configurations, fewer tests")
    parser.add_argument("--only", default="", help="configurations whose name has this in it")
    parser.add_argument("--all", action="store_true", help="also those that change nothing here")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("pytest", nargs="*", help="more for pytest, after --")
    given = parser.parse_args()
    here, results = instruction_sets(), []
    chosen = [one for one in CONFIGURATIONS if given.only in one.name and (one.short or not given.short)]
    with tempfile.TemporaryDirectory(prefix="seqlab-everywhere-") as folder:
        os.environ["SEQLAB_CACHE"] = folder  # of the probe
        for one in chosen:
            missing = sorted(one.needs - here)
            bits = () if missing else probed(one)
            same = [done for done in results if done.counts and same_bits(done, one, bits)]
            if missing:
                results.append(Result(one, why=f"not run: no {', '.join(missing)}"))
            elif same and not given.all:
                results.append(Result(one, why=f"as “{same[0].configuration.name}”", bits=bits))
            else:
                tests = SHORT if given.short else ["tests"]
                results.append(run(one, tests, given.pytest, Path(folder), bits))
            print(" | ".join(results[-1].row), flush=True)
    shown = f"{processor()}\n\n{table(results)}\n"
    print(f"\n{shown}")
    if given.out is not None:
        given.out.write_text(shown, encoding="utf-8")
    sys.exit(any(result.counts is not None and result.counts[1] for result in results))


if __name__ == "__main__":
    main()
