"""A small recipe of every task that answers, and lines to ask it about: empty ones and unknown words among them."""

from __future__ import annotations

import json
from pathlib import Path

from seqlab.recipe import Recipe

SMALL = {"steps": 2, "batch_size": 4}
WORDS = {"kind": "word", "split": "whitespace"}
ENCODER = {"kind": "recurrent-encoder", "width": 6}
TRANSLATOR = {"kind": "recurrent-translator", "width": 6}


def rows(path: Path, *examples: dict[str, str]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in examples * 12), encoding="utf-8")
    return str(path)


def classification(folder, **task):
    both = [{"text": "a red plum", "label": "fruit"}, {"text": "the saw", "label": "tool"}]
    return {
        "task": {"kind": "classification", **task},
        "data": {"train": rows(folder / "train.jsonl", *both), "valid": rows(folder / "valid.jsonl", *both)},
        "tokenizer": WORDS,
        "model": ENCODER,
        "objective": "classes",
    }


def tagging(folder, **objective):
    text = "a B-PER\nred I-PER\nplum O\n\nthe O\nsaw B-LOC\n\n" * 12
    for name in ("train.conll", "valid.conll"):
        (folder / name).write_text(text, encoding="utf-8")
    return {
        "task": {"kind": "tagging"},
        "data": {"train": str(folder / "train.conll"), "valid": str(folder / "valid.conll")},
        "tokenizer": WORDS,
        "model": ENCODER,
        "objective": {"kind": "tags", **objective},
    }


def trees(folder):
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text("(3 (2 the) (4 good))\n(1 bad)\n" * 12, encoding="utf-8")
    return {
        "task": {"kind": "tree-classification"},
        "data": {"train": str(folder / "train.txt"), "valid": str(folder / "valid.txt")},
        "tokenizer": WORDS,
        "model": {"kind": "tree-encoder", "width": 6},
        "objective": "node-classes",
    }


def translation(folder, conditions=None):
    both = [
        {"tone": "loud", "source": "a red plum", "target": "plum red"},
        {"tone": "soft", "source": "the saw", "target": "saw"},
    ]
    return {
        "task": {"kind": "translation", **({"conditions": conditions} if conditions else {})},
        "data": {"train": rows(folder / "train.jsonl", *both), "valid": rows(folder / "valid.jsonl", *both)},
        "tokenizer": WORDS,
        "model": TRANSLATOR,
        "objective": "next-token",
    }


def forecasting(folder):
    (folder / "train.txt").write_text("".join(f"{n % 7}\n" for n in range(200)), encoding="utf-8")
    return {
        "task": {"kind": "forecasting", "window": 3},
        "data": {"train": str(folder / "train.txt")},
        "model": "series-dense",
        "objective": "forecast",
    }


PLAIN = ["  a   red plum ", "", "zebra the\tsaw", "   ", "saw", ""]
TREES = ["(? (? the) (? good))", "", "(? zebra)", " ", "(? bad)", ""]
TASKS = {
    "classes": (classification, PLAIN),
    "several classes": (lambda folder: classification(folder, labels="several"), PLAIN),
    "tags": (tagging, PLAIN),
    "tags of a CRF": (lambda folder: tagging(folder, crf=True, rules=True), PLAIN),
    "trees": (trees, TREES),
    "translation": (translation, PLAIN),
    "translation under conditions": (
        lambda folder: translation(folder, {"tone": "label", "source": "text"}),
        ["loud\ta  red", "soft\t", "loud\tzebra saw", "soft\t ", "soft\tplum", "soft\t"],
    ),
    "forecasts": (forecasting, ["1 2 3 4", "", "5, 6", "  ", "0 1 2 3 4 5", ""]),
}
UNKNOWN = [0, 0, 1, 0, 0, 0]


def recipe(name: str, folder: Path) -> Recipe:
    return Recipe.from_dict({"name": "test", **TASKS[name][0](folder), "training": SMALL})
