"""How fast does a word model train with each output layer, where the vocabulary is large?

The LSTM of `lm/lstm` (256 wide) on the words of WikiText-2, 20 streams of 35 words, through `Trainer.learn`: batches,
forward, backward, clipping and the recipe's AdamW. One thread, no dropout. All output layers take turns, and the
fastest turn of each counts. Words that are not in the vocabulary are `<unk>`.

    python benchmarks/vocabulary.py
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seqlab.recipe import Recipe
from seqlab.runs.preparation import prepare
from seqlab.training.distributed import ALONE
from seqlab.training.trainer import Silence

WIKITEXT = Path(__file__).resolve().parents[1] / "../shared/data/wikitext2"
STREAMS, WINDOW = 20, 35
OUTPUTS: dict[str, dict[str, Any]] = {
    "softmax, tied": {"kind": "softmax", "tied": True},
    "adaptive, [1000, 4000]": {"kind": "adaptive", "cutoffs": [1000, 4000]},
    "sampled, 512, tied": {"kind": "sampled", "samples": 512, "tied": True},
}


def stepper(vocabulary: int, output: dict[str, Any], folder: Path) -> Callable[[], object]:
    """One step of the trainer."""
    files = {part: str(WIKITEXT / f"wiki.{part}.tokens") for part in ("train", "valid")}
    recipe = Recipe.load("lm/lstm").changed(
        {
            "data": {**files, "documents": "line"},
            "tokenizer": {"kind": "word", "vocab_size": vocabulary, "split": "whitespace"},
            "task.window": WINDOW,
            "model.output": output,
            "training.batch_size": STREAMS,
            "training.steps": 1_000_000,
        }
    )
    prepared = prepare(recipe, torch.device("cpu"), Silence())
    assert prepared.task.sizes["vocab_size"] == vocabulary
    trainer = prepared.trainer(recipe, folder, Silence(), ALONE)
    trainer.objective.train()
    batches = trainer.order.walk()
    return lambda: trainer.learn(*next(batches))


def seconds(step: Callable[[], object], steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[10_000, 33_000])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="in one turn")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| vocabulary | {' | '.join(OUTPUTS)} |")
    print("|---" * (1 + len(OUTPUTS)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQLAB_CACHE"] = f"{folder}/cache"
        for vocabulary in arguments.vocabularies:
            steppers = [stepper(vocabulary, output, Path(folder)) for output in OUTPUTS.values()]
            for step in steppers:
                seconds(step, 2)  # warms up
            turns = [[seconds(step, arguments.steps) for step in steppers] for _ in range(arguments.repeat)]
            speeds = [f"{STREAMS * WINDOW / min(times):,.0f}" for times in zip(*turns, strict=True)]
            print(f"| {vocabulary:,} | {' | '.join(speeds)} |", flush=True)


if __name__ == "__main__":
    main()
