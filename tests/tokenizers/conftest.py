"""Lines in many scripts, for tokenizers to agree on."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "../shared/data"

# The first code points of 256 each: Latin, Greek, Cyrillic, Armenian to Arabic, Indic, Thai to Tibetan, Georgian to
# Hangul, Ethiopic, Cherokee, Khmer, Mongolian, signs, kana, CJK, Yi, Vai, Hangul, forms, old scripts, emoji.
BLOCKS = [
    *(0x0000, 0x0100, 0x0300, 0x0400, 0x0500, 0x0600, 0x0700, 0x0900, 0x0A00, 0x0B00, 0x0C00, 0x0D00, 0x0E00, 0x0F00),
    *(0x1000, 0x1100, 0x1200, 0x1300, 0x1700, 0x1800, 0x1E00, 0x1F00, 0x2000, 0x2100, 0x2200, 0x2600, 0x3000, 0x3100),
    *(0x4E00, 0x6C00, 0x8A00, 0xA000, 0xA500, 0xAC00, 0xC700, 0xF900, 0xFB00, 0xFE00, 0xFF00),
    *(0x10300, 0x10A00, 0x12000, 0x1D400, 0x1F300, 0x1F600, 0x1F900, 0x20000),
]
JOINTS = [" ", " ", " ", "  ", "", ", ", ". ", "-", "’", "\t", "\u00a0", "\u3000", "\u200d", "\ufe0f"]
EMOJI = ["👨‍👩‍👧", "🇩🇪🇫🇷", "👍🏽", "☕️", "1️⃣", "🏳️‍🌈", "👩🏿‍🚀", "©️"]
MARKS = ["\u0301", "\u0327", "\u0308\u0301", "\u0323\u0302", "\u05b8", "\u064e", "\u3099", "\u093e"]


def written(chance: random.Random) -> str:
    """A line of words, most of one script, some of another, with marks and emoji here and there."""
    scripts = chance.sample(BLOCKS, 2)
    line = ""
    for _ in range(chance.randint(3, 12)):
        start = scripts[chance.random() < 0.2]
        codes = [code for code in range(start, start + 256) if unicodedata.category(chr(code))[0] != "C"]
        line += "".join(map(chr, chance.choices(codes, k=chance.randint(1, 8))))
        line += chance.choice(MARKS) if chance.random() < 0.1 else ""
        line += chance.choice(EMOJI) if chance.random() < 0.1 else ""
        line += chance.choice(JOINTS)
    return line


@pytest.fixture(scope="session")
def multilingual() -> list[str]:
    """1,000 lines: sentences in four languages where the shared data is there, the others made of all scripts."""
    chance = random.Random(0)
    lines: list[str] = []
    for name in ("multi30k/val.de", "multi30k/val.fr", "multi30k/val.cs", "tatoeba/eng-fra.tsv"):
        if (SHARED / name).exists():
            lines += chance.sample((SHARED / name).read_text(encoding="utf-8").split("\n"), 125)
    return [*lines, *(written(chance) for _ in range(1000 - len(lines)))]
