"""Compiles C++ for this machine when it is first needed, and keeps the result in the cache folder.

Two environment variables change this: CXX names the compiler (`CXX=false` disables it), and SEQLAB_NATIVE_ARCH the
target processor, as for the compiler's `-march` (`native` by default; `haswell` is AVX2, `x86-64` SSE2).
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from seqlab.data.storage.cache import cache_folder, temporary_folder
from seqlab.errors import DataError, caution

HEADERS = Path(__file__).parent
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", f"-I{HEADERS}")
INSTALL = "; install g++ (apt install g++, or xcode-select --install)"
INSTRUCTIONS = {
    "AVX-512": "__AVX512F__",
    "AVX2": "__AVX2__",
    "SVE": "__ARM_FEATURE_SVE",
    "NEON": "__ARM_NEON",
    "SSE2": "__SSE2__",
    "FMA": "__FMA__",
}
"""Instruction sets that matter to the kernels, fastest first, and the compiler macros that indicate them."""
failures: list[str] = []
"""The reasons why something could not be compiled in this process, without duplicates."""


@cache
def compiled(source: str, *definitions: str) -> ctypes.CDLL | None:
    """Compile a source with this machine's compiler and load the library; None if that fails."""
    compiler = _compiler()
    if compiler is None:
        _slow("there is no C++ compiler here", INSTALL)
        return None
    try:
        # the key covers everything that the compiler assumes of this machine, and its version
        headers = [path.read_bytes() for path in sorted(HEADERS.glob("*.h"))]
        architecture = _architecture()
        named = [text.encode() for text in (source, *definitions, *FLAGS[:-1], architecture)]
        key = hashlib.sha256(b"\0".join([*named, *headers, _assumed(compiler, architecture)])).hexdigest()
        command = [compiler, *FLAGS, architecture, *(f"-D{one}" for one in definitions)]
        name = f"{key[:32]}.so"
        try:
            return _loaded(command, source, cache_folder() / "compiled" / name)
        except OSError as error:  # not writable, another user's, full, or mounted noexec
            _elsewhere(cache_folder(), temporary_folder(), str(error.strerror or error))
            return _loaded(command, source, temporary_folder() / "compiled" / name)
    except subprocess.SubprocessError as error:
        lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").splitlines()
        _slow(f"the C++ compiler {compiler} failed ({lines[0] if lines else error})", INSTALL)
    except (OSError, DataError) as error:
        _slow(f"kernels cannot be compiled ({error})", INSTALL if shutil.which(compiler) is None else "")
    return None


def _loaded(command: list[str], source: str, path: Path) -> ctypes.CDLL:
    if not path.exists():
        _compile(command, source, path)
    if not _is_own(path):
        raise OSError(errno.EACCES, "another user can write to it")
    return ctypes.CDLL(str(path))


@cache
def _slow(why: str, advice: str) -> None:
    """Warn once; not if the compiler was disabled on purpose."""
    failures.append(why)
    if os.environ.get("CXX") != "false":
        caution(f"{why}: training recurrent nets and generating text will be several times slower{advice}")


@cache
def _elsewhere(folder: Path, other: Path, why: str) -> None:
    caution(f"cannot keep compiled kernels in {folder} ({why}); keeping them in {other}")


def _compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")


def _architecture() -> str:
    return f"-march={os.environ.get('SEQLAB_NATIVE_ARCH') or 'native'}"


@dataclass(frozen=True)
class Toolchain:
    """The compiler of the kernels, and the processor it compiles for."""

    compiler: str
    version: str
    architecture: str
    instructions: tuple[str, ...]
    """The names in INSTRUCTIONS that the kernels use."""


def toolchain() -> Toolchain | None:
    """Return the compiler in use; None if there is none, or if it lacks OpenMP."""
    compiler, architecture = _compiler(), _architecture()
    try:
        if compiler is None:
            return None
        macros = set(re.findall(r"#define (\w+)", _assumed(compiler, architecture).decode(errors="replace")))
        asked = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = next(iter(asked.decode(errors="replace").splitlines()), "")
    known = tuple(name for name, macro in INSTRUCTIONS.items() if macro in macros)
    return Toolchain(compiler, version, architecture, known) if "_OPENMP" in macros else None


def kept_kernels() -> list[Path]:
    """Return all compiled files in the cache folder."""
    return sorted((cache_folder() / "compiled").glob("*.so"))


@cache
def processor_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    with suppress(OSError, subprocess.SubprocessError):
        if sys.platform == "darwin":
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, check=True, timeout=10, text=True).stdout.strip()
    return platform.processor() or platform.machine()


@cache
def _assumed(compiler: str, architecture: str) -> bytes:
    command = [compiler, *FLAGS, architecture, "-dM", "-E", "-x", "c++", "/dev/null"]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def _is_own(path: Path) -> bool:
    """Whether only this user can have written the file, which is the only code outside the package that is executed."""
    if not hasattr(os, "getuid"):
        return True
    states = [place.stat() for place in (path, path.parent)]
    return all(state.st_uid == os.getuid() and not state.st_mode & 0o022 for state in states)


def _compile(command: list[str], source: str, path: Path) -> None:
    """Compile under another name first, so that no other process loads an incomplete file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written, made = Path(folder) / "source.cpp", Path(folder) / path.name
        written.write_text(source, encoding="utf-8")
        subprocess.run([*command, str(written), "-o", str(made)], capture_output=True, check=True, timeout=300)
        made.chmod(0o700)  # whatever the umask: see `_is_own`
        made.replace(path)
