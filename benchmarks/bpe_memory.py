"""How much memory does training BPE on a large text take, where new words keep coming?

Writes a text of so many megabytes: WikiText-2 over and over (or the built-in documentation of Python where it is not
there), in which every thirtieth word is given an ending of random letters, so that a gigabyte has millions of different
words. Trains each kind on it in a process of its own, and prints the peak of its resident memory.

    python benchmarks/bpe_memory.py --megabytes 1000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from memory import peak_megabytes

WIKITEXT = Path(__file__).resolve().parents[1] / "../shared/data/wikitext2/wiki.train.tokens"


def write_text(path: Path, megabytes: int) -> None:
    import numpy as np

    from seqlab.data.reading.readers import read_texts

    random = np.random.default_rng(0)
    words = "".join(read_texts([str(WIKITEXT) if WIKITEXT.exists() else "python-docs"])).split(" ")
    with path.open("w", encoding="utf-8") as file:
        while path.stat().st_size < megabytes * 1_000_000:
            varied = list(words)
            chosen = random.choice(len(words), len(words) // 30, replace=False)
            letters = random.integers(ord("a"), ord("z") + 1, (len(chosen), 4), dtype=np.uint32)
            for place, ending in zip(chosen.tolist(), letters.view("<U4").ravel().tolist(), strict=True):
                varied[place] += ending
            file.write(" ".join(varied))
            file.flush()


def train(kind: str, path: Path, symbols: int) -> None:
    from seqlab import registry
    from seqlab.data.reading.readers import read_texts

    cls = registry.find("tokenizer", kind)
    before, start = peak_megabytes(), time.perf_counter()
    learned = cls.fit(read_texts([str(path)]), cls.Settings(vocab_size=symbols))
    print(
        f"{kind}, {learned.vocab_size:,} symbols: peak {peak_megabytes():,.0f} MB, {before:,.0f} MB of it before, "
        f"{time.perf_counter() - start:.0f} s, {time.process_time():.0f} s of the processor",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--symbols", type=int, default=30_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "large.txt"
        jobs = [lambda: write_text(text, arguments.megabytes)]
        jobs += [lambda kind=kind: train(kind, text, arguments.symbols) for kind in ("bpe", "classic-bpe")]
        for job in jobs:
            process = os.fork()  # the memory of one is not that of the others
            if process == 0:
                job()
                os._exit(0)
            os.waitpid(process, 0)
        print(f"{text.stat().st_size / 1e6:,.0f} MB of text")


if __name__ == "__main__":
    main()
