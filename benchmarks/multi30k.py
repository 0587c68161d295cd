"""The line of translators on Multi30k (29,000 pairs): one training on one thread, or the table of all, with tests.

python benchmarks/multi30k.py train gnmt-v2 --out runs/multi30k
python benchmarks/multi30k.py train transformer --reverse
python benchmarks/multi30k.py table          # BLEU of the test part of 2016; each step beside the one before it
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import seqlab
from seqlab.inspection.figures import curves
from seqlab.metrics.bleu import BLEU
from seqlab.metrics.judging import Judged
from seqlab.metrics.lengths import by_length
from seqlab.recipe import Recipe
from seqlab.runs.comparison import curve

DATA = Path(__file__).parent.parent / "../shared/data/multi30k"
PAIRS = 29_000
LINE = ["gnmt-v1", "gnmt-v2", "gnmt-v3", "gnmt-v4", "gnmt-v6", "convolutional", "transformer"]
RECURRENT = {"model.width": 256, "model.dropout": 0.3, "training.learning_rate": 0.002}
DEEP = {**RECURRENT, "model.dropout": 0.2, "training.batch_size": 64}
"""Three layers learn more slowly: twice as many updates, in as many epochs."""
OWN = {
    "gnmt-v4": DEEP,
    "gnmt-v6": DEEP,
    "convolutional": {"model.width": 192, "model.dropout": 0.3, "training.learning_rate": 0.002},
    "transformer": {
        "model.depth": 4,
        "model.dropout": 0.3,
        "training.learning_rate": 0.003,
        "training.optimizer.betas": [0.9, 0.98],
    },
}
"""The Transformer has the shape that is called tiny in the literature: 4 + 4 layers of 128, 256 inside, 4 heads."""
EPOCHS = {"convolutional": 12, "transformer": 17}
CASED, LOWERCASED = BLEU.Settings(kind="bleu"), BLEU.Settings(kind="bleu", lowercase=True)


def recipe_of(name: str, reverse: bool, seed: int, epochs: float | None, overrides: list[str]) -> Recipe:
    source, target = ("en", "de") if reverse else ("de", "en")
    own = {"training.batch_size": 128, **OWN.get(name, RECURRENT)}
    changes = {
        "data.train": str((DATA / "train").resolve()),
        "data.valid": str((DATA / "val").resolve()),
        "data.columns": {"source": source, "target": target},
        "task.metrics": ["bleu", "chrf"],
        "tokenizer": {"kind": "bpe", "vocab_size": 6000},
        "objective.smoothing": 0.1,
        "training.average": 0.998,
        "training.schedule": {"kind": "cosine", "warmup": 600, "floor": 0.02},
        "training.seed": seed,
    }
    recipe = Recipe.load(f"translation/{name}").changed({**changes, **own}).changed(overrides)
    an_epoch = PAIRS / recipe.training.batch_size
    steps = round((epochs or EPOCHS.get(name, 10)) * an_epoch)
    return recipe.changed({"training.evaluate_every": round(an_epoch), "training.steps": steps})


def train(arguments: argparse.Namespace) -> None:
    """One training, its figures, and what it writes for the test part."""
    torch.set_num_threads(1)
    name = f"{arguments.model}-reverse" if arguments.reverse else arguments.model
    folder = arguments.out / f"{name}-{arguments.seed}"
    recipe = recipe_of(arguments.model, arguments.reverse, arguments.seed, arguments.epochs, arguments.overrides)
    run = seqlab.train(recipe, out=folder, resume=True)
    split = run.held_out(str((DATA / "test_2016_flickr").resolve()))
    written = [answer["answer"] for answer in run.answers(split)]
    references = list(run.task.references(split))
    result = {
        "model": name,
        "weights": run.parameters,
        "steps": run.step,
        "seconds": sum(entry.get("seconds", 0.0) for entry in run.timing),
        "written": written,
        "references": references,
    }
    (folder / "result.json").write_text(json.dumps(result, ensure_ascii=False) + "\n")


def judged(result: dict[str, list[str]], settings: BLEU.Settings) -> Judged:
    return Judged([settings], result["written"], [[one] for one in result["references"]], resamples=1000)


def table(out: Path) -> None:
    found = {path.parent.name.removesuffix("-0"): json.loads(path.read_text()) for path in out.glob("*-0/result.json")}
    print("| model | weights, M | minutes | BLEU | lowercased | less the step before (95 %), p |")
    print("|---|---|---|---|---|---|")
    before = None
    for name in [one for one in [*LINE, "transformer-reverse"] if one in found]:
        cased, lower = (judged(found[name], settings) for settings in (CASED, LOWERCASED))
        change = ""
        if before is not None and "reverse" not in name:
            one = cased.against(before)["bleu"]
            change = f"{one.value:+.1f} ({one.interval[0]:+.1f} to {one.interval[1]:+.1f}), {one.p_value:.3f}"
        weights, minutes = found[name]["weights"] / 1e6, found[name]["seconds"] / 60
        figures = " | ".join(f"{one.figures()['bleu'].value:.1f}" for one in (cased, lower))
        print(f"| {name} | {weights:.1f} | {minutes:.0f} | {figures} | {change} |")
        before = before if name == "convolutional" else cased  # it stands beside the line
    print(
        "\n".join(judged(one, s).figures()["bleu"].signature for one in [found["gnmt-v1"]] for s in (CASED, LOWERCASED))
    )
    done = [name for name in LINE if name in found]
    lengths = [len(line) for line in (DATA / "test_2016_flickr.de").read_text(encoding="utf-8").splitlines()]
    bins = {name: by_length(judged(found[name], CASED), lengths) for name in done}
    print("| characters | lines | " + " | ".join(done) + " |\n|---|---|" + "---|" * len(done))
    for rows in zip(*bins.values(), strict=True):
        figures = " | ".join(f"{row['figures']['bleu']:.1f}" for row in rows)
        print(f"| {rows[0]['shortest']} to {rows[0]['longest']} | {rows[0]['lines']} | {figures} |")
    lines = {}
    for name in done:
        epoch = PAIRS / Recipe.load(out / f"{name}-0" / "recipe.yaml").training.batch_size
        lines[name] = [[(one["step"] / epoch, one["perplexity"]) for one in curve(out / f"{name}-0")][1:]]
    curves(lines, out / "curves.png", "Multi30k, German to English", "epochs", "held-out perplexity")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("model", choices=LINE)
    one.add_argument("--reverse", action="store_true", help="English to German")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--epochs", type=float)
    one.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    for command in (one, commands.add_parser("table")):
        command.add_argument("--out", type=Path, default=Path("runs/multi30k"))
    arguments = parser.parse_args()
    train(arguments) if arguments.command == "train" else table(arguments.out)


if __name__ == "__main__":
    main()
