"""Metrics that compare texts with references, without torch: BLEU, chrF, TER, ROUGE, METEOR, WER, CER, exact match."""

from seqlab.metrics.judging import Difference, Figure, Judged, judge
from seqlab.metrics.metric import Metric

__all__ = ["Difference", "Figure", "Judged", "Metric", "judge"]
