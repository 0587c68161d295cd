"""The examples: each script and each notebook, run from beginning to end in an empty folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
PICTURES = {
    "gates.py": ["gates.png"],
    "attention.ipynb": ["attention.png", "heads.png"],
    "compare.ipynb": ["curves.png", "surprise.png"],
}
"""What an example leaves behind."""
LONGER = {"own_task.py": 180}
"""Most lines of scripts that need more than 80: a task has many methods."""


def name_of(path):
    return path.name


def check_pictures(example, folder):
    for picture in PICTURES.get(example.name, []):
        data = (folder / picture).read_bytes()
        assert data.startswith(b"\x89PNG"), picture
        assert len(data) > 5_000, f"{picture} is nearly empty"


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_a_script_runs(script, tmp_path):
    shutil.copy(script, tmp_path)
    command = [sys.executable, script.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) > 3
    check_pictures(script, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch):
    """In a kernel of its own, whose settings and histories are not those of the person who runs the test."""
    import nbformat
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    folder = tmp_path / "folder"
    folder.mkdir()
    whole = nbformat.read(notebook, as_version=4)
    about = {"metadata": {"path": str(folder)}}
    NotebookClient(whole, timeout=600, kernel_name="python3", resources=about).execute()  # a cell that fails raises
    shown = [output for cell in whole.cells for output in cell.get("outputs", [])]
    assert not [output for output in shown if output.output_type == "error"]
    assert [output for output in shown if "image/png" in output.get("data", {})], "nothing was drawn"
    check_pictures(notebook, folder)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_stored_without_outputs(notebook):
    text = notebook.read_text(encoding="utf-8")
    whole = json.loads(text)
    assert text == json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "not as Jupyter writes it"
    assert set(whole["metadata"]) <= {"kernelspec", "language_info"}
    code = [cell for cell in whole["cells"] if cell["cell_type"] == "code"]
    assert code
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert cell["metadata"] == {}


def test_each_example_has_its_line():
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), flags=re.M)
    assert sorted(listed) == sorted(path.name for path in [*SCRIPTS, *NOTEBOOKS])


def test_scripts_are_short():
    for script in SCRIPTS:
        lines = script.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= LONGER.get(script.name, 80), script.name
