"""The bootstrap over lines: how much would a figure vary on other lines of the same kind?

Efron & Tibshirani 1993; for translation metrics Koehn 2004, https://aclanthology.org/W04-3250. Each resample draws as
many lines as the text has, with replacement. The draws equal those of sacreBLEU for the same seed.
"""

from __future__ import annotations

import numpy as np

from seqlab.metrics.metric import Numbers

RESAMPLES = 1000
SEED = 12345


def resampled_sums(table: Numbers, resamples: int, seed: int) -> Numbers:
    """(lines, K) → (resamples, K): the sums of the rows of each draw. Texts of equal length get the same draws."""
    lines = len(table)
    draws = np.random.default_rng(seed)
    sums = np.empty((resamples, table.shape[1]))
    for number in range(resamples):  # row by row: memory does not grow with the number of resamples
        times = np.bincount(draws.integers(lines, size=lines), minlength=lines)
        sums[number] = times.astype(np.float64) @ table
    return sums


def interval(figures: Numbers) -> tuple[float, float]:
    """Return the middle 95 % of resampled figures; NaN if some draws have none."""
    if np.isnan(figures).any():
        return np.nan, np.nan
    left_out = len(figures) // 40
    ordered = np.sort(figures)
    return float(ordered[left_out]), float(ordered[-1 - left_out])


def p_value(difference: float, differences: Numbers) -> float:
    """(1 + #{|d*| − mean |d*| > |d|}) / (1 + resamples): how often chance alone would give such a large difference

    d is the difference of two systems, d* that of a draw. This is the variant of Moses and sacreBLEU: the sizes of the
    differences are shifted to mean 0 (after Riezler & Maxwell 2005, https://aclanthology.org/W05-0908). If no draw has
    any difference, it is 1; sacreBLEU gives its smallest p-value then. It is NaN if a figure is missing.
    """
    if np.isnan(difference) or np.isnan(differences).any():
        return float("nan")
    sizes = np.abs(differences)
    if not sizes.any():
        return 1.0
    return float((1 + np.count_nonzero(sizes - sizes.mean() > abs(difference))) / (1 + len(sizes)))
