"""The cache of results that are slow to compute: encoded texts, trained tokenizers, held-out parts, and what is fastest
on a machine. One folder each.

    <cache>/tokens/<key>/      <cache>/tokenizers/<key>/      <cache>/splits/<key>/      <cache>/measurements/<key>/

Each has a <key>.lock beside it.

An entry is built in a separate folder under its lock and then renamed, so readers see a whole entry or none, and only
one of several processes builds it. Readers hold a shared lock while they use an entry's files, and only unused entries
are removed. The lock file's time records the last use: when a new entry pushes the cache over its limit, the least
recently used entries are removed.

If the system's cache folder is not writable (a read-only or missing home), a temporary folder of this user is used
instead, with a one-line warning. A folder set by SEQLAB_CACHE is never replaced: it was chosen on purpose.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import os
import random
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from seqlab.errors import DataError, caution

KINDS = ("tokens", "tokenizers", "splits", "measurements")
LIMIT = "20GB"
SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
FULL = (errno.ENOSPC, errno.EDQUOT)
TRIES = 10
"""How often to rebuild an entry that another process removes before it can be used."""
PATIENCE = 2000
"""Number of times that a process steps aside for others that look for the same entry; some milliseconds each."""
CHANCE = random.SystemRandom()  # the draws of processes differ, and those of a program's own seed stay as they were
T = TypeVar("T")


def cache_folder() -> Path:
    """Return the cache folder: SEQLAB_CACHE, the system's usual place, or a temporary folder instead."""
    if given := os.environ.get("SEQLAB_CACHE"):
        return Path(os.path.expanduser(given))
    from platformdirs import user_cache_dir

    return _usable(Path(user_cache_dir("seqlab")))


@cache
def _usable(folder: Path) -> Path:
    """Return the folder if it is writable, or a temporary one; checked, and warned about, only once."""
    try:
        if not folder.is_absolute():  # ~ could not be expanded
            raise OSError(errno.ENOENT, "there is no home folder")
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if error.errno in FULL:
            return folder  # writing there will raise an error with a hint
        other = temporary_folder()
        caution(
            f"cannot write to the cache folder {folder} ({error.strerror}): using {other}; set SEQLAB_CACHE to move it"
        )
        return other
    return folder


