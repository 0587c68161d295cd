"""Word language models beside the 5-gram, on the Penn Treebank and WikiText-2: one training, or the table of all.

python benchmarks/words.py train ptb lstm --seed 1 --epochs 8 --out runs/words
python benchmarks/words.py table --out runs/words
python benchmarks/words.py speed ptb
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

import seqlab
from seqlab.recipe import Recipe
from seqlab.runs.preparation import prepare
from seqlab.training.distributed import ALONE
from seqlab.training.trainer import Silence

HERE = Path(__file__).parent
SHARED = HERE.parent / "../shared/data"
FILES = {
    "ptb": {"train": "ptb/ptb.train.txt", "valid": "ptb/ptb.valid.txt", "test": "ptb/ptb.test.txt"},
    "wikitext2": {"train": "wikitext2/wiki.train.tokens", "valid": "wikitext2/wiki.valid.tokens"},
}
TOKENS = {"ptb": 929_589, "wikitext2": 2_088_628}
MODELS = ["mlp", "rnn", "lstm", "gru", "conv", "gpt"]


def recipe_of(data: str, model: str, seed: int, epochs: float, overrides: list[str]) -> Recipe:
    """A number of epochs and not of seconds, so that it can be repeated."""
    files = {part: str((SHARED / name).resolve()) for part, name in FILES[data].items()}
    recipe = Recipe.load("lm/ngram" if model == "ngram" else HERE / "words" / f"{model}.yaml")
    changes = {
        "data": {"train": files["train"], "valid": files["valid"], "documents": "line"},
        "tokenizer": {"kind": "word", "vocab_size": None, "split": "whitespace"},
        "training.seed": seed,
        "decoding.tokens": 20,
    }
    recipe = recipe.changed(changes).changed(overrides)
    if model == "ngram":
        return recipe
    an_epoch = TOKENS[data] / (recipe.training.batch_size * recipe.task.window)
    return recipe.changed({"training.steps": round(epochs * an_epoch), "training.evaluate_every": round(an_epoch)})


def train(data: str, model: str, seed: int, epochs: float, out: Path, overrides: list[str]) -> None:
    """Train one model on one thread."""
    torch.set_num_threads(1)
    folder = out / f"{data}-{model}-{seed}"
    run = seqlab.train(recipe_of(data, model, seed, epochs, overrides), out=folder, resume=True)
    result = {"data": data, "model": model, "seed": seed, "epochs": epochs, "weights": run.parameters}
    result["valid"] = run.evaluate()["perplexity"]
    if "test" in FILES[data]:
        result["test"] = run.evaluate(str((SHARED / FILES[data]["test"]).resolve()))["perplexity"]
    (folder / "result.json").write_text(json.dumps(result) + "\n")
    print(json.dumps(result))


def speed(data: str, repeat: int, overrides: list[str]) -> None:
    """Training tokens/s of each neural model on one thread: all take turns of a few steps, the fastest turn counts."""
    torch.set_num_threads(1)
    print(f"| model, on {data} | training tokens/s |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        steppers = {}
        for model in MODELS:
            recipe = recipe_of(data, model, 0, 100, overrides)
            trainer = prepare(recipe, torch.device("cpu"), Silence()).trainer(recipe, Path(folder), Silence(), ALONE)
            trainer.objective.train()
            steppers[model] = (trainer, trainer.order.walk(), recipe.training.batch_size * recipe.task.window)
        best = dict.fromkeys(MODELS, 0.0)
        for _ in range(repeat):
            for model, (trainer, batches, tokens) in steppers.items():
                start = time.perf_counter()
                for _ in range(5):
                    trainer.learn(*next(batches))
                best[model] = max(best[model], 5 * tokens / (time.perf_counter() - start))
    for model, value in best.items():
        print(f"| {model} | {value:,.0f} |")


def table(out: Path) -> None:
    """All results as one table: means over seeds, and how far apart the seeds are."""
    results = [json.loads(path.read_text()) for path in sorted(out.glob("*/result.json"))]
    print("| data | model | weights | epochs | seeds | validation perplexity | test perplexity |")
    print("|---|---|---|---|---|---|---|")
    for data in FILES:
        for model in ["ngram", *MODELS]:
            own = [r for r in results if (r["data"], r["model"]) == (data, model)]
            if own:
                size = f"{own[0]['weights'] or own[0].get('table', 0):,}"
                figures = [_spread([r[part] for r in own if part in r]) for part in ("valid", "test")]
                print(f"| {data} | {model} | {size} | {own[0]['epochs']:g} | {len(own)} | {' | '.join(figures)} |")


def _spread(values: list[float]) -> str:
    if not values:
        return ""
    mean = statistics.mean(values)
    return f"{mean:.1f} ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else f"{mean:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("data", choices=FILES)
    one.add_argument("model", choices=["ngram", *MODELS])
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--epochs", type=float, default=8)
    one.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    fast = commands.add_parser("speed")
    fast.add_argument("data", choices=FILES)
    fast.add_argument("--repeat", type=int, default=10)
    fast.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    for command in (one, commands.add_parser("table")):
        command.add_argument("--out", type=Path, default=Path("runs/words"))
    args = parser.parse_args()
    if args.command == "table":
        table(args.out)
    elif args.command == "speed":
        speed(args.data, args.repeat, args.overrides)
    else:
        train(args.data, args.model, args.seed, args.epochs, args.out, args.overrides)


if __name__ == "__main__":
    main()
