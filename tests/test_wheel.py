"""The package as it is distributed: a wheel, installed into an environment of its own, used from an empty folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the sources, so that nothing is left in them."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    return next(folder.glob("seqlab-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A clean one with the wheel in it. Dependencies are borrowed from here; seqlab can only come from the wheel."""
    folder = tmp_path_factory.mktemp("clean") / "env"
    venv.create(folder, with_pip=False)
    pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    (site_of(folder) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def site_of(environment):
    return next((environment / "lib").glob("python*/site-packages"))


def test_it_holds_all_that_is_not_python_as_well(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "seqlab"
    wanted = {"seqlab/" + path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {name for name in wanted if "__pycache__" not in name} <= held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/", "docs/"))]


def test_it_is_installed_with_a_version_and_a_command(environment):
    assert [path.name for path in site_of(environment).glob("seqlab-*")] == [f"seqlab-{VERSION}.dist-info"]
    assert (environment / "bin" / "seqlab").read_text().startswith(f"#!{environment}")


@pytest.mark.slow
def test_it_works_from_any_folder(environment, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    settings = {"cwd": empty, "env": {**kept, "SEQLAB_CACHE": str(tmp_path / "cache")}}

    def said(program, *arguments):
        command = [environment / "bin" / program, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, **settings).stdout

    where = said("python", "-c", "import seqlab; print(seqlab.__file__)")
    assert Path(where.strip()).is_relative_to(site_of(environment))
    assert said("seqlab", "--version").strip() == VERSION
    assert "lm/gpt" in said("seqlab", "recipes")
    (empty / "text.txt").write_text("one two three four five six seven\n" * 200)
    small = ["data.train=text.txt", "training.steps=3", "training.batch_size=2", "model.width=16", "task.window=16"]
    said("seqlab", "train", "lm/lstm", *small, "--out", "run")
    assert json.loads(said("seqlab", "evaluate", "run", "--json"))["step"] == 3
    assert said("seqlab", "generate", "run", "--prompt", "one two", "--tokens", "5").startswith("one two")
