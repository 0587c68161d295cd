"""Make golden runs with the code of today: `python tests/golden/make.py tests/golden/format-N`.

Each family of models has a small finished run, and where it is trained by steps a second one that was stopped half way.
`expected.json` holds what the finished runs answer. They are made once for each format of run folders and never again:
later versions must load the finished ones to the same answers, and must be able to finish the others.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import seqlab
from seqlab.training.trainer import Interrupted, Silence

STEPS, STOPPED = 60, 32
LM = {"task": {"kind": "language-modelling", "window": 16}, "data": {"train": "data/text.txt", "hold_out": 0.1}}
TEXT = {**LM, "tokenizer": "character", "objective": "next-token", "decoding": {"tokens": 8}}
STREAMS = {**TEXT, "task": {"kind": "language-modelling", "reading": "streams", "window": 16, "lanes": 2}}
CLASSES = {"task": "classification", "data": {"train": "data/labelled.csv", "hold_out": 0.2}, "objective": "classes"}
TAGS = {"task": "tagging", "data": {"train": "data/tagged.conll", "hold_out": 0.2}}
SERIES = {"task": {"kind": "forecasting", "window": 12, "horizon": 2}, "data": {"train": "data/series.csv"}}
PAIRS = {"task": "translation", "data": {"train": "data/pairs.tsv", "hold_out": 0.2}, "objective": "next-token"}
WORDS = {"kind": "word", "split": "whitespace"}
DECODER = {"kind": "transformer", "width": 8, "depth": 1, "heads": 2}
ENCODER = {"kind": "recurrent-encoder", "cell": "lstm", "width": 6}

FAMILIES: dict[str, dict[str, Any]] = {
    "ngram": {**TEXT, "model": {"kind": "ngram", "order": 3}},
    "mlp": {**TEXT, "model": {"kind": "mlp", "window": 3, "width": 6, "hidden_width": 8}},
    "elman": {**STREAMS, "model": {"kind": "recurrent", "cell": "elman", "width": 8}},
    "lstm": {**STREAMS, "model": {"kind": "recurrent", "cell": "lstm", "width": 8, "depth": 2, "dropout": 0.1}},
    "gru": {**STREAMS, "model": {"kind": "recurrent", "cell": "gru", "width": 8}},
    "convolution": {**TEXT, "model": {"kind": "convolutional", "width": 8, "depth": 2}},
    "gpt": {
        **TEXT,
        "tokenizer": {"kind": "classic-bpe", "vocab_size": 80},
        "model": {"kind": "gpt", "width": 8, "depth": 2, "heads": 2, "context": 16, "dropout": 0.1},
    },
    "classes": {**CLASSES, "tokenizer": {"kind": "word"}, "model": ENCODER},
    "classes-transformer": {
        **CLASSES,
        "tokenizer": {"kind": "character"},
        "model": {"kind": "transformer-encoder", "width": 8, "depth": 1, "heads": 2},
    },
    "tree-classes": {
        "task": "tree-classification",
        "data": {"train": "data/trees.txt", "hold_out": 0.2},
        "tokenizer": WORDS,
        "model": {"kind": "tree-encoder", "cell": "tree-lstm", "width": 6},
        "objective": "node-classes",
    },
    "tags": {**TAGS, "tokenizer": WORDS, "model": ENCODER, "objective": "tags"},
    "tags-crf": {
        **TAGS,
        "tokenizer": WORDS,
        "model": {**ENCODER, "characters": {"kind": "recurrent", "width": 4, "embedding": 4}},
        "objective": {"kind": "tags", "crf": True},
    },
    "forecasts-dense": {**SERIES, "model": {"kind": "series-dense"}, "objective": "forecast"},
    "forecasts-linear": {**SERIES, "model": {"kind": "series-linear"}, "objective": "forecast"},
    "forecasts-recurrent": {
        **SERIES,
        "model": {"kind": "series-recurrent", "cell": "lstm", "width": 6, "from_last": True},
        "objective": "forecast",
    },
    "forecasts-transformer": {
        **SERIES,
        "model": {"kind": "series-transformer", "width": 8, "depth": 1, "heads": 2},
        "objective": "forecast",
    },
    "translation-plain": {
        **PAIRS,
        "tokenizer": "character",
        "model": {"kind": "recurrent-translator", "cell": "gru", "width": 8},
    },
    "translation-attention": {
        **PAIRS,
        "tokenizer": WORDS,
        "model": {
            "kind": "recurrent-translator",
            "cell": "lstm",
            "width": 8,
            "both_ways": "first",
            "attention": "additive",
        },
        "decoding": {"beam": 3, "tokens": 12},
    },
    "translation-convolution": {
        **PAIRS,
        "tokenizer": WORDS,
        "model": {"kind": "convolutional-translator", "width": 8, "depth": 2},
    },
    "translation-transformer": {
        **PAIRS,
        "tokenizer": {"kind": "wordpiece", "vocab_size": 80},
        "model": {"kind": "transformer", "width": 8, "hidden_width": 12, "depth": 1, "heads": 2},
        "decoding": {"beam": 2, "tokens": 12},
    },
    "translation-joined": {
        **PAIRS,
        "tokenizer": {"kind": "character"},
        "model": {"kind": "translator", "encoder": {"kind": "deep-encoder", "width": 8}, "decoder": DECODER},
        "decoding": {"tokens": 12},
    },
    "translation-coverage": {
        **PAIRS,
        "tokenizer": WORDS,
        "model": {
            "kind": "recurrent-translator",
            "cell": "gru",
            "width": 8,
            "attention": {"kind": "dot", "coverage": True, "gated": True},
        },
        "decoding": {"tokens": 12},
    },
    "classes-convolution": {
        **CLASSES,
        "tokenizer": {"kind": "character"},
        "model": {"kind": "convolutional-encoder", "width": 8, "depth": 1},
    },
    "classes-deep": {**CLASSES, "tokenizer": {"kind": "character"}, "model": {"kind": "deep-encoder", "width": 8}},
}
COUNTED = {"ngram", "mixture"}
"""Made in one step: there is no half of them."""
MIXED = ("gru", "elman", "ngram")

NAMES = ["the cat", "a small dog", "one old man", "the red bird", "my sister", "the tall house", "a green boat"]
DOES = ["sees", "likes", "hears", "follows", "never finds", "looks at", "waits for"]
WHEN = ["in the morning", "at night", "every day", "before lunch", "on the hill", "by the river", ""]
MEANS = {
    "the cat": "le chat",
    "a small dog": "un petit chien",
    "one old man": "un vieil homme",
    "the red bird": "l oiseau rouge",
    "my sister": "ma soeur",
    "the tall house": "la grande maison",
    "a green boat": "un bateau vert",
    "sees": "voit",
    "likes": "aime",
    "hears": "entend",
    "follows": "suit",
    "never finds": "ne trouve jamais",
    "looks at": "regarde",
    "waits for": "attend",
}


def write_data(folder: Path) -> None:
    """Small files of every format that the families read."""
    folder.mkdir(parents=True)
    chance = random.Random(5)
    told = [(chance.choice(NAMES), chance.choice(DOES), chance.choice(NAMES), chance.choice(WHEN)) for _ in range(120)]
    lines = [" ".join(filter(None, one)) + "." for one in told]
    text = "".join(line + ("\n\n" if number % 5 == 4 else "\n") for number, line in enumerate(lines))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    labels = ["night" if "night" in one[3] else "day" for one in told]
    rows = [f"{line},{label}" for line, label in zip(lines[:60], labels, strict=False)]
    (folder / "labelled.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    pairs = [f"{a} {do} {b}\t{MEANS[a]} {MEANS[do]} {MEANS[b]}" for a, do, b, _ in told[:60]]
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n", encoding="utf-8")
    sentences = []
    for a, do, b, _ in told[:40]:
        tags = [("B-WHO" if n == 0 else "I-WHO", word) for n, word in enumerate(a.split())]
        tags += [("O", word) for word in do.split()]
        tags += [("B-WHAT" if n == 0 else "I-WHAT", word) for n, word in enumerate(b.split())]
        sentences.append("".join(f"{word}\t{tag}\n" for tag, word in tags))
    (folder / "tagged.conll").write_text("\n".join(sentences), encoding="utf-8")
    trees = [
        f"({chance.randrange(2)} (1 {chance.choice('abcd')}) (0 (1 x) (0 {chance.choice('efg')})))" for _ in range(40)
    ]
    (folder / "trees.txt").write_text("\n".join(trees) + "\n", encoding="utf-8")
    levels, level = [], 0.0
    for step in range(120):
        level += chance.gauss(0, 0.3)
        levels.append(f"{level + (step % 12) / 3:.4f},{10 * level + chance.gauss(0, 1):.4f}")
    (folder / "series.csv").write_text("\n".join(["left,right", *levels]) + "\n", encoding="utf-8")


class StopAt(Silence):
    """Asks a training to stop, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def stepped(self, step: int, steps: int, figures: dict[str, float]) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def recipe_of(name: str) -> dict[str, Any]:
    training = {"steps": STEPS, "batch_size": 4, "learning_rate": 0.02, "device": "cpu", "seed": 3}
    grid = {"report_every": 10, "evaluate_every": 30, "sample_every": 60, "checkpoint_every": 100}
    return {"name": name, **FAMILIES[name], "training": {**training, **grid}}


