"""How much memory does training on a large text take?

Writes a text of so many megabytes (words drawn from a Zipf law over 200,000 spellings), trains a small GPT on it for
a few steps, and prints the peak of the resident memory beyond that of the same process before it reads any data.

    python benchmarks/memory.py --megabytes 1000 --tokenizer bpe
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np


def write_text(path: Path, megabytes: int) -> None:
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))
    spellings = np.array(["".join(random.choice(letters, n)) for n in random.integers(1, 12, 200_000)])
    weights = 1 / np.arange(1, len(spellings) + 1)
    with path.open("w", encoding="utf-8") as file:
        while path.stat().st_size < megabytes * 1_000_000:
            words = random.choice(spellings, 1_200_000, p=weights / weights.sum())
            file.writelines(" ".join(line) + "\n" for line in words.reshape(-1, 12))
            file.flush()


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--tokenizer", default="bpe")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQLAB_CACHE"] = f"{folder}/cache"
        text = Path(folder) / "large.txt"
        process = os.fork()  # the writer's memory is not the training's
        if process == 0:
            write_text(text, arguments.megabytes)
            os._exit(0)
        os.waitpid(process, 0)

        import seqlab

        small = {
            "model.width": 64,
            "model.depth": 2,
            "training.steps": arguments.steps,
            "training.evaluate_every": arguments.steps,
            "tokenizer.kind": arguments.tokenizer,
        }
        probe = Path(folder) / "probe.txt"
        probe.write_text("the same model on a text of a few lines\n" * 500, encoding="utf-8")
        seqlab.train("lm/gpt", {**small, "data.train": str(probe)}, out=f"{folder}/probe")
        before = peak_megabytes()
        start = time.perf_counter()
        seqlab.train("lm/gpt", {**small, "data.train": str(text)}, out=f"{folder}/large")
        size = text.stat().st_size / 1e6
        print(
            f"{size:,.0f} MB of text, {arguments.tokenizer}: peak {peak_megabytes():,.0f} MB, "
            f"{before:,.0f} MB of it without the text, {time.perf_counter() - start:.0f} s"
        )


if __name__ == "__main__":
    main()
