"""Pages against lists: whatever is reordered, joined, copied and dropped, each row reads what it wrote."""

import random

import pytest
import torch

from seqlab.nn.pages import PAGE, Pages

pytestmark = pytest.mark.numeric

LAYERS, HEADS, WIDTH = 2, 3, 4


def empty(rows):
    return Pages(rows, LAYERS, HEADS, WIDTH, torch.zeros(1))


class Texts:
    """Pages, and the numbers that each row should hold."""

    def __init__(self, rows, start=0):
        self.pages, self.rows, self.next = empty(rows), [[] for _ in range(rows)], start

    def extend(self, counts):
        first = [len(row) for row in self.rows]
        self.pages.extend(counts)
        for layer in range(LAYERS):
            keys = torch.zeros(len(counts), max(counts, default=0), HEADS, WIDTH)
            for row, count in enumerate(counts):
                keys[row, :count] = (torch.arange(count) + self.next + 100 * row + layer)[:, None, None]
            positions = torch.tensor(first)[:, None] + torch.arange(keys.shape[1])
            self.pages.write(layer, positions, keys, -keys)
        for row, count in enumerate(counts):
            self.rows[row] = self.rows[row] + [self.next + 100 * row + n for n in range(count)]
        self.next += 10_000

    def reorder(self, rows):
        self.pages.reorder(rows)
        self.rows = [self.rows[row] for row in rows]

    def check(self):
        assert self.pages.lengths == [len(row) for row in self.rows]
        longest = max(map(len, self.rows), default=0)
        for layer in range(LAYERS):
            keys, values = self.pages.gathered(layer, longest)
            for row, text in enumerate(self.rows):
                wanted = torch.zeros(longest)
                wanted[: len(text)] = torch.tensor(text, dtype=torch.float32) + layer
                assert (keys[row] == wanted[:, None]).all()
                assert (keys[row, :, : len(text)] == -values[row, :, : len(text)]).all()
        tails = [tail for tail in self.pages.tails if tail is not None]
        assert len(set(tails)) == len(tails), "two rows write to one page"


@pytest.mark.parametrize("trial", range(20))
def test_rows_read_what_they_wrote(trial):
    draw = random.Random(trial)
    texts = Texts(draw.randint(1, 4))
    for _ in range(40):
        rows = len(texts.rows)
        match draw.choice(["extend", "step", "step", "reorder", "join", "copy"]):
            case "extend":
                texts.extend([draw.choice([0, 1, 5, PAGE, 2 * PAGE + 1]) for _ in range(rows)])
            case "step":
                texts.extend([1] * rows)
            case "reorder":
                texts.reorder([draw.randrange(rows) for _ in range(draw.randint(1, 5))])
            case "join":
                other = Texts(draw.randint(1, 2), start=texts.next + 5_000)
                other.extend([draw.randint(0, 20) for _ in other.rows])
                texts.pages.join(other.pages)
                texts.rows += other.rows
            case "copy":
                chosen = [draw.randrange(rows) for _ in range(draw.randint(1, 4))]
                copy = Texts(0, start=texts.next + 5_000)
                copy.pages, copy.rows = texts.pages.select(chosen), [texts.rows[row] for row in chosen]
                texts.extend([1] * rows)  # neither sees what is done to the other
                copy.extend([1] * len(chosen))
                copy.check()
        texts.check()
        if sum(texts.pages.lengths) > 2_000:
            texts.reorder([0])


def test_nothing_moves_when_rows_come_and_grow():
    texts = Texts(2)
    texts.extend([40, 3])
    before = {page: texts.pages.pages[page].data_ptr() for page in texts.pages.used()}
    other = Texts(1)
    other.extend([100])
    texts.pages.join(other.pages)
    texts.rows += other.rows
    texts.extend([500, 500, 500])
    assert all(texts.pages.pages[page].data_ptr() == place for page, place in before.items())


def test_a_search_needs_no_more_pages_than_its_rows():
    """Hypotheses of one length pass their tails on, so that memory does not grow with the number of reorderings."""
    texts, draw, width, steps = Texts(5), random.Random(0), 5, 20 * PAGE
    for _ in range(steps):
        texts.extend([1] * width)
        texts.reorder(sorted(draw.randrange(width) for _ in range(width)))
    texts.check()
    assert len(texts.pages.pages) <= 1.75 * (width * steps / PAGE + width)


def test_pages_of_rows_that_left_are_used_again():
    texts = Texts(3)
    for _ in range(50):
        texts.extend([30, 30, 30])
        texts.reorder([0])
        other = Texts(2, start=texts.next + 5_000)
        other.extend([0, 0])
        texts.pages.join(other.pages)
        texts.rows = [*texts.rows, [], []]
        if len(texts.rows[0]) > 200:
            texts.reorder([1, 2, 1])
    assert len(texts.pages.pages) < 100
