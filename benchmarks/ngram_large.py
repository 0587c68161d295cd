"""How much memory, disk and time does an n-gram of a large text take?

Writes a text of so many megabytes, trains `lm/ngram` on its words in a process of its own, uses the model in another,
and prints the peak of the resident memory of each, the largest the run folder became, and the sizes of the tables.

The text is drawn from the n-grams of WikiText-2: the next word follows the last two there, or the last one, or none,
and now and then it is a new word from a Zipf law without end, so that n-grams of all lengths keep being new as they do
in real text. `--growth` prints how new they are beside WikiText-2 itself.

    python benchmarks/ngram_large.py --megabytes 1000 --prune 0,0,1
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WIKITEXT = Path(__file__).resolve().parents[1] / "../shared/data/wikitext2/wiki.train.tokens"
CHAINS, LENGTH = 20_000, 400  # texts drawn side by side, and words in each
AFTER_TWO, AFTER_ONE, NEW = 0.62, 0.25, 0.04  # how the next word is drawn; the rest follows nothing
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"


class Source:
    """Draws ids of words as WikiText-2 has them, and ids beyond its vocabulary for new ones; 0 is the end of a line."""

    def __init__(self, path: Path) -> None:
        ids = {"\n": 0}
        lines = [[*line.split(), "\n"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        self.text = np.array([ids.setdefault(word, len(ids)) for line in lines for word in line])
        self.words = np.array(list(ids), dtype=object)
        self.random = np.random.default_rng(0)
        before = np.roll(self.text, 1)
        self.same = [Same(self.text), Same(before * len(ids) + self.text)]  # one word, two words

    def batch(self) -> np.ndarray:
        """(CHAINS, LENGTH) ids of words."""
        random, out = self.random, np.zeros((LENGTH, CHAINS), dtype=np.int64)
        place = random.integers(0, len(self.text), CHAINS)  # in WikiText-2, where each chain last took a word from
        for row in out:
            kind = random.random(CHAINS)
            following = random.integers(0, len(self.text), CHAINS)
            for least, same in zip((1 - AFTER_ONE - AFTER_TWO, 1 - AFTER_TWO), self.same, strict=True):
                use = kind >= least
                following[use] = same.another(place[use], random) + 1
            place = following % len(self.text)
            new = random.random(CHAINS) < NEW
            # P(rank > r) = r^(−1/4): the number of new words grows like the 4/5th power of the text
            rank = np.minimum(random.random(int(new.sum())) ** -4, 1e12).astype(np.int64)
            row[:] = self.text[place]
            row[new] = len(self.words) + rank
        return out.T

    def lines(self, ids: np.ndarray) -> str:
        known = ids < len(self.words)
        words = self.words[np.where(known, ids, 0)]
        words[~known] = [spelling(number) for number in (ids[~known] - len(self.words)).tolist()]
        return " ".join(words.tolist()).replace(" \n ", "\n") + "\n"


class Same:
    """Places of a text that have the same key."""

    def __init__(self, key: np.ndarray) -> None:
        self.order = np.argsort(key, kind="stable")
        ordered = key[self.order]
        self.first, stop = np.searchsorted(ordered, key), np.searchsorted(ordered, key, side="right")
        self.many = stop - self.first

    def another(self, place: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """For each place, one of those with its key."""
        return self.order[self.first[place] + (random.random(len(place)) * self.many[place]).astype(np.int64)]


def spelling(number: int) -> str:
    """A made-up word for a number: no two have the same."""
    letters = []
    while number:
        number, letter = divmod(number, len(LETTERS))
        letters.append(LETTERS[letter])
    return "".join(letters) + "'"


def write_text(path: Path, megabytes: float) -> None:
    source, size = Source(WIKITEXT), 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            for chains in source.batch().reshape(100, -1):
                size += file.write(source.lines(chains))
                if size >= megabytes * 1e6:
                    break


def growth() -> None:
    """How many n-grams of WikiText-2, of as long a text that is drawn, and of a longer one, are different."""
    source = Source(WIKITEXT)
    drawn = source.batch().ravel()
    for name, text in (("WikiText-2", source.text), ("drawn", drawn[: len(source.text)]), ("drawn", drawn)):
        words, text = np.unique(text, return_inverse=True)
        key, shares = text, [len(words) / len(text)]
        for order in range(1, 5):
            ngrams, key = np.unique(key[:-1] * len(words) + text[order:], return_inverse=True)
            shares.append(len(ngrams) / len(text))
        listed = "  ".join(f"{share:.3f}" for share in shares)
        print(f"{name:10s} {len(text):>10,} words; different n-grams of order 1 to 5, of each: {listed}")


def watched(command: list[str], folder: Path) -> dict[str, float]:
    """Run a command: seconds by the clock and of computing, the peaks of its memory and of a folder in megabytes."""
    start, computing, memory, disk = time.perf_counter(), computed(), 0.0, 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        memory = max(memory, *peak(process.pid))
        disk = max(disk, sum(size_of(file) for file in folder.rglob("*")) / 1e6)
        time.sleep(0.2)
    if process.returncode:
        sys.exit(process.stderr.read() if process.stderr else "failed")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "computing": computed() - computing, "memory": memory, "disk": disk}


def computed() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak(pid: int) -> Iterator[float]:
    """VmHWM is kept by the kernel: no peak between two looks is missed."""
    yield 0.0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                yield int(line.split()[1]) * 1024 / 1e6
    except OSError:
        return


def size_of(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:  # removed meanwhile
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--prune", default="0,0,1")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", help="where to write all files (about 25 times the text); a temporary one")
    parser.add_argument("--growth", action="store_true")
    arguments = parser.parse_args()
    if arguments.growth:
        growth()
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        os.environ["SEQLAB_CACHE"] = f"{folder}/cache"
        text, run = folder / "large.txt", folder / "run"
        write_text(text, arguments.megabytes)
        print(f"text: {text.stat().st_size / 1e6:,.0f} MB")
        settings = {
            "data.train": text,
            "data.documents": "line",
            "tokenizer.kind": "word",
            "tokenizer.split": "whitespace",
            "tokenizer.vocab_size": "null",
            "model.order": arguments.order,
            "model.prune": f"[{arguments.prune}]",
            "model.memory": arguments.memory,
        }
        seqlab = [sys.executable, "-m", "seqlab"]
        command = [
            *seqlab,
            "train",
            "lm/ngram",
            *(f"{k}={v}" for k, v in settings.items()),
            "--out",
            str(run),
            "--json",
        ]
        trained = watched(command, run)
        counted = json.loads((run / "timing.jsonl").read_text().splitlines()[-1])
        logged = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
        print(
            f"train: peak {trained['memory']:,.0f} MB resident, {trained['disk']:,.0f} MB on disk, "
            f"{trained['seconds']:.0f} s ({trained['computing']:.0f} s of computing), "
            f"{counted['seconds']:.0f} s of them to count {logged['tokens']:,} tokens"
        )
        print(f"held-out perplexity {logged['valid']['perplexity']:.2f}")
        used = watched([*seqlab, "evaluate", str(run)], run)
        print(f"evaluate: peak {used['memory']:,.0f} MB resident, {used['computing']:.0f} s of computing")
        subprocess.run([*seqlab, "ngram", "show", str(run)], check=True)


if __name__ == "__main__":
    main()
