"""Trains a tokenizer on data once; with the same data and settings, it then comes from the cache.

The key is everything that affects the result: the fingerprint of the data, the settings, the code of this package, and
the versions of Python and of the libraries that train. A cache folder holds what `save` wrote and, in meta.json, the
SHA-256 of each file. A damaged tokenizer is trained again.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from seqlab import registry
from seqlab.data.formats.contents import ANSWERS
from seqlab.data.progress import bytes_of, work
from seqlab.data.reading.readers import cache_key, described, read, size
from seqlab.data.records import Record
from seqlab.data.storage.cache import EntryLock, kept
from seqlab.errors import DataError, RecipeError, SeqlabError
from seqlab.recipe import DataSettings, PartSettings
from seqlab.tokenizers.tokenizer import Tokenizer, load_tokenizer

LIBRARIES = ("tokenizers", "sentencepiece", "numpy")


def fitted(
    settings: PartSettings | None,
    data: DataSettings,
    roles: Sequence[str] = ("text",),
    among: Sequence[str] | None = None,
    answers: Sequence[str] = ANSWERS,
) -> Tokenizer:
    """Return a tokenizer with a recipe's settings, learnt from the training data.

    If records have other roles as well, `among` names all of them, because what is held out depends on all but
    `answers`.
    """
    if settings is None:
        raise RecipeError("'tokenizer' is missing", hint="add it, such as tokenizer: {kind: bpe}")
    own = settings.kind not in registry.TOKENIZERS  # a change of its code would go unnoticed
    if own or getattr(settings, "vocab", None) or getattr(settings, "model", None):  # or it is read from a file
        return _learnt(settings, data, roles, among or roles, answers)
    named = [list(roles), list(among or roles), list(answers)]
    key = cache_key(data, "train", settings.model_dump(mode="json"), named, _versions())
    about = f"{settings.kind} of {described(data, 'train')}"

    def build(room: Path) -> None:
        tokenizer = _learnt(settings, data, roles, among or roles, answers)
        tokenizer.save(room)
        files = {path.name: _sha256(path) for path in sorted(room.iterdir())}
        meta = {"about": about, "files": files, "fingerprint": tokenizer.fingerprint}
        (room / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")

    return kept("tokenizers", key, _load, build)


def _learnt(
    settings: PartSettings, data: DataSettings, roles: Sequence[str], among: Sequence[str], answers: Sequence[str]
) -> Tokenizer:
    cls: type[Tokenizer] = registry.find("tokenizer", settings.kind)
    last: Record | None = None

    def texts() -> Iterator[str]:
        nonlocal last
        done = 0
        for last in read(data, "train", among, cls.unit == "symbol", answers):
            for text in (last.fields[role] for role in roles):
                yield text
                done += bytes_of(text)
            progress(done)
        last = None

    with work(f"learning the tokenizer from {described(data, 'train')}", size(data, "train")) as progress:
        try:
            return cls.fit(texts(), settings)
        except DataError as error:
            where = error.where or (described(data, "train") if last is None else last.place)
            raise DataError(error.what, where=where, hint=error.hint) from None


def _load(folder: Path, lock: EntryLock) -> Tokenizer | None:
    """Load the tokenizer in a folder of the cache; None if it is missing or damaged."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if any(_sha256(folder / name) != digest for name, digest in meta["files"].items()):
            return None
        tokenizer = load_tokenizer(folder)
        return tokenizer if tokenizer.fingerprint == meta["fingerprint"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SeqlabError):
        return None


@cache
def _versions() -> list[str]:
    own = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        own.update(path.read_bytes())
    return [own.hexdigest(), platform.python_version(), *map(version, LIBRARIES)]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
