"""What does pruning cost an n-gram? N-grams, MB of tables and validation perplexity for each `model.prune`.

Order 5, modified Kneser-Ney, words and ends of lines, trained on the Penn Treebank and on WikiText-2.

    python benchmarks/pruning.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import seqlab
from seqlab.runs.conversion import ngram_of

SHARED = Path(__file__).resolve().parents[1] / "../shared/data"
DATA = {"PTB": "ptb/ptb.{part}.txt", "WikiText-2": "wikitext2/wiki.{part}.tokens"}
PRUNE = [[], [0, 0, 0, 1], [0, 0, 1], [0, 0, 1, 2], [0, 0, 2], [0, 1], [0, 1, 2]]


def figures(files: str, prune: list[int], out: Path) -> str:
    run = seqlab.train(
        "lm/ngram",
        {
            "data.train": str(SHARED / files.format(part="train")),
            "data.valid": str(SHARED / files.format(part="valid")),
            "data.documents": "line",
            "tokenizer": {"kind": "word", "vocab_size": None, "split": "whitespace"},
            "model.order": 5,
            "model.smoothing": "modified-kneser-ney",
            "model.prune": prune,
        },
        out=out,
    )
    sizes = ngram_of(run).sizes()
    ngrams, room = sum(size.ngrams for size in sizes), sum(size.bytes for size in sizes)
    return f"{ngrams:,} | {room / 1e6:.1f} | {run.log[-1]['valid']['perplexity']:.1f}"


def main() -> None:
    print(f"| prune | {' | '.join(f'{name} n-grams | MB | perplexity' for name in DATA)} |")
    print("|---" * (1 + 3 * len(DATA)) + "|")
    for prune in PRUNE:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SEQLAB_CACHE"] = f"{folder}/cache"
            row = [figures(files, prune, Path(folder) / name) for name, files in DATA.items()]
        print(f"| {' '.join(map(str, prune)) or 'none'} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
