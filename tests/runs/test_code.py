"""Files of a person's own: one that trains itself, and one that does so while it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import seqlab
from seqlab.errors import RecipeError, RunError
from seqlab.runs.run import use_code

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


CELL = """
import torch
import seqlab
from seqlab.nn.cells import Elman

class {name}(Elman):
    def step(self, inputs, state):
        return ({scale} * super().step(inputs, state)[0],)

seqlab.register("cell", "{name}", {name})
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("to be or not to be\n" * 200)
    return tmp_path


def written(name: str, scale: float, file: str = "own.py") -> None:
    Path(file).write_text(CELL.format(name=name, scale=scale))


def trained(out: str, name: str, **more: object) -> seqlab.Run:
    settings = {"tokenizer": "character", "model": {"cell": name, "width": 8, "embedding": 8}, **more}
    return seqlab.train(
        "lm/lstm", {**settings, "data.train": "text.txt", "training": {"steps": 2}}, out=out, code="own.py"
    )


def test_an_edited_file_is_imported_again_in_the_same_process(place: Path):
    """As in a notebook: a run is computed with the version it was trained with, or not at all."""
    written("Edited", scale=1)
    first = trained("first", "Edited").evaluate()["loss"]
    written("Edited", scale=0.5)
    assert trained("second", "Edited").evaluate()["loss"] != first
    for code in ("own.py", None):
        with pytest.raises(RunError, match=r"with another version of own.py|with custom code"):
            seqlab.load("first", code=code)
    written("Edited", scale=1)
    assert trained("third", "Edited").evaluate()["loss"] == first
    assert seqlab.load("first", code="own.py").evaluate()["loss"] == first
    assert seqlab.load("third").recipe.environment == seqlab.load("first").recipe.environment


def test_a_model_of_another_run_brings_the_need_for_its_code(place: Path):
    written("Borrowed", scale=1)
    trained("first", "Borrowed")
    model = {"tokenizer": None, "model": {"kind": "run", "from": "first"}}
    assert trained("second", "Borrowed", **model).recipe.environment["code"] == "own.py"
    written("Borrowed", scale=0.5)
    with pytest.raises(RunError, match=r"another version of own.py"):
        seqlab.load("second", code="own.py")


def test_another_file_of_the_same_name_does_not_replace_a_class(place: Path):
    written("Twice", scale=1)
    trained("first", "Twice")
    Path("other").mkdir()
    written("Twice", 0.5, "other/own.py")
    with pytest.raises(RecipeError, match=r"'Twice' is taken by Twice in .*own\.py"):
        use_code("other/own.py")
    assert seqlab.load("first").evaluate()["loss"] == seqlab.load("first", code="own.py").evaluate()["loss"]
