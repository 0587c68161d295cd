"""How fast are n-grams? Counting against dictionaries of plain Python, scoring against kenlm's Python module.

Order 5, modified Kneser-Ney, on the words of the Penn Treebank: trained on its training part, scored on its test part.
All take turns, one thread each, and the minima are compared.

    python benchmarks/ngram.py --repeat 15
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from seqlab.models.arpa import write_arpa
from seqlab.models.ngram import NGram

PTB = Path(__file__).resolve().parents[1] / "../shared/data/ptb"
ORDER = 5


def read() -> tuple[list[str], dict[str, list[str]], dict[str, np.ndarray]]:
    ids = {"<end>": 0}
    lines = {part: (PTB / f"ptb.{part}.txt").read_text(encoding="utf-8").splitlines() for part in ("train", "test")}
    tokens = {
        part: np.array([ids.setdefault(word, len(ids)) for line in text for word in [*line.split(), "<end>"]])
        for part, text in lines.items()
    }
    return list(ids), lines, tokens


def dictionaries(tokens: np.ndarray) -> list[Counter[tuple[int, ...]]]:
    """The n-grams of all orders, counted only: no smoothing."""
    counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(ORDER)]
    for document in np.split(tokens, np.flatnonzero(tokens == 0) + 1):
        text = [0, *document.tolist()]
        for order in range(1, ORDER + 1):
            counts[order - 1].update(zip(*(text[start:] for start in range(order)), strict=False))
    return counts


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    words, lines, tokens = read()
    model = NGram(NGram.Settings(order=ORDER), len(words))
    model.fit(tokens["train"])
    row = torch.as_tensor(np.append(0, tokens["test"]))

    @torch.no_grad()
    def score() -> float:
        return float(model.losses(model(row[None, :-1]).states[0], row[1:]).mean())

    actions: dict[str, Callable[[], object]] = {
        "count": lambda: NGram(model.settings, len(words)).fit(tokens["train"]),
        "score": score,
    }
    actions["dictionaries"] = lambda: dictionaries(tokens["train"])
    try:
        import kenlm
    except ImportError:
        print("kenlm is not installed: not compared")
    else:
        with tempfile.TemporaryDirectory() as folder:
            write_arpa(model, words, f"{folder}/ptb.arpa")
            reader = kenlm.Model(f"{folder}/ptb.arpa")
        actions["kenlm"] = lambda: sum(reader.score(line) for line in lines["test"])
    times: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeat):
        for name, action in actions.items():
            if name != "dictionaries" or turn < 5:  # which take seconds
                times[name].append(seconds(action))
    best = {name: min(found) for name, found in times.items()}
    train, test = len(tokens["train"]), len(tokens["test"])
    print(f"perplexity on the test part: {math.exp(score()):.2f}")
    print(f"training (counts and tables): {best['count']:.2f} s, {train / best['count'] / 1e6:.2f} M tokens/s")
    print(f"dictionaries (counts alone):  {best['dictionaries']:.2f} s, {best['dictionaries'] / best['count']:.1f} x")
    print(f"scoring: {test / best['score'] / 1e6:.2f} M tokens/s")
    if "kenlm" in best:
        print(f"kenlm:   {test / best['kenlm'] / 1e6:.2f} M tokens/s, ratio {best['kenlm'] / best['score']:.2f}")


if __name__ == "__main__":
    main()
