"""Checkpoints that are damaged are found out and passed over; a full disk costs only the steps since the last one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from small_runs import differences, outcome, recipe, saved_steps, step_folder, train_until, write_recipe

from seqlab.errors import Caution, RunError
from seqlab.runs.launch import train
from seqlab.runs.run import load
from seqlab.training.checkpoint import Checkpoints
from seqlab.training.log import Log, read_log
from seqlab.training.trainer import Silence

FILES = ["model.safetensors", "optimizer.safetensors", "state.safetensors", "state.json", "MANIFEST.json"]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(data)


def remove(file: Path) -> None:
    file.unlink()


class Listener(Silence):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def said(self, message: str) -> None:
        self.heard.append(message)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory):
    """A recipe, a run of it that was killed and has two checkpoints, and what an undisturbed run writes."""
    folder = tmp_path_factory.mktemp("faults")
    plan = recipe(folder, "streams", steps=12)
    train(plan, out=folder / "whole")
    train_until(plan, folder / "killed", 7)
    return plan, folder / "killed", outcome(folder / "whole")


@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit, remove], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_is_passed_over(name: str, damage: Callable[[Path], None], killed, tmp_path: Path) -> None:
    plan, run, whole = killed
    shutil.copytree(run, tmp_path / "run")
    newest, before = sorted(saved_steps(run), reverse=True)[:2]
    damage(step_folder(tmp_path / "run", newest) / name)

    listener = Listener()
    assert Checkpoints(tmp_path / "run", warn=listener.said).newest().facts["step"] == before
    (message,) = listener.heard
    assert str(step_folder(tmp_path / "run", newest)) in message
    assert "damaged" in message
    assert name in message or name == "MANIFEST.json"

    with pytest.warns(Caution, match=f"damaged .*; step {before} is used instead") as told:
        assert load(tmp_path / "run", checkpoint="last").step == before, "a run with a damaged checkpoint can be used"
    assert len(told) == 1
    assert told[0].filename == __file__, "it points at who has loaded the run"
    with pytest.raises(RunError, match=rf"damaged .* there are checkpoints of steps {before}, {newest}"):
        load(tmp_path / "run", checkpoint=newest)
    train(plan, out=tmp_path / "run", resume=True)
    assert differences(whole, outcome(tmp_path / "run")) == []


def test_no_flip_in_a_manifest_is_harmless(killed, tmp_path: Path) -> None:
    """Nothing else vouches for it."""
    _, run, _ = killed
    newest = max(saved_steps(run))
    folder = step_folder(tmp_path, newest)
    shutil.copytree(step_folder(run, newest), folder)
    shutil.copy(run / "MANIFEST.json", tmp_path)
    manifest = folder / "MANIFEST.json"
    original = manifest.read_bytes()
    unnoticed = []
    for bit in range(0, 8 * len(original), 7):
        data = bytearray(original)
        data[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(data)
        with suppress(RunError):  # a flip in the name of the run: the checkpoint of another one
            if Checkpoints(tmp_path).newest() is not None:
                unnoticed.append((bit, chr(original[bit // 8]), chr(data[bit // 8])))
    assert unnoticed == []


def test_a_manifest_names_all_files(killed, tmp_path: Path) -> None:
    _, run, _ = killed
    newest = max(saved_steps(run))
    shutil.copytree(step_folder(run, newest), step_folder(tmp_path, newest))
    for nonsense in ("{}", "[]", "null", "5", '["model.safetensors"]'):
        (step_folder(tmp_path, newest) / "MANIFEST.json").write_text(nonsense)
        assert Checkpoints(tmp_path).newest() is None


def test_all_damaged(killed, server, tmp_path: Path) -> None:
    """Nothing is thrown away without being asked: the message says what to remove."""
    plan, run, whole = killed
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for step in saved_steps(copy):
        truncate(step_folder(copy, step) / "model.safetensors")
    before = outcome(copy)
    code, output = server.run("train", write_recipe(plan, tmp_path / "recipe.yaml"), "--out", copy, "--resume")
    assert code == 2
    for step in saved_steps(copy):
        assert f"{step_folder(copy, step)} is damaged" in output
    last = output.splitlines()[-1]
    assert last == f"error: {copy / 'checkpoints'}: all checkpoints are damaged; remove them to start again"
    assert differences(before, outcome(copy)) == []
    with pytest.raises(RunError, match="has no intact checkpoint"):
        load(copy)

    shutil.rmtree(copy / "checkpoints")
    train(plan, out=copy, resume=True)
    assert differences(whole, outcome(copy)) == []


def test_a_damaged_best_checkpoint(killed, tmp_path: Path) -> None:
    """The newest whole one stands in for it."""
    plan, _, _ = killed
    listener = Listener()
    train(plan, out=tmp_path / "run")
    flip_a_bit(step_folder(tmp_path / "run", 12) / "model.safetensors")
    (tmp_path / "run" / "best").write_text("step-00000012\n")
    assert load(tmp_path / "run", warn=listener.said).step < 12
    (message,) = listener.heard
    assert "step-00000012 is damaged (model.safetensors differs from the manifest); step 10 is used" in message
    for nonsense in ("", "step-99999999\n", "../../other"):
        (tmp_path / "run" / "best").write_text(nonsense)
        with pytest.warns(Caution, match="step 10 is used instead") as told:
            assert load(tmp_path / "run").step == 10
        assert any("best names" in str(one.message) for one in told)


# ------------------------------------------------------------------------- full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for the run folder and one or two checkpoints."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not sys.platform.startswith("linux"):
        pytest.skip("small file systems are mounted on Linux only")
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"mounting is not permitted here ({mount.stderr.strip()})")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path, leave: int) -> Path:
    """A file that leaves so many bytes."""
    ballast = disk / "ballast"
    free = shutil.disk_usage(disk).free
    ballast.write_bytes(bytes(max(0, free - leave)))
    return ballast


@pytest.mark.parametrize("room", [0, 4, 8, 16, 24, 32, 40, 64])
def test_full_disk(room: int, small_disk: Path, server, tmp_path: Path) -> None:
    """With so many KB left: it may fail in a log, or in any file of a checkpoint."""
    plan = recipe(tmp_path, "streams", checkpoint_every=1, report_every=1)
    file, run = write_recipe(plan, tmp_path / "recipe.yaml"), small_disk / "run"
    train_until(plan, run, 5)
    saved = saved_steps(run)
    ballast = fill(small_disk, leave=room * 1024)

    code, output = server.run("train", file, "--out", run, "--resume")
    assert code == 2, output
    *progress, error = output.splitlines()
    assert error.startswith("error: ")
    assert "No space left on device" in error
    assert error.endswith("free disk space, then continue with --resume")
    assert all(line.startswith("train ") for line in progress)
    assert not list(run.rglob(".draft-*"))
    assert max(saved_steps(run)) >= max(saved)
    listener = Listener()
    assert Checkpoints(run, warn=listener.said).newest().facts["step"] == max(saved_steps(run))
    assert listener.heard == []
    assert load(run).step

    ballast.unlink()
    code, output = server.run("train", file, "--out", run, "--resume")
    assert code == 0, output
    train(plan, out=tmp_path / "whole")
    assert differences(outcome(tmp_path / "whole"), outcome(run)) == []


def test_best_that_does_not_fit(killed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full just when the checkpoint has its name: no half-written `best` is left."""
    plan, _, whole = killed
    write = Path.open

    def full(self: Path, *arguments, **options):
        if self.name == ".draft-best":
            self.touch()
            raise OSError(28, "No space left on device", str(self))
        return write(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(RunError, match=r"could not save step 2 .*free disk space, then continue with --resume"):
            train(plan, out=tmp_path / "run")
    assert not list((tmp_path / "run").rglob(".draft-*"))
    train(plan, out=tmp_path / "run", resume=True)
    assert differences(whole, outcome(tmp_path / "run")) == []


# ------------------------------------------------------------------------------- logs


def test_a_log_that_is_being_written(tmp_path: Path) -> None:
    """Whole lines can be read at any moment; texts may hold any character."""
    log = Log(tmp_path / "log.jsonl")
    entries = [{"step": 1, "text": "a\u2028b\x85c\x1cd\r\ne"}, {"step": 2, "text": "日本"}]
    for entry in entries:
        log.write(entry)
    data = log.path.read_bytes()
    first = data.index(b"\n") + 1
    for size in range(len(data) + 1):
        log.path.write_bytes(data[:size])
        assert read_log(log.path) == entries[: (size >= first) + (size == len(data))]
    log.cut(first)
    assert read_log(log.path) == entries[:1]


@pytest.mark.parametrize("name", ["step-3", "step-00000003", "step-x"])
def test_what_only_looks_like_a_checkpoint_is_none(tmp_path, name):
    """A folder of another name, or a link to one that is gone."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / name).symlink_to(tmp_path / "gone")
    assert Checkpoints(tmp_path).newest() is None
    assert Checkpoints(tmp_path).best() is None
