"""How much of a training step waits for its batch? The share of the time of some steps, for every shipped recipe.

python benchmarks/waiting.py                    all recipes that have built-in data
python benchmarks/waiting.py --only translation --steps 40
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

import torch

from seqlab.errors import SeqlabError
from seqlab.recipe import Recipe
from seqlab.recipe_tree import shipped
from seqlab.runs.preparation import prepare
from seqlab.training.distributed import ALONE
from seqlab.training.trainer import Silence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="recipes whose names have this in them")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| recipe | ms a step | of which the batch | share |\n| --- | --- | --- | --- |")
    for name in shipped():
        if given.only in name:
            try:
                whole, waiting = measured(Recipe.load(name), given.steps)
            except (SeqlabError, StopIteration) as error:
                print(f"| {name} | {error} | | |")
                continue
            print(f"| {name} | {whole * 1e3:.1f} | {waiting * 1e3:.2f} | {waiting / whole:.1%} |", flush=True)


def measured(recipe: Recipe, steps: int) -> tuple[float, float]:
    """Seconds of a step, and of making its batch."""
    recipe = recipe.changed({"training.steps": 1000, "training.device": "cpu"})
    prepared = prepare(recipe, torch.device("cpu"), Silence())
    if prepared.counts:
        raise SeqlabError("counts")
    with tempfile.TemporaryDirectory() as folder:
        trainer = prepared.trainer(recipe, Path(folder), Silence(), ALONE)
        waited, make = 0.0, trainer.train_split.batch

        def timed(*asked):  # type: ignore[no-untyped-def]
            nonlocal waited
            start = time.perf_counter()
            batch = make(*asked)
            waited += time.perf_counter() - start
            return batch

        trainer.train_split.batch = timed  # type: ignore[method-assign]
        trainer.objective.train()
        batches = trainer.order.walk()
        for _ in range(3):
            trainer.learn(*next(batches))
        waited, start = 0.0, time.perf_counter()
        for _ in range(steps):
            trainer.learn(*next(batches))
        return (time.perf_counter() - start) / steps, waited / steps


if __name__ == "__main__":
    main()
