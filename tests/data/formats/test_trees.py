"""Trees in brackets: what is read, and what is said about what cannot be."""

import numpy as np
import pytest

from seqlab.data.builtin.phrases import phrases
from seqlab.data.formats.trees import NOBODY, levels, parse
from seqlab.data.records import Record
from seqlab.errors import DataError


def tree(text):
    return parse(Record({"text": text}, "trees.txt", 7))


def test_nodes_come_children_first():
    found = tree("(3 (2 It) (4 (2 's) (4 good)))")
    assert found.words == ["It", "'s", "good", "", ""]
    assert found.labels == ["2", "2", "4", "4", "3"]
    assert found.children.tolist() == [[-1, -1], [-1, -1], [-1, -1], [1, 2], [0, 3]]
    assert found.heights.tolist() == [0, 0, 0, 1, 2]
    assert found.above.tolist() == [2, 1, 1, 2, NOBODY]


def test_blanks_do_not_matter():
    assert tree(" ( 3(2 It)  (4\tgood) ) ").labels == tree("(3 (2 It) (4 good))").labels
    assert tree("(2 8\u00a01\\/2)").words == ["8\u00a01\\/2"]  # this one is part of a word of the treebank


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("(3 (2 It) (4 good)", 1, "never closed"),
        ("(3 (2 It) (4 good)))", 20, "after the end"),
        ("(3 (2 It) (4 good)) (2 x)", 21, "after the end"),
        ("(3 (2 It) (4 so) (4 good))", 18, "binary"),
        ("(3 (2 It))", 1, "binary"),
        ("(3 (2 It) good)", 11, "one word or two children"),
        ("(3 (2 It is) (4 good))", 10, "one word or two children"),
        ("(3 It (4 good))", 7, "one word or two children"),
        ("(3 ((2 It) (4 good)) (2 .))", 5, "without a label"),
        ("(3 () (4 good))", 4, "without a label"),
        ("(3 (2) (4 good))", 4, "neither a word nor children"),
        ("It is good", 1, "no tree begins here"),
        ("", 1, "no tree"),
    ],
)
def test_what_is_wrong_has_a_place(text, column, what):
    with pytest.raises(DataError, match=what) as fault:
        tree(text)
    assert fault.value.where == f"trees.txt, line 7, column {column}"


def test_a_very_deep_tree_is_read():
    depth = 5000
    found = tree("(0 (0 a) " * depth + "(0 b)" + ")" * depth)
    assert found.heights[-1] == depth


def test_levels_of_many_trees():
    one, other = tree("(1 a)"), tree("(1 (1 a) (1 (1 b) (1 c)))")
    plan = levels([one, other])
    heights = np.concatenate([one.heights, other.heights])
    assert (np.diff(heights[plan.order]) >= 0).all()
    assert sorted(plan.order) == list(range(6))
    assert [tuple(piece) for piece in plan.pieces] == [
        (0, 1, 2),  # b and c
        (0, 2, 1),  # a
        (0, NOBODY, 1),  # a tree of one word
        (1, 2, 1),
        (2, NOBODY, 1),
    ]
    assert plan.children.tolist() == [0, 1, 0, 1]


def test_made_up_phrases_say_what_their_parts_say():
    seen = list(phrases())
    assert len(seen) == len(set(seen)) > 5000
    for text in seen[:200]:
        found = tree(text)
        said = [int(label) for label in found.labels]
        for node, (left, right) in enumerate(found.children.tolist()):
            if left < 0:
                continue
            expected = {"not": 4 - said[right], "very": 2 * said[right] - 2}
            total = expected.get(found.words[left], said[left] + said[right] - 2)
            assert said[node] == min(4, max(0, total))
    assert {tree(text).labels[-1] for text in seen[:200]} == set("01234")


def test_the_treebank_is_read_as_it_comes(shared_data):
    lines = shared_data("sst_trees/dev.txt").read_text(encoding="utf-8").splitlines()
    trees = [tree(line) for line in lines]
    assert len(trees) == 1101
    assert {label for one in trees for label in one.labels} == set("01234")
    assert sum(one.labels[-1] != "2" for one in trees) == 872  # as in the paper
    plan = levels(trees)
    assert len(plan.order) == sum(map(len, trees))
