"""Word language models beside the 5-gram, on the Penn Treebank and WikiText-2: one training, or the table of all.

python benchmarks/words.py train ptb lstm --seed 1 --epochs 8 --out runs/words
python benchmarks/words.py table --out runs/words
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch

import seqlab
from seqlab.recipe import Recipe

HERE = Path(__file__).parent
SHARED = HERE.parent / "../shared/data"
FILES = {
    "ptb": {"train": "ptb/ptb.train.txt", "valid": "ptb/ptb.valid.txt", "test": "ptb/ptb.test.txt"},
    "wikitext2": {"train": "wikitext2/wiki.train.tokens", "valid": "wikitext2/wiki.valid.tokens"},
}
MODELS = ["mlp", "rnn", "lstm", "gru", "conv", "gpt"]


def train(data: str, model: str, seed: int, epochs: float, out: Path, overrides: list[str]) -> None:
    """Train one model on one thread, for a number of epochs and not of seconds, so that it can be repeated."""
    torch.set_num_threads(1)
    files = {part: str((SHARED / name).resolve()) for part, name in FILES[data].items()}
    folder = out / f"{data}-{model}-{seed}"
    recipe = Recipe.load("lm/ngram" if model == "ngram" else HERE / "words" / f"{model}.yaml")
    words = {"kind": "word", "vocab_size": None, "split": "whitespace"}
    changes = {
        "data": {"train": files["train"], "valid": files["valid"], "documents": "line"},
        "tokenizer": words,
        "training.seed": seed,
        "decoding.tokens": 20,
    }
    recipe = recipe.changed(changes).changed(overrides)
    if model != "ngram":
        tokens = {"ptb": 929_589, "wikitext2": 2_088_628}[data]
        an_epoch = tokens / (recipe.training.batch_size * recipe.task.window)
        recipe = recipe.changed(
            {"training.steps": round(epochs * an_epoch), "training.evaluate_every": round(an_epoch)}
        )
    run = seqlab.train(recipe, out=folder, resume=True)
    entries = map(json.loads, (folder / "timing.jsonl").read_text().splitlines())
    speeds = [entry["tokens_per_second"] for entry in entries if "tokens_per_second" in entry]
    result = {
        "data": data,
        "model": model,
        "seed": seed,
        "epochs": epochs,
        "weights": sum(p.numel() for p in run.objective.parameters()),
        "table": sum(b.numel() for b in run.objective.buffers()),
        "tokens_per_second": statistics.median(speeds),
        "valid": run.evaluate()["perplexity"],
    }
    if "test" in files:
        result["test"] = run.evaluate(files["test"])["perplexity"]
    (folder / "result.json").write_text(json.dumps(result) + "\n")
    print(json.dumps(result))


def table(out: Path) -> None:
    """All results as one table: means over seeds, and how far apart the seeds are."""
    results = [json.loads(path.read_text()) for path in sorted(out.glob("*/result.json"))]
    print("| data | model | weights | epochs | seeds | validation perplexity | test perplexity |")
    print("|---|---|---|---|---|---|---|")
    for data in FILES:
        for model in ["ngram", *MODELS]:
            own = [r for r in results if (r["data"], r["model"]) == (data, model)]
            if own:
                size = f"{own[0]['weights'] or own[0]['table']:,}"
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
    one.add_argument("overrides", nargs="*")
    for command in (one, commands.add_parser("table")):
        command.add_argument("--out", type=Path, default=Path("runs/words"))
    args = parser.parse_args()
    if args.command == "table":
        table(args.out)
    else:
        train(args.data, args.model, args.seed, args.epochs, args.out, args.overrides)


if __name__ == "__main__":
    main()
