"""The error report of an evaluation: confusions, calibration, and the worst examples.

A report is plain data: numbers, `confusion` (how often each label was predicted for each true label), and tables, which
are lists of rows, each row a dict with the same keys.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from seqlab.errors import DataError
from seqlab.metrics.judging import Judged
from seqlab.objectives.spans import spans
from seqlab.tasks.outcomes import Classified, Forecasted, LineRead, Outcome, Tagged, Written

Report = dict[str, Any]
Row = dict[str, Any]
BINS = 10
BEFORE = 40
"""Number of characters shown before a surprising token."""
FEWEST = 5
"""Minimum number of tokens in a line for its mean to be meaningful."""
MOST_BITS, BITS = 20.0, 0.5
"""Histograms of language models: the upper end, and the width of a bar."""


def report(outcomes: Iterable[Outcome], worst: int = 10) -> Report:
    """Report on the outcomes of held-out examples, with the `worst` examples of each kind."""
    given = iter(outcomes)
    first = next(given, None)
    if first is None:
        raise DataError("there are no examples to report on", hint="give data with at least one example")
    return _reports[type(first)](chain([first], given), worst)


# ---------------------------------------------------------------------- classes


def of_classes(outcomes: Iterable[Classified], worst: int) -> Report:
    found = list(outcomes)
    return _several_labels(found, worst) if found[0].several else _one_label(found, worst)


def _one_label(found: Sequence[Classified], worst: int) -> Report:
    pairs = [(one.given[0], one.found[0]) for one in found]
    sure = [max(one.probabilities.values()) for one in found]
    wrong = [(p, one) for p, one in zip(sure, found, strict=True) if one.found[0] != one.given[0]]

    def shown(one: Classified, **about: float) -> Row:
        return {**_place(one), "given": one.given[0], "found": one.found[0], **about, "text": one.text}

    return {
        "kind": "classes",
        "examples": len(found),
        "wrong": len(wrong),
        "confusion": _confusion(pairs),
        "confusions": _confusions(pairs, worst),
        "labels": _each_label([{given} for given, _ in pairs], [{chosen} for _, chosen in pairs]),
        **calibration(sure, [given == chosen for given, chosen in pairs]),
        "confidently_wrong": [shown(one, probability=p) for p, one in _most(wrong, worst)],
        "surprising": [shown(one, loss=loss) for loss, one in _most([(one.loss, one) for one in found], worst)],
    }


def _several_labels(found: Sequence[Classified], worst: int) -> Report:
    """Report on decisions; a decision is whether one label applies to one example (p > 0.5)."""

    def shown(one: Classified, **about: Any) -> Row:
        return {**_place(one), "given": list(one.given), "found": one.found, **about, "text": one.text}

    decisions = [(p, label in one.given) for one in found for label, p in one.probabilities.items()]
    wrong = [
        (abs(p - (label in one.given)), (label, p, one))
        for one in found
        for label, p in one.probabilities.items()
        if (p > 0.5) != (label in one.given)
    ]
    return {
        "kind": "several classes",
        "examples": len(found),
        "wrong": sum(set(one.given) != set(one.found) for one in found),
        "labels": _each_label([set(one.given) for one in found], [set(one.found) for one in found]),
        **calibration([max(p, 1 - p) for p, _ in decisions], [(p > 0.5) == given for p, given in decisions]),
        "confidently_wrong": [shown(one, label=label, probability=p) for _, (label, p, one) in _most(wrong, worst)],
        "surprising": [shown(one, loss=loss) for loss, one in _most([(one.loss, one) for one in found], worst)],
    }


def calibration(confidence: Sequence[float], right: Sequence[bool]) -> Report:
    """ece = Σ_b n_b/n |right in b − mean confidence in b|: are 80 % of the answers given with confidence 0.8 right?

    The sum is over ten bins of equal width. Guo et al. 2017, https://arxiv.org/abs/1706.04599
    """
    sure, hit = np.asarray(confidence), np.asarray(right, dtype=float)
    number = np.minimum((sure * BINS).astype(int), BINS - 1)
    bins = []
    for one in range(BINS):
        own = number == one
        if own.any():
            means = {"confidence": float(sure[own].mean()), "right": float(hit[own].mean())}
            bins.append({"from": one / BINS, "to": (one + 1) / BINS, "count": int(own.sum()), **means})
    error = sum(own["count"] / len(sure) * abs(own["right"] - own["confidence"]) for own in bins)
    return {"ece": error, "calibration": bins}


def _confusion(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    labels = sorted({label for pair in pairs for label in pair})
    number = {label: place for place, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    for (given, found), times in Counter(pairs).items():
        counts[number[given], number[found]] = times
    return {"labels": labels, "counts": counts.tolist()}


def _confusions(pairs: Sequence[tuple[str, str]], worst: int) -> list[Row]:
    """Return the most frequent confusions of two labels."""
    wrong = Counter((given, found) for given, found in pairs if given != found)
    ranked = sorted(wrong.items(), key=lambda one: (-one[1], one[0]))[:worst]
    return [{"given": given, "found": found, "times": times} for (given, found), times in ranked]


def _each_label(given: Sequence[set[Any]], found: Sequence[set[Any]], name: Callable[[Any], str] = str) -> list[Row]:
    """Count how often each label was given, found and both; the worst come first."""
    wanted, chosen, hit = (Counter[str]() for _ in range(3))
    for right, own in zip(given, found, strict=True):
        wanted.update(map(name, right))
        chosen.update(map(name, own))
        hit.update(map(name, right & own))
    rows = [
        {
            "label": label,
            "given": wanted[label],
            "found": chosen[label],
            "right": hit[label],
            "precision": hit[label] / max(1, chosen[label]),
            "recall": hit[label] / max(1, wanted[label]),
            "f1": 2 * hit[label] / max(1, wanted[label] + chosen[label]),
        }
        for label in sorted(wanted.keys() | chosen.keys())
    ]
    return sorted(rows, key=lambda row: row["f1"])


# ---------------------------------------------------------------------- tags


def of_tags(outcomes: Iterable[Tagged], worst: int) -> Report:
    found = list(outcomes)
    pairs = [pair for one in found for pair in zip(one.given, one.found, strict=True)]
    sure = [p for one in found for p in one.probabilities]
    counts = [sum(map(str.__ne__, one.given, one.found)) for one in found]

    def shown(one: Tagged, wrong: int) -> Row:
        each = zip(one.words, one.given, one.found, strict=True)
        mistakes = [f"{word}: {given} → {own}" for word, given, own in each if given != own]
        return {**_place(one), "wrong": wrong, "loss": one.loss, "mistakes": mistakes, "text": one.text}

    rows = list(zip(counts, found, strict=True))
    with_errors = [((wrong, one.loss), (one, wrong)) for wrong, one in rows if wrong]
    made: Report = {
        "kind": "tags",
        "examples": len(found),
        "words": len(pairs),
        "wrong": sum(counts),
        "confusion": _confusion(pairs),
        "confusions": _confusions(pairs, worst),
        "labels": _each_label([{given} for given, _ in pairs], [{own} for _, own in pairs]),
        **calibration(sure, [given == own for given, own in pairs]),
        "most_errors": [shown(*about) for _, about in _most(with_errors, worst)],
        "surprising": [shown(one, wrong) for _, (one, wrong) in _most([(o.loss, (o, w)) for w, o in rows], worst)],
        "words_wrong": _wrong_words(found, worst),
    }
    if found[0].marks_spans:
        given, own = [set(spans(one.given)) for one in found], [set(spans(one.found)) for one in found]
        types = _each_label(given, own, name=lambda span: span.type)
        made["types"] = [{"type": row.pop("label"), **row} for row in types]
    return made


def _wrong_words(found: Sequence[Tagged], worst: int) -> list[Row]:
    """Return the words most often wrong, each with its most frequent mistake."""
    times, mistakes = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for one in found:
        times.update(one.words)
        for word, given, own in zip(one.words, one.given, one.found, strict=True):
            if given != own:
                mistakes[word][f"{given} → {own}"] += 1
    ranked = sorted(mistakes, key=lambda word: (-mistakes[word].total(), word))[:worst]
    return [
        {
            "word": word,
            "times": times[word],
            "wrong": mistakes[word].total(),
            "mistake": min(mistakes[word].items(), key=lambda one: (-one[1], one[0]))[0],
        }
        for word in ranked
    ]


# ---------------------------------------------------------------------- texts that were written


def of_texts(outcomes: Iterable[Written], worst: int) -> Report:
    """Score each sentence by chrF, which, unlike BLEU, needs no smoothing for single sentences.

    If some have no answer, all rows have an `error`, which says why.
    """
    found = list(outcomes)
    unanswered = sum(bool(one.error) for one in found)
    judged = Judged(["chrf"], [one.answer for one in found], [[one.reference] for one in found])
    scores = [judged.metrics["chrf"].figure(row) for row in judged.tables["chrf"]]

    def shown(one: Written, **about: float) -> Row:
        texts = {"source": one.text, "answer": one.answer, "reference": one.reference}
        return {**_place(one), **about, **({"error": one.error} if unanswered else {}), **texts}

    low = [(-score, (one, score)) for score, one in zip(scores, found, strict=True)]
    high = [(one.loss / one.tokens, one) for one in found]
    counts, edges = np.histogram(scores, bins=20, range=(0, 100))
    return {
        "kind": "texts",
        "examples": len(found),
        "unanswered": unanswered,
        "exact": sum(one.answer == one.reference for one in found),
        "mean_chrf": float(np.mean(scores)),
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        "lengths": [[len(one.text), score] for one, score in zip(found, scores, strict=True)],
        "worst": [shown(one, chrf=score) for _, (one, score) in _most(low, worst)],
        "surprising": [shown(one, loss_per_token=loss) for loss, one in _most(high, worst)],
    }


# ---------------------------------------------------------------------- forecasts


def of_forecasts(outcomes: Iterable[Forecasted], worst: int) -> Report:
    """Report residuals, truth − forecast; they are ranked in units of the root mean square of their column."""
    found = list(outcomes)
    truth, forecast = (np.array([getattr(one, name) for one in found]) for name in ("truth", "forecast"))  # (N, H, O)
    residuals, names = truth - forecast, list(found[0].columns)
    size = np.sqrt(np.square(residuals).mean((0, 1)))
    in_sizes = residuals / np.where(size > 0, size, 1)
    largest: dict[tuple[Any, ...], Row] = {}  # one per number to be forecast
    for place in np.argsort(-np.abs(in_sizes), axis=None, kind="stable"):
        number, step, column = (int(one) for one in np.unravel_index(place, residuals.shape))
        where = _place(found[number], step)
        values = {"truth": truth, "forecast": forecast, "residual": residuals, "in_rms": in_sizes}
        own = {name: float(of[number, step, column]) for name, of in values.items()}
        largest.setdefault((*where.values(), column), {**where, "column": names[column], "ahead": step + 1, **own})
        if len(largest) == worst:
            break
    return {
        "kind": "forecasts",
        "examples": len(found),
        "columns": [
            {
                "column": name,
                "ahead": step + 1,
                "bias": float(own.mean()),
                "mae": float(np.abs(own).mean()),
                "rmse": float(np.sqrt(np.square(own).mean())),
            }
            for column, name in enumerate(names)
            for step, own in enumerate(residuals[:, :, column].T)
        ],
        "histogram": {
            name: dict(zip(("counts", "edges"), map(np.ndarray.tolist, np.histogram(own, bins=40)), strict=True))
            for name, own in zip(names, in_sizes.reshape(-1, len(names)).T, strict=True)
        },
        "largest": list(largest.values()),
    }


# ---------------------------------------------------------------------- texts that were read


def of_lines(outcomes: Iterable[LineRead], worst: int) -> Report:
    """Report surprise in bits; lines with enough tokens are ranked by the mean over their tokens."""
    lines: list[tuple[float, int, Row]] = []
    tokens: list[tuple[float, int, Row]] = []
    edges = np.append(np.arange(0, MOST_BITS + BITS / 2, BITS), np.inf)
    counts, means, read, total = np.zeros(len(edges) - 1, int), np.zeros(len(edges) - 1, int), 0, 0.0
    for number, one in enumerate(outcomes):
        bits = np.array(one.losses) / math.log(2)
        counts += np.histogram(bits, edges)[0]
        read, total = read + len(bits), total + float(bits.sum())
        if len(bits) >= FEWEST:
            mean = float(bits.mean())
            means += np.histogram([mean], edges)[0]
            row = {**_place(one), "bits_per_token": mean, "tokens": len(bits), "text": one.text}
            _keep(lines, (mean, -number, row), worst)
        for place in np.argsort(-bits, kind="stable")[:worst].tolist():
            before = one.text[max(0, one.starts[place] - BEFORE) : one.starts[place]]
            row = {**_place(one), "bits": float(bits[place]), "token": one.tokens[place], "before": before}
            _keep(tokens, (row["bits"], -(number * 10**6 + place), row), worst)
    bars = {"edges": edges[:-1].tolist(), "tokens": counts.tolist(), "lines": means.tolist()}
    return {
        "kind": "lines",
        "tokens": read,
        "bits_per_token": total / max(1, read),
        "histogram": bars,
        "surprising_lines": [row for *_, row in sorted(lines, key=lambda one: one[:2], reverse=True)],
        "surprising_tokens": [row for *_, row in sorted(tokens, key=lambda one: one[:2], reverse=True)],
    }


def _keep(best: list[tuple[float, int, Row]], one: tuple[float, int, Row], count: int) -> None:
    """Add to a heap of the `count` largest items."""
    if len(best) < count:
        heapq.heappush(best, one)
    elif one[:2] > best[0][:2]:
        heapq.heapreplace(best, one)


# ---------------------------------------------------------------------- shared


def _most(ranked: Iterable[tuple[Any, Any]], count: int) -> list[tuple[Any, Any]]:
    """Return the `count` items with the largest keys; ties keep their order."""
    return sorted(ranked, key=lambda one: one[0], reverse=True)[:count]


def _place(one: Outcome, further: int = 0) -> Row:
    return {"file": one.record.file, one.record.counted: one.record.line + further}


_reports: dict[type[Outcome], Callable[[Iterator[Any], int], Report]] = {
    Classified: of_classes,
    Tagged: of_tags,
    Written: of_texts,
    Forecasted: of_forecasts,
    LineRead: of_lines,
}
