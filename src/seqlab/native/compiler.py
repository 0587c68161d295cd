"""C++ that is compiled for the machine at hand when it is first needed, and kept in the cache folder.

Two environment variables change that: CXX names the compiler (`CXX=false` does without one), and SEQLAB_NATIVE_ARCH the
processor to compile for, as the compiler's `-march` names it (`native` by default; `haswell` is AVX2, `x86-64` SSE2).
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
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
"""Instruction sets that matter to the kernels, the fastest first, and the macros of compilers that use them."""
failures: list[str] = []
"""Why something could not be compiled in this process, each reason once."""


@cache
def compiled(source: str, *definitions: str) -> ctypes.CDLL | None:
    """A library made of a source by this machine's compiler; None where that cannot be had."""
    compiler = _compiler()
    if compiler is None:
        _slow("there is no C++ compiler here", INSTALL)
        return None
    try:
        # all that the compiler assumes of this machine, and its own version
        headers = [path.read_bytes() for path in sorted(HEADERS.glob("*.h"))]
        architecture = _architecture()
        named = [text.encode() for text in (source, *definitions, *FLAGS[:-1], architecture)]
        key = hashlib.sha256(b"\0".join([*named, *headers, _assumed(compiler, architecture)])).hexdigest()
        command = [compiler, *FLAGS, architecture, *(f"-D{one}" for one in definitions)]
        name = f"{key[:32]}.so"
        try:
            return _loaded(command, source, cache_folder() / "compiled" / name)
        except OSError as error:  # not writable, of another user, full, or mounted so that nothing there is executed
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
    """Said once; not to those who want no compiler."""
    failures.append(why)
    if os.environ.get("CXX") != "false":
        caution(f"{why}: recurrent nets train and texts are written several times more slowly{advice}")


@cache
def _elsewhere(folder: Path, other: Path, why: str) -> None:
    caution(f"cannot keep compiled kernels in {folder} ({why}): keeping them in {other}")


def _compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")


def _architecture() -> str:
    return f"-march={os.environ.get('SEQLAB_NATIVE_ARCH') or 'native'}"


@dataclass(frozen=True)
class Toolchain:
    """What kernels are compiled with, and for which processor."""

    compiler: str
    version: str
    architecture: str
    instructions: tuple[str, ...]
    """Those of INSTRUCTIONS that kernels use."""


def toolchain() -> Toolchain | None:
    """The compiler in use; None where there is none, or where it compiles nothing with OpenMP."""
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
    """The compiled files that are kept, of all sources."""
    return sorted((cache_folder() / "compiled").glob("*.so"))


@cache
def _assumed(compiler: str, architecture: str) -> bytes:
    command = [compiler, *FLAGS, architecture, "-dM", "-E", "-x", "c++", "/dev/null"]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


def _is_own(path: Path) -> bool:
    """Whether nobody but this user can have written it: the one file outside of the package that is ever executed."""
    if not hasattr(os, "getuid"):
        return True
    states = [place.stat() for place in (path, path.parent)]
    return all(state.st_uid == os.getuid() and not state.st_mode & 0o022 for state in states)


def _compile(command: list[str], source: str, path: Path) -> None:
    """Under another name first, so that no other process loads half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written, made = Path(folder) / "source.cpp", Path(folder) / path.name
        written.write_text(source, encoding="utf-8")
        subprocess.run([*command, str(written), "-o", str(made)], capture_output=True, check=True, timeout=300)
        made.chmod(0o700)  # whatever the umask: see `_is_own`
        made.replace(path)
