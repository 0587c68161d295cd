"""Is one checkout of this project as fast as another? Both work in turns on one machine, through runs and recipes.

    python benchmarks/versions.py OLD NEW                      folders of two checkouts, such as two git worktrees
    python benchmarks/versions.py OLD NEW --only decode        jobs whose names have this in them
    python benchmarks/versions.py OLD NEW --pairs 15 --out versions.md

Each checkout has a process of its own, which waits while the other works. They do a job in turns; what counts is the
fastest of each. Jobs are what a person does: `train` (tokens a second of a training, as its log has
them), `generate` of a loaded run, and translations of a fixed length by a loaded run's model. A run is made by OLD
where OLD knows its recipe, and loaded by both, so that both decode with equal weights. The last column is how fast NEW
is in proportion to OLD.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GPT = {"kind": "gpt", "width": 512, "depth": 6, "heads": 8, "context": 256}
LLAMA = {
    **GPT,
    "position": "rotary",
    "norm": "rms",
    "gated": True,
    "key_heads": 2,
    "activation": "swish",
    "bias": False,
}
LSTM = {"kind": "recurrent", "cell": "lstm", "width": 512, "depth": 2}
VOCAB, NEW, TRANSLATED = 8_000, 64, 24
TRANSLATORS = {"transformer": {"width": 512, "depth": 6, "heads": 8}, "gnmt-v3": {"width": 256}, "convolutional": {}}
TRAININGS = {
    "lm/char": {},
    "lm/gpt": {},
    "lm/lstm": {},
    "lm/rnn": {},
    "classification/lstm": {},
    "tagging/lstm-crf": {},
    "translation/transformer": {},
    "translation/gnmt-v3": {},
    "translation/convolutional": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT", help="jobs whose names have this in them")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(given, [Worker(checkout, given.threads, folder) for checkout in (given.old, given.new)])


def compare(given: argparse.Namespace, workers: list[Worker]) -> None:
    rows = [["job", "old", "new", "unit", "new / old"]]
    for job in workers[0].ask("jobs"):
        if given.only in job:
            first = [worker.ask(job) for worker in workers]  # warms up
            if None in first:
                rows.append([job, *("cannot" if rate is None else f"{rate:,.0f}" for rate in first), "tokens/s", ""])
            else:
                rates: tuple[list[float], list[float]] = ([], [])
                for pair in range(given.pairs):
                    for number in (0, 1) if pair % 2 else (1, 0):  # nobody is always the second
                        rates[number].append(workers[number].ask(job))
                old, new = map(max, rates)
                rows.append([job, f"{old:,.0f}", f"{new:,.0f}", "tokens/s", f"{new / old:.3f}"])
            print("  ".join(rows[-1]), flush=True)
    table = "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * 5, *rows[1:]])
    if given.out:
        given.out.write_text(table + "\n", encoding="utf-8")


class Worker:
    """A process with the package of a checkout."""

    def __init__(self, checkout: Path, threads: int, folder: str) -> None:
        path = str((checkout / "src").resolve())
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, __file__, ".", ".", "--work", folder]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.ask("where").startswith(path), "another package than that of the checkout is imported"

    def ask(self, job: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(job, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{job} failed")
        return json.loads(answer)


# ---------------------------------------------------------------------- in the process of a checkout


def work(folder: Path) -> None:
    import warnings

    import seqlab

    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    jobs = Jobs(folder)
    for line in sys.stdin:
        job = line.strip()
        try:
            answer = list(jobs.all) if job == "jobs" else seqlab.__file__ if job == "where" else turn(jobs.all[job])
        except seqlab.SeqlabError:
            answer = None  # a recipe that this checkout does not know
        print(json.dumps(answer), file=answers, flush=True)


def turn(job: Callable[[], float]) -> float:
    """The best rate of a turn of half a second at least, so that short jobs are done many times."""
    rates, end = [job()], time.perf_counter() + 0.5
    while time.perf_counter() < end:
        rates.append(job())
    return max(rates)


class Jobs:
    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, {}  # type: ignore[var-annotated]
        self.all: dict[str, Callable[[], float]] = {}
        for name, model in (("gpt", GPT), ("llama", LLAMA), ("lstm", LSTM)):
            for rows in (1, 16, 64):
                self.all[f"decode {name}, {rows} rows"] = lambda name=name, model=model, rows=rows: self.decode(
                    name, model, rows
                )
            self.all[f"decode {name}, prompts of 190"] = lambda name=name, model=model: self.decode(
                name, model, 16, 190, 2
            )
        for name in TRANSLATORS:
            for beam in (1, 5):
                for rows in (1, 16, 64):
                    self.all[f"translate {name}, {rows} rows, beam {beam}"] = lambda name=name, beam=beam, rows=rows: (
                        self.translate(name, rows, beam)
                    )
        for name, changes in TRAININGS.items():
            self.all[f"train {name}"] = lambda name=name, changes=changes: self.train(name, changes)

    def made(self, name: str, recipe: Any, changes: dict[str, Any] | None = None) -> Any:
        """A run, trained for one step by the first who asks."""
        import seqlab

        if name not in self.runs:
            if not (self.folder / name).exists():
                seqlab.train(recipe, changes or {}, out=self.folder / name)
            self.runs[name] = seqlab.load(self.folder / name)
        return self.runs[name]

    def numbers(self, count: int, lines: int = 1) -> str:
        draw = random.Random(count)
        return "\n".join(" ".join(str(draw.randrange(1, VOCAB - 1)) for _ in range(count)) for _ in range(lines)) + "\n"

    def decode(self, name: str, model: dict[str, Any], rows: int, prompt: int = 16, new: int = NEW) -> float:
        (self.folder / "text.txt").write_text(self.numbers(2_000))
        settings = {
            "task": {"kind": "language-modelling", "window": 256},
            "data": {"train": str(self.folder / "text.txt")},
            "tokenizer": {"kind": "ids", "vocab_size": VOCAB},
            "model": model,
            "objective": {"kind": "next-token"},
            "training": {"steps": 1, "batch_size": 1, "learning_rate": 1e-9},
        }
        from seqlab.recipe import Recipe

        run = self.made(name, Recipe.from_dict({"name": name, **settings}))
        text = " ".join(map(str, range(1, prompt)))
        count = rows * (new if new == NEW else prompt)
        start = time.perf_counter()
        run.generate(text, tokens=new, samples=rows, temperature=1.0)
        return count / (time.perf_counter() - start)

    def translate(self, name: str, rows: int, beam: int) -> float:
        import torch

        from seqlab.decoding.beam import Beam, beam_search

        lines = self.numbers(20, 200).splitlines()
        pairs = self.folder / "pairs.tsv"
        pairs.write_text("".join(f"{line}\t{line}\n" for line in lines))
        changes = {
            **{f"model.{key}": value for key, value in TRANSLATORS[name].items()},
            "data.train": str(pairs),
            "data.columns": {"source": 0, "target": 1},
            "tokenizer": {"kind": "ids", "vocab_size": VOCAB},
            "training.steps": 1,
            "training.batch_size": 8,
        }
        run = self.made(name, f"translation/{name}", changes)
        start = time.perf_counter()
        asked = run.task.prompts(lines[:rows])
        with torch.inference_mode():  # no token ends a translation, so that all are equally long
            beam_search(run.decoder, asked.tokens, Beam(beam), TRANSLATED, frozenset(), asked.source)
        return rows * TRANSLATED / (time.perf_counter() - start)

    def train(self, name: str, changes: dict[str, Any]) -> float:
        import seqlab

        steps = {"training.steps": 60, "training.report_every": 10, "training.evaluate_every": 60, "training.seed": 1}
        out = self.folder / f"{name}-{time.perf_counter_ns()}"
        seqlab.train(name, {**steps, "training.sample_every": None, **changes}, out=out)
        rates = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
        return max(one["tokens_per_second"] for one in rates if "tokens_per_second" in one)


if __name__ == "__main__":
    main()