@cache
def temporary_folder() -> Path:
    """Return a folder in the system's temporary folder that no other user can write to.

    If another user has taken its name, the folder belongs to this process alone and is removed when the process ends.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"seqlab-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        facts = os.lstat(folder)
        private = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
        if private and os.access(folder, os.W_OK | os.X_OK):
            return folder
        own, maker = Path(tempfile.mkdtemp(prefix="seqlab-")), os.getpid()
    except OSError as error:
        what = f"there is no temporary folder for the cache either ({error.strerror})"
        raise DataError(what, hint="set the variable SEQLAB_CACHE to a writable folder") from None

    def remove() -> None:
        if os.getpid() == maker:  # not in a forked child
            shutil.rmtree(own, ignore_errors=True)

    atexit.register(remove)
    return own


def cache_limit() -> int | None:
    """Return the maximum size in bytes: SEQLAB_CACHE_LIMIT, such as 500MB or 20GB; None if that is `none`."""
    given = os.environ.get("SEQLAB_CACHE_LIMIT", LIMIT)
    if given.strip().lower() == "none":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", given, re.IGNORECASE)
    if not match:
        hint = "write 500MB, 20GB or none"
        raise DataError(f"'{given[:40]}' is not a size", where="the variable SEQLAB_CACHE_LIMIT", hint=hint)
    return int(float(match[1]) * SIZES[match[2].upper()])


class EntryLock:
    """An flock on the file beside an entry, released explicitly, when collected, or when the process dies.

    The filelock package offers shared locks only through SQLite databases, and those do not survive a fork.
    """

    def __init__(self, folder: Path, how: int) -> None:
        """Wait for the lock; with LOCK_NB in `how`, raise BlockingIOError if another process holds it."""
        path, self.file = _lock_of(folder), -1
        while self.file < 0:
            self.file = _opened(path, shared=bool(how & fcntl.LOCK_SH))
            if self.file < 0:
                return  # a read-only cache: nobody can remove anything there
            try:
                fcntl.flock(self.file, how)
                current = os.stat(path).st_ino == os.fstat(self.file).st_ino
            except FileNotFoundError:
                current = False
            except BaseException:
                self.release()
                raise
            if not current:  # another process removed the entry and its lock
                self.release()

    def touch(self) -> None:
        """Mark the entry as used now."""
        if self.file >= 0:
            with suppress(OSError):  # the file belongs to another user
                os.utime(self.file)

    def release(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def _opened(path: Path, shared: bool) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        if not shared:
            raise
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return -1


def kept(kind: str, key: str, load: Callable[[Path, EntryLock], T | None], build: Callable[[Path], None]) -> T:
    """Return the cached result for a key (a sha256 of everything that determines it), building it first if needed.

    `load` returns None if a folder holds no complete entry; the shared lock it receives is held for as long as the lock
    object lives. `build` fills an empty folder.
    """
    if not re.fullmatch(r"[\w-]+", key):
        raise ValueError(f"a key is a sha256 in hexadecimal digits, not {key!r}")
    folder, builds, waits = cache_folder() / kind / key, 0, 0
    try:
        while builds < TRIES:
            lock = EntryLock(folder, fcntl.LOCK_SH)
            if (found := load(folder, lock)) is not None:
                lock.touch()
                return found
            lock.release()
            try:
                lock = EntryLock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Somebody builds it, or has built it since and uses it, perhaps for hours: never wait for that lock.
                waits += 1
                if waits > PATIENCE:
                    hint = "try again when that process has ended"
                    raise DataError("is damaged and in use by another process", where=str(folder), hint=hint) from None
                time.sleep(CHANCE.uniform(0.001, 0.01))
                continue
            with lock:
                if load(folder, lock) is None:  # another process may have built it meanwhile
                    _fill(folder, build)
                    lock.touch()
                    trim()
            builds += 1
    except OSError as error:  # readers raise their own DataErrors: this one is about writing
        room = "make room (`seqlab data cache --clear all`), or " if error.errno in FULL else ""
        hint = f"{room}set the variable SEQLAB_CACHE to another folder"
        what = f"cannot write the cache ({error.strerror or error})"
        raise DataError(what, where=str(cache_folder()), hint=hint) from None
    raise DataError("the cache limit is too small", where=str(cache_folder()), hint="raise SEQLAB_CACHE_LIMIT")


def _fill(folder: Path, build: Callable[[Path], None]) -> None:
    room = _room(folder)
    shutil.rmtree(room, ignore_errors=True)  # left by a build that was killed
    room.mkdir()
    try:
        build(room)
        shutil.rmtree(folder, ignore_errors=True)  # a damaged entry, if any
        room.rename(folder)
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        _lock_of(folder).unlink(
            missing_ok=True
        )  # last: a waiting process creates a new lock, then its own build folder
        raise


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _room(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.building")


# ---------------------------------------------------------------------- looking and removing


@dataclass(frozen=True)
class Entry:
    """One folder of the cache."""

    kind: str
    folder: Path
    bytes: int
    used: float
    """Time of last use, in seconds since 1970."""

    @property
    def about(self) -> str:
        """A description of what it was built from."""
        try:
            meta = json.loads((self.folder / "meta.json").read_text(encoding="utf-8"))
            return str(meta.get("about", ""))
        except (OSError, ValueError, AttributeError):
            return "damaged, or left by a process that was killed"

    def remove(self) -> bool:
        """Remove the entry. Return False if it is in use."""
        try:
            with EntryLock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                room = _room(self.folder)
                shutil.rmtree(room, ignore_errors=True)
                with suppress(FileNotFoundError):
                    self.folder.rename(room)  # atomic: nobody sees half an entry
                shutil.rmtree(room, ignore_errors=True)
                _lock_of(self.folder).unlink(missing_ok=True)
        except OSError:  # in use, or owned by another user
            return False
        return True


def entries() -> list[Entry]:
    """Return all entries of the cache, least recently used first."""
    found = []
    for kind in KINDS:
        folder = cache_folder() / kind
        keys = {path.name.split(".")[0] for path in folder.iterdir()} if folder.is_dir() else set()
        found += [_entry(kind, folder / key) for key in keys]
    return sorted(found, key=lambda one: (one.used, one.folder))


def _entry(kind: str, folder: Path) -> Entry:
    sizes, times = [0], [0.0]
    for path in (_lock_of(folder), *_files(folder), *_files(_room(folder))):
        with suppress(OSError):  # removed by another process
            facts = path.stat()
            sizes.append(facts.st_size)
            times.append(facts.st_mtime)
    return Entry(kind, folder, sum(sizes), max(times))


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder; os.walk tolerates folders removed by other processes."""
    return (Path(root, name) for root, _, names in os.walk(folder) for name in names)


def trim() -> None:
    """Remove the least recently used entries until the cache is within its limit."""
    limit = cache_limit()
    if limit is None:
        return
    found = entries()
    total = sum(entry.bytes for entry in found)
    for entry in found:
        if total <= limit:
            return
        if entry.remove():
            total -= entry.bytes
