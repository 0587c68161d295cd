"""The lock of a run folder: whoever writes into a run holds it, whoever reads does without."""

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
"""Seconds until whoever has just locked a folder must have written who it is."""


class Locked(RunError):
    """Another process writes into the run folder."""


class RunLock:
    """An exclusive flock on RUN/.lock, which the system lets go of when the process dies.

    The file says who holds it, and is removed with the lock; a folder that was made only to be locked goes with it. A
    file that a killed process has left, or that was copied with a run, locks nothing.
    """

    def __init__(self, folder: Path, said: Callable[[str], None] = caution) -> None:
        """Does not wait: a folder that someone else writes into is an error that says who it is."""
        self.folder, self.path, self.file = folder, folder / FILE, -1
        self.made: list[Path] = []
        try:
            self._take()
            self._introduce()
        except BlockingIOError:
            self._close()
            raise Locked(
                f"{_holder(self.path)} writes into this run",
                where=str(folder),
                hint="wait until it has ended, or choose another --out",
            ) from None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                self.release()
                hint = "choose another --out, or make room"
                raise RunError(f"cannot write here ({error.strerror})", where=str(folder), hint=hint) from None
            said(f"{folder}: this file system has no locks; make sure that nothing else writes into the run")

    def _take(self) -> None:
        """Again where another process has just removed the folder, one above it, or the lock that was opened."""
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
        # nothing can be made here at all: below /proc, behind a broken link
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _make_folder(self) -> None:
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        for path in reversed(missing):
            with suppress(FileExistsError):
                path.mkdir()
                self.made.append(path)

    def _introduce(self) -> None:
        """Say who holds the lock. On a full disk nobody does."""
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
            with suppress(OSError):  # there is something in it now
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
    """Who holds a lock, in words."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            who = json.loads(path.read_text(encoding="utf-8"))
            return f"process {who['pid']} on {who['host']} (since {who['since']})"
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(0.01)
    return "another process"
