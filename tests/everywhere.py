"""The numeric tests on the processors that this one can pretend to be: one run for each instruction set and library.

    python tests/everywhere.py                              all of them: `make test-everywhere`
    python tests/everywhere.py --short                      three of them, and fewer tests: what CI runs
    python tests/everywhere.py --only kernels --out t.md    those whose name has `kernels` in it; the table is written
    python tests/everywhere.py -- --shuffle --seed random   what follows `--` is passed to pytest

Where the processor lacks an instruction set, the configuration is listed as not run. The last columns are fingerprints
of a few results of each library: they show what a configuration changes, and that it changes anything.
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

PROBE = """
import hashlib, torch
from torch.nn import functional as F
torch.set_num_threads({threads})
draw = torch.Generator().manual_seed(0)
a, b = (torch.randn(97, 211, generator=draw) for _ in range(2))
def shown(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:4]
print(shown(torch.stack([a.tanh(), a.exp(), a.softmax(-1)])), shown(a @ b.T), end=" ")
packed = torch.ops.mkldnn._reorder_linear_weight(b)
print(shown(torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], "")), end=" ")
from seqlab.decoding import compiled
print("none" if compiled.library() is None else shown(compiled.CompiledLinear(b, None)(a, "gelu")))
"""


@dataclass
class Result:
    configuration: Configuration
    counts: tuple[int, int, int] | None = None
    """Passed, failed and skipped; none where it was not run."""
    seconds: float = 0.0
    bits: tuple[str, ...] = ("",) * len(LIBRARIES)

    @property
    def row(self) -> list[str]:
        name = self.configuration.name
        if self.counts is None:
            return [name, self.settings, "not run", "", "", "", *self.bits]
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


def run(configuration: Configuration, tests: list[str], more: list[str], kernels: Path) -> Result:
    threads = str(configuration.threads)
    asked = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    # threads that wait do not spin: on a busy machine the others would wait for them
    environment = {**os.environ, **configuration.environment, **asked, "OMP_WAIT_POLICY": "passive"}
    probe = PROBE.format(threads=threads)
    probed = subprocess.run([sys.executable, "-c", probe], env=environment, cwd=ROOT, capture_output=True, text=True)
    bits = tuple(probed.stdout.split()) if probed.returncode == 0 else ("?",) * len(LIBRARIES)
    report = kernels / "report.xml"
    report.unlink(missing_ok=True)
    workers = max(1, (os.cpu_count() or 1) // configuration.threads)
    options = ["-m", "numeric", "-n", str(workers), "--threads", threads, "--kernels", str(kernels / "compiled")]
    command = [sys.executable, "-m", "pytest", *options, "--strict-skips", f"--junitxml={report}", *more, *tests]
    begun = time.perf_counter()
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = time.perf_counter() - begun
    suite = ElementTree.parse(report).getroot().find("testsuite") if report.exists() else None
    keys = ("tests", "failures", "errors", "skipped")
    tests_run, failures, errors, skipped = (0 if suite is None else int(suite.get(key, 0)) for key in keys)
    failed = failures + errors
    if ended.returncode:
        print(ended.stdout[-20_000:], flush=True)
        failed = failed or 1  # a skip that is not expected, or nothing was run at all
    return Result(configuration, (tests_run - failures - errors - skipped, failed, skipped), seconds, bits)


def table(results: list[Result]) -> str:
    head = ["configuration", "set", "passed", "failed", "skipped", "seconds", *LIBRARIES]
    rows = [head, ["---"] * len(head), *(result.row for result in results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="three configurations, fewer tests")
    parser.add_argument("--only", default="", help="configurations whose name has this in it")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("pytest", nargs="*", help="more for pytest, after --")
    given = parser.parse_args()
    here, results = instruction_sets(), []
    chosen = [one for one in CONFIGURATIONS if given.only in one.name and (one.short or not given.short)]
    with tempfile.TemporaryDirectory(prefix="seqlab-everywhere-") as folder:
        os.environ["SEQLAB_CACHE"] = folder  # of the probe
        for one in chosen:
            missing = sorted(one.needs - here)
            tests = SHORT if given.short else ["tests"]
            results.append(Result(one) if missing else run(one, tests, given.pytest, Path(folder)))
            print(" | ".join(results[-1].row) + (f" (no {', '.join(missing)})" if missing else ""), flush=True)
    shown = f"{processor()}\n\n{table(results)}\n"
    print(f"\n{shown}")
    if given.out is not None:
        given.out.write_text(shown, encoding="utf-8")
    sys.exit(any(result.counts is not None and result.counts[1] for result in results))


if __name__ == "__main__":
    main()