def answers_of(run: seqlab.Run, folder: Path) -> dict[str, Any]:
    """What a run says, in plain data: figures, and answers of its task."""
    figures = {name: value for name, value in run.evaluate().items() if name != "signature"}
    kind = run.recipe.task.kind
    if kind == "language-modelling":
        texts = ["the cat sees my sister.", "a small dog"]
        scores = [one.log_probability for one in run.score(texts)]
        return {"figures": figures, "scores": scores, "greedy": run.generate("the ", tokens=12, temperature=0.0)}
    asked = {
        "classification": "labelled.csv",
        "tree-classification": "trees.txt",
        "tagging": "tagged.conll",
        "forecasting": "series.csv",
        "translation": "pairs.tsv",
    }
    answers = list(run.predict(str(folder / "data" / asked[kind])))[:6]
    return {"figures": figures, "answers": answers}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    write_data(folder / "data")
    os.chdir(folder)
    for name in FAMILIES:
        seqlab.train(seqlab.Recipe.from_dict(recipe_of(name)), out=f"finished/{name}")
        if name not in COUNTED:
            try:
                seqlab.train(seqlab.Recipe.from_dict(recipe_of(name)), out=f"half/{name}", watcher=StopAt(STOPPED))
            except Interrupted:
                continue
            raise SystemExit(f"{name} did not stop")
    seqlab.mix([f"finished/{name}" for name in MIXED], out="finished/mixture")
    expected = {path.name: answers_of(seqlab.load(path), Path(".")) for path in sorted(Path("finished").iterdir())}
    Path("expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if target.exists():
        raise SystemExit(f"{target} is there already: golden runs are made once")
    try:
        main(target.absolute())
    except BaseException:
        shutil.rmtree(target.absolute(), ignore_errors=True)
        raise
