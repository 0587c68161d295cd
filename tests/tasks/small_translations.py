"""Small trainings of translators, and a task that is learnt in seconds: words from the last to the first."""

from __future__ import annotations

import json

import numpy as np
from click.testing import CliRunner

from seqlab.cli import group
from seqlab.recipe import Recipe

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


def write_pairs(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def recipe(folder, rows, conditions=None, model=None, **training):
    data = {"train": write_pairs(folder / "train.jsonl", rows), "valid": write_pairs(folder / "valid.jsonl", rows[:40])}
    return Recipe.from_dict(
        {
            "name": "test",
            "task": {"kind": "translation", **({"conditions": conditions} if conditions else {})},
            "data": data,
            "tokenizer": {"kind": "word", "split": "whitespace"},
            "model": model or {"kind": "transformer", "width": 32, "depth": 1, "heads": 2},
            "objective": {"kind": "next-token"},
            "training": {"steps": 1, "batch_size": 32, **training},
            "decoding": {"beam": 3},
        }
    )


def reversals(count=2000):
    rng = np.random.default_rng(0)
    drawn = [rng.choice(WORDS, rng.integers(1, 6)).tolist() for _ in range(count)]
    return [{"source": " ".join(words), "target": " ".join(reversed(words))} for words in drawn]


def run_command(*arguments, text=None):
    return CliRunner().invoke(group, [str(one) for one in arguments], input=text)
