from __future__ import annotations

import dis
import subprocess
import sys

import pytest

from seqlab.data.builtin import python_library as library
from seqlab.data.builtin import sets
from seqlab.data.reading.readers import read
from seqlab.errors import DataError
from seqlab.recipe import DataSettings

SMALLEST = {
    "python-docs": 1_500_000,
    "python-code": 5_000_000,
    "python-bytecode": 5_000_000,
    "python-topics": 400_000,
    "phrases": 300_000,
    "date-parts": 100_000,
    "languages": 400_000,
}
"""Characters. Others are made in any size, or need an extra."""


@pytest.mark.parametrize("name", SMALLEST)
def test_builtin_text(name):
    train, valid = list(sets.documents(name, "train")), list(sets.documents(name, "valid"))
    sizes = [sum(len(document.fields["text"]) for document in part) for part in (train, valid)]
    assert sum(sizes) > SMALLEST[name]
    assert 0.02 < sizes[1] / sum(sizes) < 0.09
    assert max(len(document.fields["text"]) for document in valid) < 0.25 * sizes[1]
    names = [document.name for document in train + valid]
    assert len(set(names)) == len(names)
    assert not [name for name in names if "/test" in name or "site-packages" in name]
    assert all(document.fields["text"] for document in train + valid)


def test_the_reader_gives_whole_documents_of_the_fixed_split():
    data = DataSettings(train="python-docs")
    records = list(read(data, "valid"))
    assert [record.fields["text"] for record in records] == [
        d.fields["text"] for d in sets.documents("python-docs", "valid")
    ]
    assert all(record.ends for record in records)
    assert records[0].file.startswith("python-docs:")
    lines = list(read(DataSettings(train="python-docs", documents="line"), "valid"))
    assert len(lines) > len(records)


def test_topics_come_with_labels_and_no_text_twice():
    parts = [list(read(DataSettings(train="python-topics"), which, ("text", "label"))) for which in ("train", "valid")]
    labels = [{one.fields["label"] for one in part} for part in parts]
    assert labels[0] == labels[1]
    assert len(labels[0]) >= 8
    texts = [one.fields["text"] for part in parts for one in part]
    assert len(texts) == len(set(texts)) > 2000
    assert [one.fields for one in read(DataSettings(train="python-topics"), "valid")] == [
        {"text": one.fields["text"]} for one in parts[1]
    ]
    with pytest.raises(DataError, match="does not provide text and label"):
        list(read(DataSettings(train="python-docs"), "valid", ("text", "label")))


def test_docstrings_come_from_top_to_bottom():
    source = '"""module"""\nclass A:\n "class"\n def f(self):\n  "method"\ndef g():\n "function"\n'
    assert library._docstrings(source) == ["module", "class", "method", "function"]
    assert library._docstrings("print 1") == []


def test_bytecode_is_what_the_disassembler_says():
    source = "import os\n\ndef f(a):\n    return [g(x) for x in a if x] + os.sep\n\nclass A:\n    b = lambda: 1\n"
    codes = library._compiled(source)
    names = {code.co_name for code in codes}
    assert {"<module>", "f", "A", "<lambda>"} <= names
    for code in codes:
        said = [one.opname for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
        assert library._instructions(code) == said
    assert library._compiled("print 1") == []


def test_the_same_in_every_process():
    code = "from seqlab.data.builtin import sets; print(sets.content_hash('python-code'))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == sets.content_hash("python-code")


def test_nothing_here_imports_torch():
    code = (
        "import sys, seqlab.cli.data\n"
        "import seqlab.data.reading.readers, seqlab.data.storage.store, seqlab.data.checks.report\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
