"""Texts cut into units whose place is decided by their content alone: paragraphs, lines, blocks.

An insertion changes the unit that it is in (of blocks, at most the next one too) and no other one. All units of a text
together are exactly the text. Texts come in pieces, and what is kept in memory is never more than a piece and the unit
that has not ended yet.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal, Protocol

import numpy as np

Unit = Literal["paragraph", "line", "block", "snippet"]

LONGEST = 1 << 14
"""A paragraph or line of more characters is cut into blocks."""
AVERAGE = {"block": 2048, "snippet": 64}
"""Characters of a block. Snippets are for texts that are too short for blocks."""
MOST = 64
"""A block has at most so many times the average length. Only a text that repeats itself has blocks like that."""
REACH = 256
"""How far a cut is moved to the end of the line, or to a blank or comma."""
REACH_OF_SYMBOLS = 1 << 16
"""To a blank or comma, where the sequence is one of symbols: none is cut in two."""

PARAGRAPH_END = re.compile(r"\n(?:[^\S\n]*\n)+")
LINE_END = re.compile(r"\n(?:[^\S\n]*\n)*")
NEWLINE, BLANK, COMMA = re.compile("\n"), re.compile(r"\s"), re.compile(",")


def digest(content: str) -> bytes:
    """64 bits; blanks around a text do not count, so that a paragraph at the end of a file is like any other."""
    return hashlib.blake2b(content.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()


def limit(share: float) -> bytes:
    """A digest is below this with a probability of `share`."""
    return min(int(share * 2**64), 2**64 - 1).to_bytes(8, "big")


class Cutter(Protocol):
    """Cuts one text that comes in pieces."""

    def push(self, text: str) -> list[str]:
        """The units that end in this piece."""

    def finish(self) -> list[str]:
        """The rest; after it, another text may begin."""


def cutter(unit: Unit, symbols: bool = False) -> Cutter:
    """With `symbols`, what stands between blanks (or commas) is never cut."""
    reach = REACH_OF_SYMBOLS if symbols else REACH
    if unit in AVERAGE:
        return Blocks(AVERAGE[unit], reach)
    return Lines(PARAGRAPH_END if unit == "paragraph" else LINE_END, reach)


class Lines:
    """Paragraphs or lines, each with the blank lines after it; a very long one in blocks."""

    def __init__(self, end: re.Pattern[str], reach: int) -> None:
        self.end, self.reach = end, reach
        self.rest = ""
        self.long: Blocks | None = None  # at work where the unit that has not ended is long already

    def push(self, text: str) -> list[str]:
        text = self.rest + text
        cuts = [match.end() for match in self.end.finditer(text)]
        if cuts and not text[cuts[-1] :].strip():  # more blank lines may follow in the next piece
            cuts.pop()
        units, start = [], 0
        for stop in cuts:
            if self.long is None and stop - start <= LONGEST:
                units.append(text[start:stop])
            else:
                units += self._long(text[start:stop], ends=True)
            start = stop
        self.rest = text[start:]
        if len(self.rest) > LONGEST:
            inside = len(self.rest.rstrip()) or len(self.rest)  # blanks at the end may turn out to end the unit
            units += self._long(self.rest[:inside], ends=False)
            self.rest = self.rest[inside:]
        return units

    def finish(self) -> list[str]:
        last, self.rest = self.rest, ""
        if self.long is not None or len(last) > LONGEST:
            return self._long(last, ends=True)
        return [last] if last else []

    def _long(self, text: str, ends: bool) -> list[str]:
        blocks = self.long or Blocks(AVERAGE["block"], self.reach)
        self.long = None if ends else blocks
        return blocks.push(text) + (blocks.finish() if ends else [])


class Blocks:
    """A text is cut where a hash of the last 16 characters is small, at the next end of a line or blank that is near.

    Content-defined chunking with a gear hash, after Xia et al. 2016 (FastCDC), without a shortest length, so that a
    cut depends only on the characters around it.
    """

    WINDOW = 16

    def __init__(self, average: int, reach: int) -> None:
        self.average, self.reach, self.most = average, reach, MOST * average
        self.before, self.rest = "", ""

    def push(self, text: str) -> list[str]:
        return self._cut(text, final=False)

    def finish(self) -> list[str]:
        units = self._cut("", final=True)
        units += [self.rest] if self.rest else []
        self.before, self.rest = "", ""
        return units

    def _cut(self, fresh: str, final: bool) -> list[str]:
        text, units, start = self.rest + fresh, [], 0
        known = len(text) if final else len(text) - self.reach  # up to here, the next blank is known
        for place in [*self._places(text), len(text)]:
            while min(place, known) - start > self.most:
                stop = self._moved(text, start + self.most)
                units.append(text[start:stop])
                start = stop
            if place > known or place == len(text):
                break
            if (stop := self._moved(text, place)) > start:
                units.append(text[start:stop])
                start = stop
        self.before = (self.before + text[:start])[-self.WINDOW :]
        self.rest = text[start:]
        return units

    def _places(self, text: str) -> list[int]:
        """After which characters the hash says so."""
        around = self.before + text
        hashes = np.frombuffer(around.encode("utf-32-le", "surrogatepass"), "<u4") * np.uint32(0x9E3779B1)
        hashes ^= hashes >> np.uint32(15)
        hashes *= np.uint32(0x85EBCA77)
        width = 1
        while width < self.WINDOW:  # of twice as many characters: those here, and those before them moved up
            earlier = hashes[:-width] << np.uint32(width)
            hashes[width:] += earlier
            width *= 2
        places = np.flatnonzero(hashes < np.uint32(2**32 // self.average)) + 1 - len(self.before)
        return [int(place) for place in places if place > 0]

    def _moved(self, text: str, place: int) -> int:
        """To the end of the line, else the next blank, else comma; without any, the last word of a text stays whole."""
        for sign, reach in ((NEWLINE, REACH), (BLANK, self.reach), (COMMA, self.reach)):
            if found := sign.search(text, place - 1, place + reach):
                return found.end()
        return place if place + self.reach <= len(text) else len(text)
