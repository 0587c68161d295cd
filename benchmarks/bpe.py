"""Is training BPE as fast as with the `tokenizers` library?

From a file to a trained tokenizer, the same text and number of symbols: byte-level (`bpe`) against the library's
byte-level trainer, and `classic-bpe` against the library trained on words between blanks with the suffix </w>. The
library is given the file (`train`) and an iterator over the same texts as ours (`train_from_iterator`), and may use
all threads. Repetitions are interleaved; a ratio is that of the shortest times, below 1 where ours is faster.

    python benchmarks/bpe.py --symbols 30000 --repeat 15
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tokenizers as library
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, WhitespaceSplit
from tokenizers.trainers import BpeTrainer

from seqlab.data.reading.readers import read_texts
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.bpe import ByteBPETokenizer
from seqlab.tokenizers.classic_bpe import ClassicBPETokenizer

WIKITEXT = Path(__file__).resolve().parents[1] / "../shared/data/wikitext2/wiki.train.tokens"
Trainer = tuple[library.Tokenizer, BpeTrainer]


def byte_level(symbols: int) -> Trainer:
    tokenizer = library.Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = ByteLevel.alphabet()
    return tokenizer, BpeTrainer(
        vocab_size=symbols - 1, min_frequency=2, show_progress=False, initial_alphabet=alphabet
    )


def classic(symbols: int) -> Trainer:
    tokenizer = library.Tokenizer(BPE(end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer, BpeTrainer(vocab_size=symbols, min_frequency=2, show_progress=False, end_of_word_suffix="</w>")


def from_file(trainer: Trainer, file: str) -> int:
    trainer[0].train([file], trainer[1])
    return int(trainer[0].get_vocab_size())


def from_iterator(trainer: Trainer, file: str) -> int:
    trainer[0].train_from_iterator(read_texts([file]), trainer[1])
    return int(trainer[0].get_vocab_size())


KINDS: dict[str, tuple[type[Tokenizer], Callable[[int], Trainer]]] = {
    "bpe": (ByteBPETokenizer, byte_level),
    "classic-bpe": (ClassicBPETokenizer, classic),
}


def compare(kind: str, file: str, symbols: int, repeat: int) -> None:
    ours, theirs = KINDS[kind]
    settings = ours.Settings.model_validate({"kind": kind, "vocab_size": symbols})
    ways = {
        "seqlab": lambda: ours.fit(read_texts([file]), settings).vocab_size,
        "library, train": lambda: from_file(theirs(symbols), file),
        "library, train_from_iterator": lambda: from_iterator(theirs(symbols), file),
    }
    best, sizes = dict.fromkeys(ways, float("inf")), dict.fromkeys(ways, 0)
    for _ in range(repeat):
        for name, way in ways.items():
            start = time.perf_counter()
            sizes[name] = way()
            best[name] = min(best[name], time.perf_counter() - start)
    print(f"{kind}, {Path(file).name} ({Path(file).stat().st_size / 1e6:.1f} MB), {repeat} times each")
    for name in ways:
        ratio = f", seqlab / this = {best['seqlab'] / best[name]:.2f}" if name != "seqlab" else ""
        print(f"  {name:30} {best[name]:.3f} s, {sizes[name]:,} symbols{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--symbols", type=int, default=30_000)
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = str(WIKITEXT)
        if not WIKITEXT.exists():
            file = f"{folder}/python-docs.txt"
            Path(file).write_text("".join(read_texts(["python-docs"])), encoding="utf-8")
        for kind in KINDS:
            compare(kind, file, arguments.symbols, arguments.repeat)


if __name__ == "__main__":
    main()
