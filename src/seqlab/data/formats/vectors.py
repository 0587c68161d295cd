"""Pretrained word vectors as text: one word and its numbers per line (GloVe), or the same after a line with their count
and width (word2vec).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab.data.formats.files import opened
from seqlab.errors import DataError, RecipeError


class WordVectors(NamedTuple):
    """The vectors (n, width) of the requested words, and their ids (n,)."""

    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]
    lines: int
    """The number of vectors in the file."""


def word_vectors(file: str, words: Mapping[str, int], width: int) -> WordVectors:
    """Read the vectors for words with these ids; if a word appears twice, its first vector counts."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise RecipeError(f"no file '{file}'", where="model.vectors", hint="give a text file of word vectors")
    found: dict[int, NDArray[np.float32]] = {}
    lines = 0
    with opened(path) as stream:
        for number, raw in enumerate(stream, 1):
            place = f"{path}, line {number}"
            fields = _text(raw, place).rstrip().split(" ")
            if number == 1:
                if len(fields) == 2 and all(field.isdigit() for field in fields):
                    _agree(int(fields[1]), width, place)
                    continue
                _agree(len(fields) - 1, width, place)
            if len(fields) <= width or (len(fields) > width + 1 and _number(fields[-width - 1]) is not None):
                raise _malformed(f"{len(fields) - 1} numbers instead of {width}", place)
            lines += 1
            word = " ".join(fields[:-width])  # some files have words that contain blanks
            if word in words and words[word] not in found:
                found[words[word]] = _vector(fields[-width:], place)
    if not lines:
        raise DataError("no word vectors", where=str(path), hint="each line must be a word and its numbers")
    ids = sorted(found)
    vectors = np.stack([found[index] for index in ids]) if ids else np.zeros((0, width), dtype=np.float32)
    return WordVectors(np.array(ids, dtype=np.int64), vectors, lines)


def _text(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {raw[error.start]:#04x} at column {error.start + 1} is not UTF-8"
        hint = "use the text format, not word2vec's binary format"
        raise DataError(what, where=place, hint=hint) from None


def _agree(found: int, width: int, place: str) -> None:
    if found != width:
        what = f"vectors of {found} numbers, but the embeddings have {width}"
        raise DataError(what, where=place, hint=f"set model.embedding={found}")


def _vector(fields: list[str], place: str) -> NDArray[np.float32]:
    values = [_number(field) for field in fields]
    if None in values:
        raise _malformed(f"'{fields[values.index(None)][:20]}' is not a number", place)
    return np.array(values, dtype=np.float32)


def _number(field: str) -> float | None:
    try:
        value = float(field)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _malformed(what: str, place: str) -> DataError:
    return DataError(what, where=place, hint="each line must be a word and its numbers, separated by blanks")
