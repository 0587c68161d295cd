"""Cuts texts into units determined by their content alone: paragraphs, lines, blocks.

An insertion changes only the unit it falls in (for blocks, at most the next one too). The units of a text add up to
exactly the text. Texts come in pieces, and memory never holds more than one piece and one unfinished unit.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal, Protocol

import numpy as np

Unit = Literal["paragraph", "line", "block", "snippet"]

LONGEST = 1 << 14
"""A paragraph or line with more characters is cut into blocks."""
AVERAGE = {"block": 2048, "snippet": 64}
"""Average characters per unit. Snippets are for texts too short for blocks."""
MOST = 64
"""The maximum length of a block as a multiple of the average. Only repetitive texts reach it."""
REACH = 256
"""How far a cut may move to reach a line end, a blank or a comma."""
REACH_OF_SYMBOLS = 1 << 16
"""The same for sequences of symbols, so that no symbol is cut in two."""

PARAGRAPH_END = re.compile(r"\n(?:[^\S\n]*\n)+")
LINE_END = re.compile(r"\n(?:[^\S\n]*\n)*")
NEWLINE, BLANK, COMMA = re.compile("\n"), re.compile(r"\s"), re.compile(",")


def digest(content: str) -> bytes:
    """Return a 64-bit hash; surrounding blanks do not count, so the last paragraph of a file hashes like any other."""
    return hashlib.blake2b(content.strip().encode("utf-8", "surrogatepass"), digest_size=8).digest()


def limit(share: float) -> bytes:
    """Return the limit that a digest is below with probability `share`."""
    return min(int(share * 2**64), 2**64 - 1).to_bytes(8, "big")


class Cutter(Protocol):
    """Cuts one text that comes in pieces."""

    def push(self, text: str) -> list[str]:
        """Return the units that end in this piece."""

    def finish(self) -> list[str]:
        """Return the rest; another text may follow."""


def cutter(unit: Unit, symbols: bool = False) -> Cutter:
    """Return a cutter. With `symbols`, text between blanks (or commas) is never cut."""
    reach = REACH_OF_SYMBOLS if symbols else REACH
    if unit in AVERAGE:
        return Blocks(AVERAGE[unit], reach)
    return Lines(PARAGRAPH_END if unit == "paragraph" else LINE_END, reach)


class Lines:
    """Cuts a text into paragraphs or lines, each with the blank lines after it; very long ones into blocks."""

    def __init__(self, end: re.Pattern[str], reach: int) -> None:
        self.end, self.reach = end, reach
        self.rest = ""
        self.long: Blocks | None = None  # in use while the unfinished unit is already long

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
    """Cuts a text where a hash of the last 16 characters is small, at the next line end or blank nearby.

    Content-defined chunking with a gear hash, after Xia et al. 2016 (FastCDC), without a minimum length, so that a cut
    depends only on the characters around it.
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
        """Return the places where the hash calls for a cut."""
        around = self.before + text
        hashes = np.frombuffer(around.encode("utf-32-le", "surrogatepass"), "<u4") * np.uint32(0x9E3779B1)
        hashes ^= hashes >> np.uint32(15)
        hashes *= np.uint32(0x85EBCA77)
        width = 1
        while width < self.WINDOW:  # hashes of twice the width: these, plus the earlier ones shifted
            earlier = hashes[:-width] << np.uint32(width)
            hashes[width:] += earlier
            width *= 2
        places = np.flatnonzero(hashes < np.uint32(2**32 // self.average)) + 1 - len(self.before)
        return [int(place) for place in places if place > 0]

    def _moved(self, text: str, place: int) -> int:
        """Move a cut to the next line end, else blank, else comma; without any, the last word of a text stays whole."""
        for sign, reach in ((NEWLINE, REACH), (BLANK, self.reach), (COMMA, self.reach)):
            if found := sign.search(text, place - 1, place + reach):
                return found.end()
        return place if place + self.reach <= len(text) else len(text)
