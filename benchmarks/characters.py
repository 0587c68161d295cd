"""Characters: the recipe lm/char beside a GPT-2 of transformers, on one text, in the same session.

The text is cut by position: the first 90 % to train on, the rest to score. The peer has 4 blocks of width 128 with
4 heads, reads 12 windows of 64 a step for 2,000 steps of AdamW (1e-3, warm-up of 100, cosine to 1e-4), and is scored
with windows of 64 that overlap by half, each character once. `lm/char` is started as a person would start it, with a
sixth of the peer's time and with all of it. Times are those of the training: neither evaluations nor start-up count;
the time from the command to its end is printed beside it.

    python benchmarks/characters.py race input.txt --out runs/characters      # about three minutes, two threads
    python benchmarks/characters.py ours input.txt --out runs/characters --budget 5m
    python benchmarks/characters.py plot --out runs/characters --picture docs/characters.png
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from seqlab.runs.run import load
from seqlab.training.log import read_log

STEPS, WARM_UP, PEAK, FLOOR = 2000, 100, 1e-3, 1e-4
ROWS, BLOCK, STRIDE = 12, 64, 32
CURVE = (125, 250, 500, 1000, STEPS)
"""Steps at which the peer is scored."""
TICKS = (2, 5, 10, 20, 50, 100, 200)


def cut(text: Path, out: Path) -> tuple[Path, Path]:
    """The first 90 % of the characters, and the rest."""
    whole = text.read_text(encoding="utf-8")
    parts = {"train": whole[: int(len(whole) * 0.9)], "valid": whole[int(len(whole) * 0.9) :]}
    out.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        (out / f"{name}.txt").write_text(part, encoding="utf-8")
    return out / "train.txt", out / "valid.txt"


# ------------------------------------------------------------------------- the peer


def peer(train: Path, valid: Path, seed: int) -> dict[str, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    texts = [path.read_text(encoding="utf-8") for path in (train, valid)]
    numbers = {letter: number for number, letter in enumerate(sorted(set("".join(texts))))}
    train_ids, valid_ids = (torch.tensor([numbers[letter] for letter in text]) for text in texts)
    torch.manual_seed(seed)
    shape = {"n_positions": BLOCK, "n_embd": 128, "n_layer": 4, "n_head": 4, "use_cache": False}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    no_ends = {"bos_token_id": None, "eos_token_id": None}
    config = GPT2Config(vocab_size=len(numbers), attn_implementation="sdpa", **shape, **no_dropout, **no_ends)
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), PEAK, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    seconds, curve = 0.0, []
    for step in range(1, STEPS + 1):
        start = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        places = torch.randint(len(train_ids) - BLOCK, (ROWS,)).tolist()
        windows = torch.stack([train_ids[place : place + BLOCK + 1] for place in places])
        logits = model(windows[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds += time.perf_counter() - start
        if step in CURVE:
            curve.append([seconds, scored(model, valid_ids)])
    return {"name": "GPT-2 of transformers", "steps": STEPS, "seconds": seconds, "loss": curve[-1][1], "curve": curve}


def rate(step: int) -> float:
    if step < WARM_UP:
        return PEAK * step / WARM_UP
    return FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP))) / 2


@torch.no_grad()
def scored(model: torch.nn.Module, text: torch.Tensor) -> float:
    """Nats per character; each after the first is scored once, after at least 32 others except at the start."""
    model.eval()
    windows = text[: (len(text) - 1) // STRIDE * STRIDE + 1].unfold(0, BLOCK + 1, STRIDE)
    total, count = 0.0, 0
    for part in windows.split(256):
        logits = model(part[:, :-1]).logits
        losses = F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="none").view(len(part), BLOCK)
        if count == 0:
            total, count = float(losses[0, :STRIDE].sum()), STRIDE
        total, count = total + float(losses[:, STRIDE:].sum()), count + losses[:, STRIDE:].numel()
    model.train()
    return total / count


# ----------------------------------------------------------------------------- ours


def ours(train: Path, valid: Path, budget: str, overrides: list[str], run: Path) -> dict[str, Any]:
    """`seqlab train lm/char` as a command of its own; a run that was stopped goes on."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "SEQLAB_CACHE": str(run.parent / "cache")}
    data = [f"data.train={train}", f"data.valid={valid}", f"training.budget={budget}", *overrides]
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "seqlab", "train", "lm/char", *data, "--out", str(run), "--json", "--resume"],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    command = time.perf_counter() - start
    steps, clock = [0], [0.0]
    for entry in read_log(run / "timing.jsonl"):
        steps.append(entry["step"])
        clock.append(clock[-1] + entry.get("seconds", 0.0))
    valid = [entry for entry in read_log(run / "log.jsonl") if "valid" in entry]
    curve = [[float(np.interp(one["step"], steps, clock)), one["valid"]["loss"]] for one in valid]
    recipe = load(run).recipe
    facts = {"name": f"lm/char, {budget}", "steps": recipe.training.steps, "seed": recipe.training.seed}
    return {**facts, "seconds": clock[-1], "command": command, "loss": curve[-1][1], "curve": curve}


def told(result: dict[str, Any]) -> dict[str, Any]:
    command = f", {result['command']:.1f} s from the command to its end" if "command" in result else ""
    print(
        f"{result['name']}: {result['loss']:.4f} nats per character after {result['steps']:,} steps in "
        f"{result['seconds']:.1f} s of training{command}",
        flush=True,
    )
    return result


def race(arguments: argparse.Namespace) -> None:
    parts = cut(arguments.text, arguments.out)
    for name in ("sixth", "whole"):
        shutil.rmtree(arguments.out / name, ignore_errors=True)
    theirs = told(peer(*parts, arguments.seed))
    results = [theirs]
    for name, share in (("sixth", 6), ("whole", 1)):
        budget = f"{theirs['seconds'] / share:.1f}s"
        overrides = [f"training.seed={arguments.seed}", *arguments.overrides]
        results.append(told(ours(*parts, budget, overrides, arguments.out / name)))
        (arguments.out / "race.json").write_text(json.dumps(results, indent=1))


def alone(arguments: argparse.Namespace) -> None:
    parts = cut(arguments.text, arguments.out)
    overrides = [f"training.seed={arguments.seed}", *arguments.overrides]
    result = told(ours(*parts, arguments.budget, overrides, arguments.out / f"{arguments.budget}-{arguments.seed}"))
    (arguments.out / f"ours-{arguments.budget}-{arguments.seed}.json").write_text(json.dumps([result], indent=1))


def plot(arguments: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for file in sorted(arguments.out.glob("*.json")):
        for result in json.loads(file.read_text()):
            seconds, losses = zip(*result["curve"], strict=True)
            axes.plot(seconds, losses, marker="o", markersize=3, label=f"{result['name']}: {losses[-1]:.3f}")
    axes.set(xscale="log", xlabel="seconds of training (two threads)", ylabel="nats per character, held out")
    axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(arguments.picture, dpi=110, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["race", "ours", "plot"])
    parser.add_argument("text", nargs="?", type=Path)
    parser.add_argument("overrides", nargs="*", help="keys of lm/char, such as model.width=512")
    parser.add_argument("--out", type=Path, default=Path("runs/characters"))
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=Path("characters.png"))
    arguments = parser.parse_intermixed_args()
    torch.set_num_threads(2)
    {"race": race, "ours": alone, "plot": plot}[arguments.what](arguments)


if __name__ == "__main__":
    main()
