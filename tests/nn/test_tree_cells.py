"""Trees by levels give what a walk from node to node gives, with gradients, in any order and at any depth."""

import random

import pytest
import torch
from tolerance import close

from seqlab.data.formats.trees import levels, parse
from seqlab.data.records import Record
from seqlab.nn.tree_cells import RecursiveCell, TreeLSTMCell, upwards

WIDTH, HIDDEN, WORDS = 4, 3, 11
CELLS = {
    "recursive": lambda: RecursiveCell(WIDTH, HIDDEN),
    "sigmoid": lambda: RecursiveCell(WIDTH, HIDDEN, "sigmoid"),
    "tree-lstm": lambda: TreeLSTMCell(WIDTH, HIDDEN),
}


def tree(text):
    return parse(Record({"text": text}, "trees.txt", 1))


def grown(rng, words):
    if words == 1:
        return f"(0 {rng.randrange(WORDS)})"
    cut = rng.randint(1, words - 1)
    return f"(0 {grown(rng, cut)} {grown(rng, words - cut)})"


def chain(depth, left):
    text = "(0 1)"
    for place in range(depth):
        text = f"(0 {text} (0 {place % WORDS}))" if left else f"(0 (0 {place % WORDS}) {text})"
    return tree(text)


def batched(cell, trees, embeddings):
    """The states of the nodes of each tree, children first."""
    plan = levels(trees)
    words = [word for one in trees for word in one.words]
    leaves = [int(words[node]) for node in plan.order if words[node]]
    x = embeddings[leaves]
    states = upwards(cell, x, torch.from_numpy(plan.children), torch.from_numpy(plan.pieces))
    back = torch.empty(len(states), dtype=torch.long)
    back[torch.from_numpy(plan.order)] = torch.arange(len(states))
    return states[back].split([len(one) for one in trees])


def walked(cell, tree, embeddings):
    """The same from node to node, by the equations, each gate with its own matrix."""
    states = []
    for word, (left, right) in zip(tree.words, tree.children.tolist(), strict=True):
        x = embeddings[int(word)] if word else None
        below = None if word else (states[left], states[right])
        states.append(recursive(cell, x, below) if isinstance(cell, RecursiveCell) else lstm(cell, x, below))
    return torch.stack([h for h, _ in states])


def recursive(cell, x, below):
    if below is None:
        return cell.activation(cell.input.weight @ x + cell.input.bias), None
    u, w = cell.both.weight[:, :HIDDEN], cell.both.weight[:, HIDDEN:]
    return cell.activation(u @ below[0][0] + w @ below[1][0] + cell.both.bias), None


def lstm(cell, x, below):
    """Tai, Socher & Manning 2015, equations 9 to 14, where x is 0 above the leaves and children are at them."""

    def gate(linear, number, v):
        rows = slice(number * HIDDEN, (number + 1) * HIDDEN)
        return linear.weight[rows] @ v + linear.bias[rows]

    if below is None:
        i, o, u = (gate(cell.input, number, x) for number in range(3))
        c = i.sigmoid() * u.tanh()
    else:
        (h_left, c_left), (h_right, c_right) = below
        f_left, f_right, i, o, u = (gate(cell.both, number, torch.cat([h_left, h_right])) for number in range(5))
        c = i.sigmoid() * u.tanh() + f_left.sigmoid() * c_left + f_right.sigmoid() * c_right
    return o.sigmoid() * c.tanh(), c


def gradients(states, cell, embeddings):
    torch.manual_seed(5)
    loss = sum((one * torch.randn_like(one)).sum() for one in states)
    return torch.autograd.grad(loss, [embeddings, *cell.parameters()], materialize_grads=True)


@pytest.fixture(params=CELLS)
def cell(request):
    torch.manual_seed(0)
    return CELLS[request.param]().double()


@pytest.fixture
def embeddings():
    torch.manual_seed(1)
    return torch.randn(WORDS, WIDTH, dtype=torch.double, requires_grad=True)


def agree(cell, trees, embeddings):
    ours, theirs = batched(cell, trees, embeddings), [walked(cell, one, embeddings) for one in trees]
    for one, other in zip(ours, theirs, strict=True):
        close(one, other)
    for one, other in zip(gradients(ours, cell, embeddings), gradients(theirs, cell, embeddings), strict=True):
        close(one, other)


@pytest.mark.parametrize("seed", range(3))
def test_levels_equal_a_walk_from_node_to_node(cell, embeddings, seed):
    rng = random.Random(seed)
    agree(cell, [tree(grown(rng, rng.randint(1, 20))) for _ in range(8)], embeddings)


def test_trees_of_one_word(cell, embeddings):
    agree(cell, [tree("(0 3)")], embeddings)
    agree(cell, [tree("(0 3)"), tree("(0 (0 1) (0 2))"), tree("(0 1)")], embeddings)


@pytest.mark.parametrize("left", [True, False])
def test_deep_chains(cell, embeddings, left):
    agree(cell, [chain(500, left), tree("(0 (0 1) (0 2))")], embeddings)


def test_the_order_of_trees_does_not_matter(cell, embeddings):
    rng = random.Random(9)
    trees = [tree(grown(rng, rng.randint(1, 12))) for _ in range(7)]
    places = rng.sample(range(7), 7)
    there, shuffled = batched(cell, trees, embeddings), batched(cell, [trees[p] for p in places], embeddings)
    for place, one in zip(places, shuffled, strict=True):
        close(one, there[place])


def test_left_and_right_are_told_apart(cell, embeddings):
    one, other = batched(cell, [tree("(0 (0 1) (0 2))"), tree("(0 (0 2) (0 1))")], embeddings)
    assert not torch.allclose(one[-1], other[-1])


def test_work_grows_with_the_nodes_and_not_with_the_height():
    """Every state is handed on exactly once, however deep the tree is."""
    plan = levels([chain(300, True), chain(200, False)])
    assert plan.pieces[:, 2].sum() == len(plan.order) == 2 * 500 + 2
    assert len(plan.pieces) < 3 * 300
