"""Do two checkouts of this project train every shipped recipe to the same bits, and answer the same?

    python benchmarks/bits.py OLD NEW                       folders of two checkouts, such as two git worktrees
    python benchmarks/bits.py OLD NEW --only translation    recipes whose names have this in them
    python benchmarks/bits.py OLD NEW --out bits.md         the table is written

Each checkout trains each recipe for a few steps, in a process of its own and on one thread. Then NEW loads both runs:
weights are compared under NEW's names, logs entry by entry, and what the models answer or write number by number. Only
what a checkout computes counts, so nothing is stored and any machine will do; the process fails if anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

STEPS = 8
TINY: dict[str, Any] = {
    "training.steps": STEPS,
    "training.batch_size": 4,
    "training.report_every": 1,
    "training.evaluate_every": STEPS,
    "training.checkpoint_every": STEPS // 2,
    "training.device": "cpu",
    "decoding.tokens": 12,
}
NARROW: dict[str, dict[str, Any]] = {
    "translation/gnmt": {"model.width": 32},
    "translation/transformer-base": {"model.width": 32, "model.hidden": 64, "training.accumulate": 2},
    "translation/convolutional-base": {"model.width": 32},
}
"""Published shapes are made narrower, at their depth. `hidden` is an earlier name, which every version knows."""
ANSWERS = 16
PARTS = ("weights", "log", "outputs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT", help="recipes whose names have this in them")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    parser.add_argument("--work", choices=["train", "compare"], help=argparse.SUPPRESS)
    parser.add_argument("--room", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work == "train":
        train(given.only, given.room)
    elif given.work == "compare":
        sys.exit(compare(given.room, given.out))
    else:
        sys.exit(both(given))


def both(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="seqlab-bits-") as folder:
        room = Path(folder)
        for name, checkout in (("old", given.old), ("new", given.new)):
            print(f"{name}: {checkout}", flush=True)
            if code := in_checkout(checkout, room, given, "train", room / name):
                return code
        return in_checkout(given.new, room, given, "compare", room)


def in_checkout(checkout: Path, room: Path, given: argparse.Namespace, what: str, folder: Path) -> int:
    """This file again, with the package of a checkout."""
    environment = {
        **os.environ,
        "PYTHONPATH": str((checkout / "src").resolve()),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "SEQLAB_CACHE": str(room / "cache" / checkout.name),
    }
    command = [sys.executable, __file__, str(given.old), str(given.new), "--work", what, "--room", str(folder)]
    command += ["--only", given.only, *(["--out", str(given.out)] if given.out else [])]
    return subprocess.run(command, env=environment).returncode


def train(only: str, room: Path) -> None:
    import torch

    import seqlab
    from seqlab.recipe import Recipe
    from seqlab.recipe_tree import shipped

    torch.set_num_threads(1)
    room.mkdir()
    for name in shipped():
        if only in name:
            recipe = Recipe.load(name).changed({**TINY, **NARROW.get(name, {})})
            if hasattr(recipe.training, "products"):  # by PyTorch, as in versions that knew nothing else
                recipe = recipe.changed({"training.products": "torch"})
            run = seqlab.train(recipe, out=room / name.replace("/", "-"))
            (run.folder / "outputs.json").write_text(json.dumps(outputs(run)), encoding="utf-8")
            print(".", end="", flush=True)
    print()


def outputs(run: Any) -> list[Any]:
    """What a run measures, and what it writes or answers."""
    from seqlab.models.language_model import LanguageModel

    writes = run.recipe.task.kind == "translation"
    measured = run.evaluate(**({"metrics": []} if writes else {}))
    measured.pop("signature")
    if isinstance(run.objective.body, LanguageModel) and not writes:
        scores = [score.log_probability for score in run.score(["The list of items", "def open(file):"])]
        return [measured, run.generate("The ", tokens=12, samples=3), scores]
    return [measured, list(itertools.islice(run.answers(run.held_out(), 1), ANSWERS))]


def compare(room: Path, out: Path | None) -> int:
    """How many recipes differ."""
    rows = []
    for new in sorted((room / "new").iterdir()):
        found = differences(room / "old" / new.name, new)
        rows.append([new.name, *(found[part] or "equal" for part in PARTS)])
    lines = [f"| {' | '.join(row)} |" for row in (["recipe", *PARTS], ["---"] * (1 + len(PARTS)), *rows)]
    print("\n".join(lines), flush=True)
    if out is not None:
        out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sum(any(cell != "equal" for cell in row[1:]) for row in rows)


def differences(old: Path, new: Path) -> dict[str, str]:
    """What is not the same about two runs; nothing where it is."""
    import torch

    import seqlab

    if not old.is_dir():
        return dict.fromkeys(PARTS, "only in the new one")
    before, after = (seqlab.load(path, checkpoint="last", device="cpu").objective.state_dict() for path in (old, new))
    changed = [name for name in after if name not in before or not torch.equal(before[name], after[name])]
    logs = [(path / "log.jsonl").read_text(encoding="utf-8").splitlines() for path in (old, new)]
    steps = [json.loads(one)["step"] for one, other in itertools.zip_longest(*logs, fillvalue="{}") if one != other]
    answers = [(path / "outputs.json").read_text(encoding="utf-8") for path in (old, new)]
    return {
        "weights": f"{len(changed)} of {len(after)} differ: {', '.join(changed[:3])}" if changed else "",
        "log": f"from step {steps[0]}" if steps else "",
        "outputs": "" if answers[0] == answers[1] else "differ",
    }


if __name__ == "__main__":
    main()
