"""Training tokens per second of our GPT, through our whole Trainer, beside GPT-2 of transformers of the same shape.

Both do forward, backward, clipping by norm and a step of the library's fused AdamW, float32 on the CPU, two threads,
no dropout, fused attention. Theirs is the usual loop: a window cut at random places of the text for each row, `labels`
given to the model. Ours is `Trainer.learn` with everything it does: order, batches, checks, sums, schedule.

    python benchmarks/training.py large small            # the ratio of the fastest of 15 interleaved turns each
    python benchmarks/training.py small --compile        # ours with training.compile=true beside theirs as it is
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from seqlab.recipe import Recipe
from seqlab.runs.preparation import prepare
from seqlab.training.distributed import ALONE
from seqlab.training.trainer import Silence

VOCABULARY = 65


@dataclass(frozen=True)
class Shape:
    depth: int
    heads: int
    width: int
    block: int
    batch: int
    steps: int
    """In one turn."""

    @property
    def tokens(self) -> int:
        return self.block * self.batch


SHAPES = {"large": Shape(6, 6, 384, 256, 8, steps=2), "small": Shape(4, 4, 128, 64, 12, steps=25)}


def write_text(path: Path) -> None:
    """Random letters: 63 kinds, which with `<end>` and `<unknown>` makes 65."""
    letters = np.frombuffer(bytes(range(48, 48 + VOCABULARY - 2)), dtype=np.uint8)
    path.write_bytes(np.random.default_rng(0).choice(letters, 300_000).tobytes())


def ours(shape: Shape, folder: Path, compile: bool) -> Callable[[], None]:
    """One step of our Trainer."""
    write_text(folder / "text.txt")
    recipe = Recipe.load("lm/gpt").changed(
        {
            "data.train": str(folder / "text.txt"),
            "task.window": shape.block,
            "tokenizer": "character",
            "model": {"kind": "gpt", "width": shape.width, "depth": shape.depth, "heads": shape.heads}
            | {"context": shape.block},
            "training.batch_size": shape.batch,
            "training.steps": 1_000_000,
            **({"training.compile": True} if compile else {}),
        }
    )
    prepared = prepare(recipe, torch.device("cpu"), Silence())
    assert prepared.task.sizes["vocab_size"] == VOCABULARY
    trainer = prepared.trainer(recipe, folder, Silence(), ALONE)
    trainer.objective.train()
    batches = trainer.order.walk()
    return lambda: trainer.watcher.stepped(0, 0, trainer.learn(*next(batches)))


def theirs(shape: Shape, compile: bool) -> Callable[[], None]:
    """One step of a plain loop around GPT-2 of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=shape.block,
        n_embd=shape.width,
        n_layer=shape.depth,
        n_head=shape.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config).train()
    called = torch.compile(model) if compile else model
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    text = torch.from_numpy(np.random.default_rng(0).integers(0, VOCABULARY, 300_000))

    def step() -> None:
        starts = torch.randint(len(text) - shape.block, (shape.batch,)).tolist()
        tokens = torch.stack([text[start : start + shape.block] for start in starts])
        loss = called(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def timed(step: Callable[[], None], steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


def compare(name: str, pairs: int, compile: bool, compile_theirs: bool) -> None:
    shape = SHAPES[name]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQLAB_CACHE"] = f"{folder}/cache"
        steps = [ours(shape, Path(folder), compile), theirs(shape, compile_theirs)]
        first = [timed(step, 1) for step in steps]
        for step in steps:
            timed(step, 3)
        fastest = [float("inf")] * 2
        for _ in range(pairs):
            fastest = [min(best, timed(step, shape.steps)) for best, step in zip(fastest, steps, strict=True)]
    speeds = [shape.tokens / seconds for seconds in fastest]
    how = " compiled" if compile else ""
    print(
        f"{name}: ours{how} {speeds[0]:,.0f} tokens/s ({fastest[0] * 1e3:.2f} ms a step), "
        f"theirs{' compiled' if compile_theirs else ''} {speeds[1]:,.0f} ({fastest[1] * 1e3:.2f} ms): "
        f"ratio {speeds[0] / speeds[1]:.3f}; first steps {first[0]:.1f} s and {first[1]:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", choices=SHAPES)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="ours with training.compile=true")
    parser.add_argument("--compile-theirs", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    for name in arguments.shapes:
        compare(name, arguments.pairs, arguments.compile, arguments.compile_theirs)


if __name__ == "__main__":
    main()
