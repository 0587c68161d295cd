"""The README's commands and its Python, run as printed, in one empty folder from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the whole tour, on a busy machine
def test_the_tour_works_as_printed(tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    blocks = re.findall(r"```(sh|python)\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) > 8
    said = ""
    for language, text in blocks:
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        said += done.stdout
    assert "bits per character" in said
    assert (tmp_path / "runs/race/curves.png").stat().st_size > 10_000


def test_files_it_shows_are_there():
    for name in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / name).exists(), name
        assert not name.endswith(".png") or (ROOT / name).stat().st_size < 150_000, f"{name} is large"
