"""The pages of docs/lectures: the blocks of each page, run as printed, in one empty folder from top to bottom.

Every `sh` block is one call of bash. All `python` blocks of a page run in one interpreter, so that torch is imported
once, but every block begins without names: it knows the files that earlier blocks have written, not their variables.
A `text` block shows output and is not run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "lectures"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")

SESSION = """
import json, subprocess, sys

for language, text in json.loads(sys.argv[1]):
    print(f"--- {language}\\n{text}", flush=True)
    if language == "sh":
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
    else:
        exec(compile(text, "<block>", "exec"), {"__name__": "__main__"})
"""


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_works_as_printed(page, tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    blocks = [block for block in BLOCK.findall(page.read_text(encoding="utf-8")) if block[0] != "text"]
    command = [sys.executable, "-c", SESSION, json.dumps(blocks)]
    options = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_is_output(page):
    text = page.read_text(encoding="utf-8")
    languages = [language for language, _ in BLOCK.findall(text)]
    assert set(languages) <= {"sh", "python", "text"}
    assert len(re.findall("^```", text, flags=re.MULTILINE)) == 2 * len(languages)
    assert page.stem == "index" or {"sh", "python"} & set(languages)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pictures_are_there(page):
    for name in PICTURE.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / name).stat().st_size > 1_000, name
