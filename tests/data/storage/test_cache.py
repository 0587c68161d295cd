"""The cache: whole entries or none, a limit, and nothing that is in use is removed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time

import pytest

from seqlab.data.records import Record
from seqlab.data.storage import cache as module
from seqlab.data.storage.cache import EntryLock, cache_limit, entries, kept, trim
from seqlab.data.storage.store import TokenStore
from seqlab.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SEQLAB_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


def made(key: str, size: int = 1000, kind: str = "tokens"):
    """An entry of so many bytes; what is loaded is its length, and keeps nothing in use."""

    def build(room):
        (room / "data").write_bytes(bytes(size))
        (room / "meta.json").write_text("{}")

    def load(folder, lock):
        return (folder / "data").stat().st_size if (folder / "meta.json").exists() else None

    return kept(kind, key, load, build)


def store(key: str, text: str = "text"):
    encode = {"text": lambda texts: [list(one.encode()) for one in texts]}
    return TokenStore.open(lambda: iter([Record({"text": text}, "a", 1)]), encode, key, vocab_size=256, about="me")


def keys() -> list[str]:
    return [entry.folder.name for entry in entries()]


def aged(cache, key: str, hours: float, kind: str = "tokens") -> None:
    """As if it had not been used for some time."""
    then = time.time() - 3600 * hours
    for path in [cache / kind / f"{key}.lock", *(cache / kind / key).iterdir()]:
        os.utime(path, (then, then))


def test_what_was_unused_for_the_longest_time_goes_first(cache, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE_LIMIT", "3.5kB")
    for age, key in enumerate(["c", "b", "a"], 1):
        made(key)
        aged(cache, key, age)
    assert keys() == ["a", "b", "c"]
    made("a")  # is used again
    assert keys() == ["b", "c", "a"]
    made("d", kind="tokenizers")
    assert keys() == ["c", "a", "d"]
    assert not (cache / "tokens" / "b.lock").exists()
    made("e", 3000)
    assert keys() == ["e"]


def test_an_entry_larger_than_the_limit_is_kept_while_it_is_used(monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE_LIMIT", "10")
    first = store("a")
    second = store("b")
    assert keys() == ["a", "b"]
    assert (bytes(first["text"].flat), bytes(second["text"].flat)) == (b"text\0", b"text\0")
    view = first["text"].flat[1:3]
    del first
    gc.collect()
    trim()
    assert "a" in keys()  # a view is use
    del view, second
    gc.collect()
    trim()
    assert keys() == []


def hold(key, ready, done):
    found = store(key)
    ready.set()
    done.wait(30)
    assert bytes(found["text"].flat) == b"text\0"


def test_what_another_process_uses_is_not_removed():
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=hold, args=("a", ready, done))
    process.start()
    assert ready.wait(30)
    (entry,) = entries()
    assert entry.about == "me"
    assert not entry.remove()
    done.set()
    process.join()
    assert process.exitcode == 0
    assert entry.remove()
    assert entries() == []
    assert entry.remove()  # is gone already


def test_a_lock_that_was_removed_is_no_lock(cache):
    """Whoever waited for the lock of an entry that is gone meanwhile takes a new one."""
    made("a")
    opened = EntryLock(cache / "tokens" / "a", module.fcntl.LOCK_SH)
    (cache / "tokens" / "a.lock").unlink()
    fresh = EntryLock(cache / "tokens" / "a", module.fcntl.LOCK_EX | module.fcntl.LOCK_NB)
    assert os.fstat(fresh.file).st_ino == (cache / "tokens" / "a.lock").stat().st_ino
    opened.release()
    fresh.release()


def test_an_entry_that_another_process_has_built_meanwhile_and_uses():
    """Two ranks of one training: the second one must not wait until the first one ends, which waits for it."""
    users = []

    def build(room):
        (room / "data").write_text("data")

    def read(folder, lock):
        if not (folder / "data").exists():
            return None
        users.append(lock)  # in use until the end
        return (folder / "data").read_text()

    def late(folder, lock):
        if not users:
            lock.release()  # it found nothing; now the other one comes
            assert kept("tokens", "a", read, build) == "data"
            return None
        return (folder / "data").read_text()

    assert kept("tokens", "a", late, build) == "data"


def test_a_damaged_entry_that_another_process_uses(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 3)
    held = EntryLock(module.cache_folder() / "tokens" / "a", module.fcntl.LOCK_SH)
    with pytest.raises(DataError, match="is damaged and in use by another process"):
        kept("tokens", "a", lambda folder, lock: None, lambda room: None)
    held.release()


def churn(number, results):
    """Builds, uses and removes the same few entries as others do at the same time."""
    total = 0
    for turn in range(40):
        total += len(store(f"k{(turn + number) % 3}", "text" * 100)["text"].flat)
        trim()
    results.put(total)


def test_many_processes_that_build_and_remove(monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE_LIMIT", "1000")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=churn, args=(number, results)) for number in range(3)]
    for process in processes:
        process.start()
    assert [results.get() for _ in processes] == [40 * 401] * 3
    for process in processes:
        process.join()


def test_what_a_killed_build_left_is_listed_and_removed(cache):
    room = cache / "tokens" / "a.building"
    room.mkdir(parents=True)
    (room / "text.ids").write_bytes(bytes(500))
    (entry,) = entries()
    assert entry.bytes == 500
    assert "killed" in entry.about
    assert entry.remove()
    assert list((cache / "tokens").iterdir()) == []


def test_a_build_that_fails_leaves_nothing(cache):
    def fail(room):
        (room / "data").write_bytes(b"half")
        raise DataError("broken")

    with pytest.raises(DataError, match="broken"):
        kept("tokens", "a", lambda folder, lock: None, fail)
    assert list((cache / "tokens").iterdir()) == []
    assert made("a") == 1000


def test_a_cache_that_can_only_be_read(cache, monkeypatch):
    made("a")
    (cache / "tokens" / "a.lock").unlink()
    real = os.open

    def readable(path, flags, *rest, **keys):
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *rest, **keys)

    monkeypatch.setattr(module.os, "open", readable)
    assert made("a") == 1000
    with pytest.raises(DataError, match=r"cannot write the cache .*SEQLAB_CACHE"):
        made("b")


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500", 500), ("1.5kB", 1500), ("20 GB", 20 * 10**9), ("3m", 3 * 10**6), ("none", None)],
)
def test_limits(text, size, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE_LIMIT", text)
    assert cache_limit() == size


@pytest.mark.parametrize("text", ["", "-1", "much", "5 XB", "nan"])
def test_limits_that_are_none(text, monkeypatch):
    monkeypatch.setenv("SEQLAB_CACHE_LIMIT", text)
    with pytest.raises(DataError, match=r"SEQLAB_CACHE_LIMIT: .* is not a size"):
        cache_limit()


def test_twenty_gigabytes_by_default():
    assert cache_limit() == 20 * 10**9


# ---------------------------------------------------------------------- a home that cannot be written

HOMES = {"a file": "{file}", "a place that is none": "/dev/null/x", "a file system that takes no folders": "/proc"}


@pytest.fixture
def homeless(tmp_path, monkeypatch):
    """A process that has not asked for its cache yet, and a temporary folder of its own."""
    for name in ("SEQLAB_CACHE", "XDG_CACHE_HOME", "RANK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path / "tmp"))
    for function in (module._usable, module.temporary_folder):
        function.cache_clear()
    yield tmp_path
    for function in (module._usable, module.temporary_folder):
        function.cache_clear()


@pytest.mark.parametrize("home", HOMES.values(), ids=HOMES)
def test_a_home_that_cannot_be_written_is_replaced_and_said_once(homeless, monkeypatch, recwarn, home):
    monkeypatch.setenv("HOME", home.format(file=homeless / "file"))
    assert bytes(store("a")["text"].flat) == b"text\0"
    assert made("b") == 1000
    folder = homeless / "tmp" / f"seqlab-{os.getuid()}"
    assert module.cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert keys() == ["a", "b"]
    [said] = [str(one.message) for one in recwarn]
    assert str(folder) in said
    assert "SEQLAB_CACHE" in said


def test_no_home_at_all(homeless, monkeypatch, recwarn):
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"~/.cache/{name}")
    monkeypatch.chdir(homeless)
    assert made("a") == 1000
    assert not (homeless / "~").exists()
    assert "no home folder" in str(recwarn[0].message)


def test_a_home_that_can_be_written_is_used_without_a_word(homeless, monkeypatch, recwarn):
    monkeypatch.setenv("HOME", str(homeless / "home"))
    assert made("a") == 1000
    assert module.cache_folder().is_relative_to(homeless / "home")
    assert list((homeless / "tmp").iterdir()) == []
    assert not recwarn


@pytest.mark.parametrize("trap", ["a link", "open to all", "a file"])
def test_a_name_that_others_have_taken_is_not_used(homeless, monkeypatch, trap):
    monkeypatch.setenv("HOME", "/dev/null/x")
    taken = homeless / "tmp" / f"seqlab-{os.getuid()}"
    if trap == "a link":
        (homeless / "other").mkdir(mode=0o700)
        taken.symlink_to(homeless / "other")
    elif trap == "a file":
        taken.write_text("")
    else:
        taken.mkdir()
        taken.chmod(0o777)
    assert made("a") == 1000
    folder = module.cache_folder()
    assert folder != taken
    assert folder.parent == taken.parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_asked_for_is_not_replaced(homeless, monkeypatch, capsys):
    monkeypatch.setenv("SEQLAB_CACHE", str(homeless / "file"))
    with pytest.raises(DataError) as raised:
        made("a")
    assert str(homeless / "file") in str(raised.value)
    assert "SEQLAB_CACHE" in str(raised.value)
    assert "make room" not in str(raised.value)
    assert list((homeless / "tmp").iterdir()) == []


def test_a_full_disk_says_make_room(homeless, monkeypatch):
    monkeypatch.setenv("HOME", str(homeless / "home"))

    def full(room):
        raise OSError(module.errno.ENOSPC, os.strerror(module.errno.ENOSPC))

    with pytest.raises(DataError, match=r"No space left.*make room"):
        kept("tokens", "a", lambda folder, lock: None, full)


def test_kernels_are_compiled_elsewhere_where_the_cache_cannot_be_written(homeless, monkeypatch, recwarn):
    from seqlab.native import compiler

    source = 'extern "C" int answer() { return 42; }'
    monkeypatch.setenv("SEQLAB_CACHE", str(homeless / "cache"))
    if compiler.compiled(source) is None:
        pytest.skip("there is no C++ compiler on this machine")
    for function in (compiler.compiled, compiler._elsewhere):
        function.cache_clear()
    monkeypatch.setenv("SEQLAB_CACHE", str(homeless / "file"))
    library = compiler.compiled(source)
    assert library is not None
    assert library.answer() == 42
    assert len(list((homeless / "tmp").glob("seqlab-*/compiled/*.so"))) == 1
    [said] = [str(one.message) for one in recwarn]
    assert str(homeless / "file") in said
    compiler.compiled.cache_clear()
