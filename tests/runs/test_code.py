"""Files of a person's own: one that trains itself, and one that does so while it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import seqlab

SCRIPT = """
import seqlab
from seqlab.nn.cells import Elman

class Own(Elman):
    '''An Elman cell under another name.'''

seqlab.register("cell", "own-of-test-code", Own)

{guard}
    settings = {{"data.train": "text.txt", "tokenizer": "character", "training": {{"steps": 2}}}}
    settings |= {{"model": {{"cell": "own-of-test-code", "width": 8}}}}
    run = seqlab.train("lm/lstm", settings, out="run", code=__file__)
    print(run)
"""


def ran(folder: Path, guard: str) -> subprocess.CompletedProcess[str]:
    (folder / "text.txt").write_text("to be or not to be\n" * 200)
    (folder / "mine.py").write_text(SCRIPT.format(guard=guard))
    environment = {**os.environ, "PYTHONPATH": str(Path(seqlab.__file__).parents[1])}
    command = [sys.executable, "mine.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_file_can_register_a_class_and_train_with_itself(tmp_path: Path):
    done = ran(tmp_path, 'if __name__ == "__main__":')
    assert done.returncode == 0, done.stderr
    assert "run: recurrent, step 2>" in done.stdout


def test_a_file_that_trains_while_it_is_imported(tmp_path: Path):
    done = ran(tmp_path, "if True:")
    assert "while it is being imported" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()
