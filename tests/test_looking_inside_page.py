"""The examples of docs/looking-inside.md, run as printed."""

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "looking-inside.md"


@pytest.mark.usefixtures("_own_cache")
def test_the_examples_work_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zen.txt").write_text("Simple is better than complex.\nComplex is better than complicated.\n" * 20)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 20
    assert not failed
