"""Four forecasters of noisy waves: a linear map, one recurrent unit, a deep recurrent net, and one with a dense head.

The example is that of lectures and textbooks on time series: 7,000 series of 50 steps to learn from, the next value to
forecast, Adam, 20 epochs; the mean squared error of the last weights on 1,000 other series. Printed figures are of one
training each, on other random numbers. CPU, one thread.

    python benchmarks/forecasters.py --seeds 3
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import seqlab

PRINTED = {"dense": 0.00399, "rnn": 0.01103, "deep-rnn": 0.00320, "deep-rnn-dense": 0.00276}
BATCHES = 219
"""Of 32 series, in an epoch."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--epochs", type=int, default=20)
    asked = options.parse_args()
    steps = asked.epochs * BATCHES
    print(f"{'forecaster':16} {'weights':>8} {'printed':>9} {'test MSE':>9} {'spread':>9} {'naive':>9} {'seconds':>8}")
    for name, printed in PRINTED.items():
        errors, start = [], time.perf_counter()
        for seed in range(asked.seeds):
            with tempfile.TemporaryDirectory() as folder:
                # one evaluation, at the end: the weights that are measured are the last ones, not the best
                changes = {"training.seed": seed, "training.steps": steps, "training.evaluate_every": steps}
                run = seqlab.train(f"forecasting/{name}", changes, out=Path(folder) / "run")
                found = run.evaluate("waves-test")
            errors.append(found["mse"])
        spread = statistics.stdev(errors) if len(errors) > 1 else 0.0
        seconds = (time.perf_counter() - start) / asked.seeds
        figures = [printed, statistics.mean(errors), spread, found["naive_mse"]]
        shown = " ".join(f"{figure:9.5f}" for figure in figures)
        print(f"{name:16} {run.parameters:8,} {shown} {seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
