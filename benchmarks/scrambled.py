"""How much do models of words, of parts of words and of characters mind "Aoccdrnig to a rscheearch"?

Trains the same small GPT with each tokenizer, the same number of steps and of tokens in a step, on the built-in
documentation of Python, and measures it on held-out text as it is and with a share of its words scrambled. (An LSTM
that carries its state through the whole text is no good for this: noise can leave it in a bad state for long.)

So that bits per character mean the same for all, the text is laid out with one blank between words and signs and one
document a line, which every tokenizer can give back exactly; and what is unknown to a tokenizer is not had for the
price of one `<unk>`: its letters are spelled by a 6-gram of characters that learnt from the words seen once in
training. Both together are a probability of the whole text.

    python benchmarks/scrambled.py --steps 600 --figure docs/scrambled.png
"""

from __future__ import annotations

import argparse
import math
import os
import re
import tempfile
from collections import Counter
from pathlib import Path

import torch

import seqlab
from seqlab import registry
from seqlab.data.builtin.sets import documents
from seqlab.data.reading.readers import read
from seqlab.inspection.figures import curves
from seqlab.runs.run import Run
from seqlab.tokenizers.measure import measure
from seqlab.tokenizers.word import SPLITS

SHARES = [0.0, 0.1, 0.5, 1.0]
SYMBOLS = 2000
KINDS = ["word", "wordpiece", "unigram", "sentencepiece", "classic-bpe", "bpe", "character"]


def write_texts(folder: Path) -> Counter[str]:
    """train.txt and valid.txt; how often each word occurs in training."""
    counts: Counter[str] = Counter()
    for split in ("train", "valid"):
        lines = [line for document in documents("python-docs", split) for line in document.fields["text"].splitlines()]
        laid_out = [" ".join(SPLITS["punctuation"].findall(line)) for line in lines if re.search(r"\w", line)]
        (folder / f"{split}.txt").write_text("\n".join(laid_out) + "\n", encoding="utf-8")
        if split == "train":
            counts.update(" ".join(laid_out).split())
    return counts


def speller(folder: Path, counts: Counter[str]) -> Run:
    """A 6-gram of the characters of words seen once: what it costs to spell a word that was never seen."""
    rare = "\n".join(sorted(word for word, count in counts.items() if count == 1))
    (folder / "rare.txt").write_text(rare + "\n", encoding="utf-8")
    data = {"data.train": f"{folder}/rare.txt", "data.documents": "line"}
    return seqlab.train("lm/ngram", {**data, "tokenizer.kind": "character", "model.order": 6}, out=f"{folder}/speller")


def trained(kind: str, folder: Path, counts: Counter[str], steps: int) -> Run:
    keys = {
        "data.train": f"{folder}/train.txt",
        "data.valid": f"{folder}/valid.txt",
        "data.documents": "line",
        "tokenizer": {"kind": kind},
        "training.steps": steps,
    }
    if kind == "word":  # words seen once stand for those never seen
        kept = sum(count > 1 for count in counts.values()) + 2
        keys["tokenizer"] = {"kind": kind, "split": "whitespace", "vocab_size": kept}
    elif kind != "character":
        keys["tokenizer"] = {"kind": kind, "vocab_size": SYMBOLS}
    return seqlab.train("lm/gpt", keys, out=f"{folder}/{kind}")


def measured(run: Run, spell: Run, share: float) -> dict[str, float]:
    """Bits per character with the spelling of unknowns, and what the tokenizer makes of the text."""
    data = run.recipe.data.model_copy(update={"scramble": share})
    texts = [record.fields["text"] for record in read(data, "valid")]
    unknown: Counter[str] = Counter()
    for text in texts:
        encoding = run.tokenizer.encode(text)
        for index, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            if index == run.tokenizer.unknown_id:
                unknown[text[start:stop]] += 1
    scores = spell.score(list(unknown)) if unknown else []
    nats = sum(-score.log_probability * times for score, times in zip(scores, unknown.values(), strict=True))
    spelling = nats / math.log(2) / sum(len(text) + 1 for text in texts)
    found = measure(run.tokenizer, texts)
    own = run.evaluate(scramble=share)["bits_per_character"]
    return {
        "bits": own + spelling,
        "spelling": spelling,
        "tokens_per_word": found.tokens_per_word,
        "unknown": sum(unknown.values()) / found.words,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SEQLAB_CACHE"] = f"{folder}/cache"
        counts = write_texts(folder)
        spell = speller(folder, counts)
        print("| tokenizer | symbols | scrambled | bits/character | of it spelling | tokens/word | unknown words |")
        print("|---|---|---|---|---|---|---|")
        for kind in arguments.kind or [kind for kind in KINDS if kind in registry.names("tokenizer")]:
            run = trained(kind, folder, counts, arguments.steps)
            points = []
            for share in SHARES:
                row = measured(run, spell, share)
                points.append((share, row["bits"]))
                cells = [kind, f"{run.tokenizer.vocab_size:,}", f"{share:.0%}", f"{row['bits']:.3f}"]
                cells += [f"{row['spelling']:.3f}", f"{row['tokens_per_word']:.2f}", f"{row['unknown']:.1%}"]
                print("|", " | ".join(cells), "|", flush=True)
            lines[kind] = [points]
    if arguments.figure:
        title = "Scrambled letters: the same GPT with each tokenizer"
        curves(lines, arguments.figure, title, "share of words scrambled", "bits per character")


if __name__ == "__main__":
    main()
