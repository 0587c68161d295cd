"""The package as it is distributed: a wheel, installed into an environment of its own, used from an empty folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the sources, so that nothing is left in them."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", *options, str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("seqlab-*.whl"))


def test_it_holds_all_that_is_not_python_as_well(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "seqlab"
    wanted = {"seqlab/" + path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {name for name in wanted if "__pycache__" not in name} <= held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "docs/"))]


@pytest.mark.slow
def test_it_works_from_any_folder(wheel, tmp_path):
    """Dependencies are borrowed from this environment; the package itself can only come from the wheel."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    zipfile.ZipFile(wheel).extractall(site)
    empty = tmp_path / "empty"
    empty.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = {**kept, "SEQLAB_CACHE": str(tmp_path / "cache")}

    def said(*arguments):
        command = [python, "-m", "seqlab", *arguments]
        return subprocess.run(command, cwd=empty, env=environment, check=True, capture_output=True, text=True).stdout

    where = subprocess.run(
        [python, "-c", "import seqlab; print(seqlab.__file__)"],
        cwd=empty, env=environment, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert Path(where.strip()).is_relative_to(site)
    assert "lm/gpt" in said("recipes")
    (empty / "text.txt").write_text("one two three four five six seven\n" * 200)
    setting = ["data.train=text.txt", "training.steps=3", "training.batch_size=2", "model.width=16", "task.window=16"]
    said("train", "lm/lstm", *setting, "--out", "run")
    assert said("generate", "run", "--prompt", "one two", "--tokens", "5").startswith("one two")
