"""Word vectors of others: which words get theirs, and what is said about files that do not fit."""

import gzip

import numpy as np
import pytest

from seqlab.data.formats.vectors import word_vectors
from seqlab.errors import DataError, RecipeError

WORDS = {"the": 2, "cat": 3, "sat": 4}
GLOVE = "the 0.5 -1 2e-1\ndog 1 1 1\n. . . 9 9 9\ncat 3 4 5\nthe 7 7 7\n"


def written(tmp_path, text, name="vectors.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize("header", ["", "5 3\n"])
def test_words_get_their_vectors(tmp_path, header):
    found = word_vectors(written(tmp_path, header + GLOVE), WORDS, 3)
    assert found.ids.tolist() == [2, 3]
    assert found.lines == 5
    np.testing.assert_allclose(found.vectors, [[0.5, -1, 0.2], [3, 4, 5]])


def test_a_packed_file(tmp_path):
    found = word_vectors(written(tmp_path, gzip.compress(GLOVE.encode()), "vectors.txt.gz"), WORDS, 3)
    assert found.ids.tolist() == [2, 3]


def test_no_word_is_found(tmp_path):
    assert word_vectors(written(tmp_path, "dog 1 2 3\n"), WORDS, 3).vectors.shape == (0, 3)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("the 1 2 3 4\n", 1, "vectors of 4 numbers, but the embeddings have 3"),
        ("9 50\nthe 1 2 3\n", 1, "vectors of 50 numbers, but the embeddings have 3"),
        ("the 1 2 3\ncat 1 2\n", 2, "2 numbers instead of 3"),
        ("the 1 2 3\ncat 1 2 3 4\n", 2, "4 numbers instead of 3"),
        ("the 1 2 3\n\ncat 1 2 3\n", 2, "0 numbers instead of 3"),
        ("dog 1 2 3\ncat 1 x 3\n", 2, "'x' is not a number"),
        ("dog 1 2 3\ncat 1 nan 3\n", 2, "'nan' is not a number"),
        (b"the 1 2 3\nc\xff 1 2 3\n", 2, "not UTF-8"),
    ],
)
def test_malformed_lines_are_named(tmp_path, text, line, what):
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=what) as fault:
        word_vectors(path, WORDS, 3)
    assert fault.value.where == f"{path}, line {line}"


def test_files_that_are_not_there_or_empty(tmp_path):
    with pytest.raises(RecipeError, match="no file"):
        word_vectors(str(tmp_path / "none.txt"), WORDS, 3)
    with pytest.raises(DataError, match="no word vectors"):
        word_vectors(written(tmp_path, ""), WORDS, 3)
