"""The common base of tokenizers that encode with the `tokenizers` library."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain, islice

import tokenizers

from seqlab.tokenizers.dictionary import parts_of
from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.tokenizer import Tokenizer


class LibraryTokenizer(Tokenizer):
    """`tokens` by id, and the `encoder`, which gets long texts in parts because its time grows faster than linearly."""

    tokens: list[str]
    encoder: tokenizers.Tokenizer

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Encoding:
        parts = list(parts_of(text))
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        shift = 0
        for part, encoded in zip(parts, self.encoder.encode_batch(parts), strict=True):
            ids += encoded.ids
            offsets += ((start + shift, stop + shift) for start, stop in encoded.offsets)
            shift += len(part)
        return Encoding(ids, offsets)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [list(parts_of(text)) for text in texts]
        encoded = iter(self.encoder.encode_batch_fast(list(chain.from_iterable(parts))))
        return [list(chain.from_iterable(part.ids for part in islice(encoded, len(group)))) for group in parts]


# The library's threads do not survive a fork, and it warns on stderr in every forked process. So it is told to use one
# thread there. This must happen before the fork, because the library checks at once; the parent keeps its threads.
_PARALLELISM = "TOKENIZERS_PARALLELISM"
_told = False


def _before_fork() -> None:
    global _told
    if _PARALLELISM not in os.environ:
        os.environ[_PARALLELISM], _told = "false", True


def _after_fork_in_parent() -> None:
    global _told
    if _told:
        _told = False
        os.environ.pop(_PARALLELISM, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
