"""What do tokenizers of 8,000 symbols make of WikiText-2, how long do they learn, and how fast do they encode?

Learnt from the training part with `Tokenizer.fit`, the shorter of two times; tokens a word, words being what stands
between blanks, on the validation part; encoding with `encode_batch`, the best of five passes over the first 6 MB of
lines of the training part. Then WordPiece with thresholds for its pairs (`min_frequency`), words cut at punctuation
too. Libraries may use all cores for encoding.

    python benchmarks/tokenizer_table.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from seqlab import registry
from seqlab.data.reading.readers import read_texts
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.measure import measure
from seqlab.tokenizers.wordpiece import WordPieceTokenizer

WIKITEXT = Path(__file__).resolve().parents[1] / "../shared/data/wikitext2"
TRAIN, VALID = str(WIKITEXT / "wiki.train.tokens"), str(WIKITEXT / "wiki.valid.tokens")
SYMBOLS = 8000
KINDS: dict[str, dict[str, Any]] = {
    "`bpe`": {"kind": "bpe"},
    "`classic-bpe`": {"kind": "classic-bpe"},
    "`wordpiece`": {"kind": "wordpiece"},
    "`unigram`": {"kind": "unigram"},
    "`sentencepiece`, unigram": {"kind": "sentencepiece", "algorithm": "unigram"},
    "`sentencepiece`, bpe": {"kind": "sentencepiece", "algorithm": "bpe"},
}
THRESHOLDS = [2, 10, 50, 100, 120, 150, 200, 500, None]


def learnt(**settings: Any) -> Tokenizer:
    cls = registry.find("tokenizer", settings["kind"])
    found: Tokenizer = cls.fit(read_texts([TRAIN]), cls.Settings(vocab_size=SYMBOLS, **settings))
    return found


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def first_lines(megabytes: float) -> list[str]:
    lines = Path(TRAIN).read_text(encoding="utf-8").splitlines(keepends=True)
    sizes = accumulate(len(line.encode("utf-8")) for line in lines)
    return [line for line, size in zip(lines, sizes, strict=True) if size <= megabytes * 1e6]


def compare_kinds() -> None:
    lines = first_lines(6)
    megabytes = sum(len(line.encode("utf-8")) for line in lines) / 1e6
    fitting: dict[str, list[float]] = {name: [] for name in KINDS}
    for _ in range(2):
        for name, settings in KINDS.items():
            fitting[name].append(seconds(lambda settings=settings: learnt(**settings)))  # type: ignore[misc]
    print("| kind | learnt in | tokens a word | encodes |")
    print("|---|---|---|---|")
    for name, settings in KINDS.items():
        tokenizer = learnt(**settings)
        a_word = measure(tokenizer, read_texts([VALID])).tokens_per_word
        encoding = min(seconds(lambda tokenizer=tokenizer: tokenizer.encode_batch(lines)) for _ in range(5))  # type: ignore[misc]
        print(f"| {name} | {min(fitting[name]):.1f} s | {a_word:.3f} | {megabytes / encoding:.1f} MB/s |", flush=True)


def compare_thresholds() -> None:
    text = "".join(read_texts([VALID]))
    found = []
    for threshold in THRESHOLDS:
        tokenizer = learnt(kind="wordpiece", min_frequency=threshold)
        assert isinstance(tokenizer, WordPieceTokenizer)
        words = len(tokenizer.cleaning.words(text))
        found.append((len(tokenizer.encode_batch([text])[0]) / words, tokenizer.vocab_size))
    names = [str(threshold) if threshold else "none: it falls" for threshold in THRESHOLDS]
    print(f"\n| `min_frequency` | {' | '.join(names)} |")
    print("|---" * (1 + len(names)) + "|")
    print(f"| tokens a word, cut at punctuation | {' | '.join(f'{a_word:.3f}' for a_word, _ in found)} |")
    print(f"| pieces made | {' | '.join(str(size) for _, size in found)} |")


if __name__ == "__main__":
    compare_kinds()
    compare_thresholds()
