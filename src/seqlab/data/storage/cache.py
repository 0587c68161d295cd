"""The cache: what takes long to make (encoded texts, learnt tokenizers, what is held out), each in a folder of its own.

    <cache>/tokens/<key>/      <cache>/tokenizers/<key>/      <cache>/splits/<key>/      beside each of them <key>.lock

An entry is built beside its place under its lock and then renamed: whoever looks sees a whole entry or none, and
of several processes that ask at once, one builds. Whoever uses the files of an entry shares its lock for as long
as that takes, and only an entry that nobody uses is ever removed. The lock's time tells when the entry was used
last: where a new entry makes the cache larger than its limit, those that lay unused for the longest time go.

Where the system's folder cannot be written (a home that is read-only, or none at all), a temporary folder of this user
takes its place, and one line says so. A folder that SEQLAB_CACHE names is never replaced: it was asked for.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from seqlab.errors import DataError, caution

KINDS = ("tokens", "tokenizers", "splits")
LIMIT = "20GB"
SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
FULL = (errno.ENOSPC, errno.EDQUOT)
TRIES = 10
"""How often an entry is built again that another process removes before it can be used."""
T = TypeVar("T")


def cache_folder() -> Path:
    """Where it is: SEQLAB_CACHE, or the place the system has for such things, or a temporary one in its place."""
    if given := os.environ.get("SEQLAB_CACHE"):
        return Path(os.path.expanduser(given))
    from platformdirs import user_cache_dir

    return _usable(Path(user_cache_dir("seqlab")))


@cache
def _usable(folder: Path) -> Path:
    """The folder itself if this process can write there; asked once, and what is said about it is said once."""
    try:
        if not folder.is_absolute():  # ~ stands for nothing here
            raise OSError(errno.ENOENT, "there is no home folder")
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if error.errno in FULL:
            return folder  # whatever is written there will say so, and what to do
        other = temporary_folder()
        caution(
            f"cannot write to the cache folder {folder} ({error.strerror}): using {other}; SEQLAB_CACHE sets another"
        )
        return other
    return folder


@cache
def temporary_folder() -> Path:
    """A folder of this user below the system's temporary one that no other user can write to.

    Where another user has taken its name, it is one of this process alone, removed when that ends.
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
        raise DataError(what, hint="set the variable SEQLAB_CACHE to a folder that can be written") from None

    def remove() -> None:
        if os.getpid() == maker:  # not a fork of it
            shutil.rmtree(own, ignore_errors=True)

    atexit.register(remove)
    return own


def cache_limit() -> int | None:
    """The most bytes it may hold: SEQLAB_CACHE_LIMIT such as 500MB or 20GB; None if that is `none`."""
    given = os.environ.get("SEQLAB_CACHE_LIMIT", LIMIT)
    if given.strip().lower() == "none":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", given, re.IGNORECASE)
    if not match:
        hint = "write 500MB, 20GB or none"
        raise DataError(f"'{given[:40]}' is no size", where="the variable SEQLAB_CACHE_LIMIT", hint=hint)
    return int(float(match[1]) * SIZES[match[2].upper()])


class EntryLock:
    """flock on the file beside an entry: let go of when released, collected, or when the process dies.

    Not filelock's, which has shared locks only as SQLite databases, and those do not survive a fork.
    """

    def __init__(self, folder: Path, how: int) -> None:
        """Waits, unless `how` has LOCK_NB: then a BlockingIOError says that another one has it."""
        path, self.file = _lock_of(folder), -1
        while self.file < 0:
            self.file = _opened(path, shared=bool(how & fcntl.LOCK_SH))
            if self.file < 0:
                return  # a cache that can only be read: nobody removes anything there
            try:
                fcntl.flock(self.file, how)
                current = os.stat(path).st_ino == os.fstat(self.file).st_ino
            except FileNotFoundError:
                current = False
            except BaseException:
                self.release()
                raise
            if not current:  # whoever removed the entry removed the lock with it
                self.release()

    def touch(self) -> None:
        """The entry is used now."""
        if self.file >= 0:
            with suppress(OSError):  # it belongs to someone else
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
    """What the cache has under a key (a sha256 of all that decides what is in it), built first if need be.

    `load` gives None where a folder holds no whole entry; the lock it is given is shared as long as it lives.
    `build` fills an empty folder.
    """
    if not re.fullmatch(r"[\w-]+", key):
        raise ValueError(f"a key is a sha256 in hexadecimal digits, not {key!r}")
    folder = cache_folder() / kind / key
    try:
        for _ in range(TRIES):
            lock = EntryLock(folder, fcntl.LOCK_SH)
            if (found := load(folder, lock)) is not None:
                lock.touch()
                return found
            lock.release()
            with EntryLock(folder, fcntl.LOCK_EX) as lock:
                if load(folder, lock) is None:  # unless another process has built it meanwhile
                    _fill(folder, build)
                    lock.touch()
                    trim()
    except OSError as error:  # the readers give DataErrors of their own: this one is about writing
        room = "make room (`seqlab data cache --clear all`), or " if error.errno in FULL else ""
        hint = f"{room}set the variable SEQLAB_CACHE to another folder"
        what = f"cannot write the cache ({error.strerror or error})"
        raise DataError(what, where=str(cache_folder()), hint=hint) from None
    raise DataError("the cache is too small", where=str(cache_folder()), hint="raise SEQLAB_CACHE_LIMIT")


def _fill(folder: Path, build: Callable[[Path], None]) -> None:
    room = _room(folder)
    shutil.rmtree(room, ignore_errors=True)  # left by a build that was killed
    room.mkdir()
    try:
        build(room)
        shutil.rmtree(folder, ignore_errors=True)  # a damaged entry, if anything
        room.rename(folder)
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        _lock_of(folder).unlink(missing_ok=True)  # last: whoever waits for it makes another, and then a room
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
    """When it was used last, in seconds since 1970."""

    @property
    def about(self) -> str:
        """What it was made of, for people."""
        try:
            meta = json.loads((self.folder / "meta.json").read_text(encoding="utf-8"))
            return str(meta.get("about", ""))
        except (OSError, ValueError, AttributeError):
            return "damaged, or left by a process that was killed"

    def remove(self) -> bool:
        """True if it is gone; False if someone uses it."""
        try:
            with EntryLock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                room = _room(self.folder)
                shutil.rmtree(room, ignore_errors=True)
                with suppress(FileNotFoundError):
                    self.folder.rename(room)  # at once: nobody sees half an entry
                shutil.rmtree(room, ignore_errors=True)
                _lock_of(self.folder).unlink(missing_ok=True)
        except OSError:  # in use, or not ours
            return False
        return True


def entries() -> list[Entry]:
    """All that is in the cache, the longest unused first."""
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
    """With os.walk, which minds no folder that another process removes meanwhile."""
    return (Path(root, name) for root, _, names in os.walk(folder) for name in names)


def trim() -> None:
    """Remove what was unused for the longest time, as long as the cache is larger than its limit."""
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
