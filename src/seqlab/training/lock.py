"""The lock of a run folder: a process that writes into a run holds it; readers need no lock."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self

from seqlab.errors import RunError, caution

FILE = ".lock"
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
TRIES = 100
PATIENCE = 1.0
"""Seconds to wait for a process that has just taken the lock to identify itself."""


class Locked(RunError):
    """Another process is writing to the run folder."""


class RunLock:
    """An exclusive flock on RUN/.lock, which the system releases when the process dies.

    The file names the holder and is removed with the lock, as is a folder that was created only to be locked. A file
    left by a killed process, or copied with a run, locks nothing.
    """

    def __init__(self, folder: Path, said: Callable[[str], None] = caution) -> None:
        """Take the lock without waiting; if another process holds it, raise an error that names the process."""
        self.folder, self.path, self.file = folder, folder / FILE, -1
        self.made: list[Path] = []
        try:
            self._take()
            self._introduce()
        except BlockingIOError:
            self._close()
            raise Locked(
                f"{_holder(self.path)} is writing to this run",
                where=str(folder),
                hint="wait until it ends, or choose another --out",
            ) from None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                self.release()
                hint = "choose another --out, or free disk space"
                raise RunError(f"cannot write here ({error.strerror})", where=str(folder), hint=hint) from None
            said(f"{folder}: this file system does not support locks; make sure that nothing else writes to the run")

    def _take(self) -> None:
        """Take the lock; try again if another process has just removed the folder, a parent, or the lock file."""
        for _ in range(TRIES):
            try:
                self._make_folder()
                self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(self.path).st_ino == os.fstat(self.file).st_ino:
                    return
            except FileNotFoundError:
                pass
            self._close()
        # nothing can be created here at all: below /proc, behind a broken link
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _make_folder(self) -> None:
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        for path in reversed(missing):
            with suppress(FileExistsError):
                path.mkdir()
                self.made.append(path)

    def _introduce(self) -> None:
        """Write who holds the lock, unless the disk is full."""
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        who = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n"
        with suppress(OSError):
            os.ftruncate(self.file, 0)
            os.write(self.file, who.encode())

    def release(self) -> None:
        if self.file >= 0:
            with suppress(OSError):
                self.path.unlink()
            self._close()
        for path in reversed(self.made):
            with suppress(OSError):  # the folder is no longer empty
                path.rmdir()

    def _close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _holder(path: Path) -> str:
    """Describe the holder of a lock."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            who = json.loads(path.read_text(encoding="utf-8"))
            return f"process {who['pid']} on {who['host']} (since {who['since']})"
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(0.01)
    return "another process"
