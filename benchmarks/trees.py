"""Trees by levels beside a walk from node to node: trees a second, forward and backward, as a ratio of minima.

python benchmarks/trees.py               made-up phrases
python benchmarks/trees.py TRAIN.txt     trees of a file, such as the Stanford Sentiment Treebank's
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from seqlab.data.builtin.phrases import phrases
from seqlab.data.formats.trees import Tree, levels, parse
from seqlab.data.records import Record
from seqlab.nn.tree_cells import RecursiveCell, TreeCell, TreeLSTMCell, upwards

EMBEDDED, HIDDEN = 300, 150


def by_levels(cell: TreeCell, trees: list[Tree], embeddings: Tensor) -> Tensor:
    """All of it, the plan of the levels too."""
    plan = levels(trees)
    leaves = torch.arange(len(plan.order) - len(plan.children) // 2) % len(embeddings)
    states = upwards(cell, embeddings[leaves], torch.from_numpy(plan.children), torch.from_numpy(plan.pieces))
    return states.sum()


def by_nodes(cell: TreeCell, trees: list[Tree], embeddings: Tensor) -> Tensor:
    """What people write: a node after the other, with the same cell."""
    total, word = embeddings.new_zeros(()), 0
    for tree in trees:
        states: list[Tensor] = []
        for left, right in tree.children.tolist():
            if left < 0:
                states.append(cell.leaf(embeddings[word % len(embeddings)][None]))
                word += 1
            else:
                states.append(cell.join(torch.stack([states[left], states[right]], 1)))
        total = total + torch.cat(states)[:, : cell.width].sum()
    return total


def best(runs: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, float]:
    times = dict.fromkeys(runs, float("inf"))
    for number in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run().backward()
            if number:  # the first is for warming up
                times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = list(phrases()) if options.file is None else options.file.read_text(encoding="utf-8").splitlines()
    trees = [parse(Record({"text": line}, str(options.file), number)) for number, line in enumerate(lines[:256], 1)]
    print("| cell | trees in a batch | nodes | by levels, trees/s | by nodes, trees/s | ratio |")
    print("|---|---|---|---|---|---|")
    for name, cell in (("recursive", RecursiveCell(EMBEDDED, HIDDEN)), ("tree-lstm", TreeLSTMCell(EMBEDDED, HIDDEN))):
        for size in (25, 256):
            print(compared(name, cell, trees[:size], options.repeats))


def compared(name: str, cell: TreeCell, trees: list[Tree], repeats: int) -> str:
    embeddings = torch.randn(1000, EMBEDDED, requires_grad=True)
    ways = {"levels": by_levels, "nodes": by_nodes}
    times = best({key: (lambda way=way: way(cell, trees, embeddings)) for key, way in ways.items()}, repeats)
    speed = {key: len(trees) / seconds for key, seconds in times.items()}
    ratio = f"{speed['levels'] / speed['nodes']:.1f}"
    figures = [f"{len(trees)}", f"{sum(map(len, trees)):,}", *(f"{speed[key]:,.0f}" for key in ways), ratio]
    return f"| {name} | {' | '.join(figures)} |"


if __name__ == "__main__":
    main()
