"""Binary trees in brackets, as in the Stanford Sentiment Treebank, and batches of trees arranged by level.

(3 (2 It) (4 (2 's) (4 good)))          a node is (label word) or (label node node)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqlab.data.records import Record
from seqlab.errors import DataError

Numbers = NDArray[np.int64]
PIECES = re.compile(r"[()]|[^() \t\r\n]+")  # words may contain other blanks, such as 8\u00a01/2 in SST
NOBODY = 2**31 - 1
"""The level of a root's parent: above all others."""


@dataclass(frozen=True)
class Tree:
    """A tree of N nodes from the bottom up: children before parents, left before right, the root last."""

    labels: list[str]
    words: list[str]
    """One word per node; '' for inner nodes."""
    children: Numbers
    """(N, 2): the left and right child of each node; −1, −1 for leaves."""
    heights: Numbers
    """(N,): 0 for leaves; otherwise, one more than the higher child."""
    above: Numbers
    """(N,): the height of the parent."""

    def __len__(self) -> int:
        return len(self.labels)


NO_TREE = Tree([], [], np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))
"""The tree of an empty line."""


def parse(record: Record) -> Tree:
    """Parse the tree on a line. Faults are DataErrors with file, line and column."""
    labels: list[str] = []
    words: list[str] = []
    children: list[tuple[int, int]] = []
    open_nodes: list[_Open] = []
    text, finished = record.fields["text"], False

    def wrong(what: str, column: int) -> DataError:
        hint = "write a tree as (3 (2 It) (4 good))"
        return DataError(what, where=f"{record.place}, column {column + 1}", hint=hint)

    for match in PIECES.finditer(text):
        piece, column = match[0], match.start()
        if finished:
            raise wrong("extra text after the end of the tree", column)
        if piece == "(":
            if open_nodes and (fault := open_nodes[-1].cannot_have("child")):
                raise wrong(fault, column)
            open_nodes.append(_Open(column))
        elif not open_nodes:
            raise wrong("no tree begins here", column)
        elif piece == ")":
            node = open_nodes.pop()
            if fault := node.unfinished():
                raise wrong(fault, node.column)
            number = len(labels)
            labels.append(node.label or "")
            words.append(node.word or "")
            children.append((node.children[0], node.children[1]) if node.children else (-1, -1))
            if open_nodes:
                open_nodes[-1].children.append(number)
            finished = not open_nodes
        elif open_nodes[-1].label is None:
            open_nodes[-1].label = piece
        else:
            if fault := open_nodes[-1].cannot_have("word"):
                raise wrong(fault, column)
            open_nodes[-1].word = piece
    if not finished:
        place = open_nodes[-1].column if open_nodes else len(text)
        raise wrong("this bracket is never closed" if open_nodes else "no tree", place)
    return _with_heights(labels, words, children)


class _Open:
    """A node whose bracket is still open."""

    def __init__(self, column: int) -> None:
        self.column = column
        self.label: str | None = None
        self.word: str | None = None
        self.children: list[int] = []

    def cannot_have(self, what: str) -> str | None:
        if self.label is None:
            return "a node without a label"
        if self.word is not None or (what == "word" and self.children):
            return "a node must have either one word or two children"
        return "a third child: trees must be binary" if len(self.children) == 2 else None

    def unfinished(self) -> str | None:
        if self.label is None:
            return "a node without a label"
        if len(self.children) == 1:
            return "a node with one child: trees must be binary"
        return None if self.word is not None or self.children else "a node with neither a word nor children"


def _with_heights(labels: list[str], words: list[str], children: list[tuple[int, int]]) -> Tree:
    heights, above = [0] * len(labels), [NOBODY] * len(labels)
    for node, (left, right) in enumerate(children):
        if left >= 0:
            heights[node] = 1 + max(heights[left], heights[right])
            above[left] = above[right] = heights[node]
    return Tree(labels, words, np.array(children), np.array(heights), np.array(above))


class Levels(NamedTuple):
    """Many trees for one upward pass, which processes all nodes of one height at a time.

    Nodes are ordered by height and, within one height, by the height of their parents, so that a level's output for
    each higher level is contiguous. Every node is read once, by its parent, so nothing is copied twice, and the work
    depends on the number of nodes, not on the height of the trees.
    """

    order: Numbers
    """(N,): the node at each place, numbered across all trees."""
    children: Numbers
    """(2 · inner nodes,): left and right child of each inner node in order, as positions in the input of its level."""
    pieces: Numbers
    """(P, 3): source level, target level (or NOBODY), number of nodes; in order."""


def levels(trees: Sequence[Tree]) -> Levels:
    starts = np.cumsum([0, *(len(tree) for tree in trees)])
    heights = np.concatenate([tree.heights for tree in trees])
    above = np.concatenate([tree.above for tree in trees])
    children = np.concatenate([tree.children + start for tree, start in zip(trees, starts[:-1], strict=True)])
    order = np.lexsort((above, heights))
    as_read = np.lexsort((heights, above))  # what each level reads, starting with the lowest level
    _, first, sizes = np.unique(above[as_read], return_index=True, return_counts=True)
    place = np.empty(len(order), dtype=np.int64)
    place[as_read] = np.arange(len(order)) - np.repeat(first, sizes)
    inner = order[heights[order] > 0]
    pairs = np.stack([heights[order], above[order]], axis=1)
    changes = np.flatnonzero(np.any(pairs[1:] != pairs[:-1], axis=1)) + 1
    begins = np.concatenate([[0], changes])
    counts = np.diff([*begins, len(order)])
    return Levels(order, place[children[inner]].ravel(), np.column_stack([pairs[begins], counts]))
