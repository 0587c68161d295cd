"""A text as ids, each with the span of text that it stands for."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]
"""Characters of a text: the first, and the one after the last."""


@dataclass(frozen=True)
class Encoding:
    """A text as ids; `offsets[i]` is the span of the text (start, stop) that token i stands for."""

    ids: list[int]
    offsets: list[Span]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> Encoding:
        """Return some of its tokens, with offsets still into the whole text."""
        return Encoding(self.ids[start:stop], self.offsets[start:stop])
