"""Error rates: words (WER), characters (CER), whole lines (exact match)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import jiwer
import numpy as np

from seqlab.metrics.metric import Lower, Metric, Numbers, case, signed


class ErrorRate(Metric):
    """(S + D + I) / (H + S + D): substitutions, deletions, insertions that turn the reference into the hypothesis; hits

    The fewest edits (Levenshtein 1966), computed by jiwer. Of several references, the one with the lowest rate counts.
    Without any reference words, the rate is 100 if there are insertions and 0 otherwise.
    """

    class Settings(Lower):
        pass

    settings: Settings
    better = "lower"
    units = "words"

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        """H, S, D, I"""
        text = self._text(hypothesis)
        return min((self._edits(self._text(one), text) for one in references), key=self.figure)

    def figure(self, sums: Numbers) -> float:
        hits, substitutions, deletions, insertions = sums
        edits, length = substitutions + deletions + insertions, hits + substitutions + deletions
        return float(100 * edits / length) if length else 100.0 * bool(edits)

    def parts(self, sums: Numbers) -> dict[str, float]:
        names = ("hits", "substitutions", "deletions", "insertions")
        return {name: int(value) for name, value in zip(names, sums, strict=True)}

    def signature(self, references: int | None) -> str:
        settings = {"case": case(self.settings), "unit": self.units, "space": "one", "jiwer": version("jiwer")}
        return signed(type(self).__name__, references, settings)

    def _text(self, text: str) -> str:
        """Normalise to one space between words and none at the ends."""
        return " ".join((text.lower() if self.settings.lowercase else text).split())

    def _edits(self, reference: str, hypothesis: str) -> Numbers:
        compared = jiwer.process_words if self.units == "words" else jiwer.process_characters
        found = compared(reference, hypothesis)
        return np.array([found.hits, found.substitutions, found.deletions, found.insertions], dtype=np.float64)


class WER(ErrorRate):
    """Words separated by spaces, unchanged: punctuation and case count."""


class CER(ErrorRate):
    """Characters (code points), including spaces."""

    units = "characters"


class ExactMatch(Metric):
    """Lines that equal a reference / lines; leading and trailing spaces are ignored."""

    class Settings(Lower):
        pass

    settings: Settings
    better = "higher"

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        """1 or 0, 1"""
        text, *those = (self._text(one) for one in (hypothesis, *references))
        return np.array([float(text in those), 1.0])

    def figure(self, sums: Numbers) -> float:
        return float(100 * sums[0] / sums[1])

    def parts(self, sums: Numbers) -> dict[str, float]:
        return {"equal": int(sums[0])}

    def signature(self, references: int | None) -> str:
        return signed("exact", references, {"case": case(self.settings), "space": "stripped"})

    def _text(self, text: str) -> str:
        return (text.lower() if self.settings.lowercase else text).strip()
