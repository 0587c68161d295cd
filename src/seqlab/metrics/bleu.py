"""BLEU, chrF and TER as sacreBLEU computes them: the same tokens, counts, figures and signatures.

Post 2018, "A call for clarity in reporting BLEU scores", https://aclanthology.org/W18-6319
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sacrebleu.metrics import bleu, chrf, ter

from seqlab.metrics.metric import Lower, Metric, Numbers
from seqlab.recipe import PartSettings

ORDERS = 4
"""BLEU counts n-grams of 1 to 4 words."""
TOKENIZED = 100
"""Number of lines ending in " ." from which sacreBLEU warns of tokenised text."""


class BLEU(Metric):
    """BP · exp(Σ_n ln p_n / 4), BP = min(1, exp(1 − reference words / words)), p_n: the share of n-grams in a reference

    Papineni et al. 2002, https://aclanthology.org/P02-1040
    """

    class Settings(Lower):
        tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a"
        """sacreBLEU's tokenizers that need no other package: `zh` for Chinese, `char` for other text without spaces."""

    better = "higher"

    def __init__(self, settings: Settings) -> None:
        # force: no warnings for single lines; `caution` checks all of them for tokenised text
        self.library = bleu.BLEU(lowercase=settings.lowercase, tokenize=settings.tokenize, force=True)

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        score = self.library.corpus_score([hypothesis], [[one] for one in references])
        return np.array([score.sys_len, score.ref_len, *score.counts, *score.totals], dtype=np.float64)

    def figure(self, sums: Numbers) -> float:
        return float(self._score(sums).score)

    def caution(self, hypotheses: Sequence[str]) -> str | None:
        """Give sacreBLEU's warning, by its rule."""
        tokenized = sum(text.endswith(" .") for text in hypotheses)
        if tokenized < TOKENIZED:
            return None
        return (
            f"{tokenized:,} of {len(hypotheses):,} lines end in a tokenised full stop (' .'): BLEU is meant for "
            "detokenised text, and may be too high or too low here"
        )

    def parts(self, sums: Numbers) -> dict[str, float]:
        score = self._score(sums)
        precisions = {f"precision_{order}": float(value) for order, value in enumerate(score.precisions, 1)}
        words, reference_words = map(int, sums[:2])
        return {
            **precisions,
            "brevity_penalty": float(score.bp),
            "words": words,
            "reference_words": reference_words,
        }

    def signature(self, references: int | None) -> str:
        return _signature("BLEU", self.library, references)

    def _score(self, sums: Numbers) -> bleu.BLEUScore:
        words, reference_words, *counts = (int(one) for one in sums)
        return self.library.compute_bleu(
            counts[:ORDERS], counts[ORDERS:], words, reference_words, smooth_method=self.library.smooth_method
        )


class ChrF(Metric):
    """(1 + β²) P R / (β² P + R), β = 2, P and R: means over n of the shares of common character n-grams, n = 1 … 6

    Popović 2015, https://aclanthology.org/W15-3049
    """

    class Settings(Lower):
        words: int = 0
        """Also count word n-grams up to this n."""

    better = "higher"

    def __init__(self, settings: Settings) -> None:
        self.library = chrf.CHRF(word_order=settings.words, lowercase=settings.lowercase)

    # sacreBLEU's public API gives the chrF of a text, but neither its counts nor the chrF of counts; 2.x has both

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        (counts,) = self.library._extract_corpus_statistics([hypothesis], [[one] for one in references])
        return np.array(counts, dtype=np.float64)

    def figure(self, sums: Numbers) -> float:
        return float(self.library._compute_f_score(sums.tolist()))

    def signature(self, references: int | None) -> str:
        plus = "+" * self.library.word_order
        return _signature(f"chrF{self.library.beta}{plus}", self.library, references)


class ChrFPlusPlus(ChrF):
    """chrF that also counts words and pairs of words

    Popović 2017, https://aclanthology.org/W17-4770
    """

    class Settings(ChrF.Settings):
        words: int = 2


class TER(Metric):
    """edits / reference words: words inserted, deleted, replaced, and blocks of words moved; case is ignored

    Snover et al. 2006, https://aclanthology.org/2006.amta-papers.25. With several references, the fewest edits and
    the mean length count.
    """

    class Settings(PartSettings):
        pass

    better = "lower"

    def __init__(self, settings: Settings) -> None:
        self.library = ter.TER()

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        score = self.library.corpus_score([hypothesis], [[one] for one in references])
        return np.array([score.num_edits, score.ref_length], dtype=np.float64)

    def figure(self, sums: Numbers) -> float:
        edits, words = sums
        return float(100 * edits / words) if words else 100.0 * bool(edits)

    def parts(self, sums: Numbers) -> dict[str, float]:
        return {"edits": int(sums[0]), "reference_words": float(sums[1])}

    def signature(self, references: int | None) -> str:
        return _signature("TER", self.library, references)


def _signature(name: str, library: bleu.BLEU | chrf.CHRF | ter.TER, references: int | None) -> str:
    library.num_refs = -1 if references is None else references  # otherwise it would be that of the last line
    return f"{name}|{library.get_signature().format()}"
