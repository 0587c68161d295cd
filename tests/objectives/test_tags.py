"""Sums over sentences: which count, and what is counted."""

import pytest
import torch
from pydantic import ValidationError
from tolerance import close
from torch import nn

from seqlab.data.batching.batches import Batch
from seqlab.errors import RecipeError
from seqlab.models.encoder import Encoded, Encoder
from seqlab.objectives.tags import Tags, TagScores

NAMES = ["B-X", "B-Y", "I-X", "I-Y", "O"]


class Given(Encoder):
    """States are given with the batch."""

    width = 5

    def forward(self, batch):
        return Encoded(batch["states"], batch["mask"])


def objective(scheme="BIO", **settings):
    head = TagScores(5, NAMES, scheme)
    nn.init.eye_(head.weight)
    nn.init.zeros_(head.bias)
    return Tags(Tags.Settings(kind="tags", **settings), Given(), head)


def batch(guesses, tags, spans):
    """Sentences whose scores are 9 for the guess and 0 for the others."""
    longest = max(len(row) for row in tags)
    states, mask = torch.zeros(len(tags), longest, 5), torch.zeros(len(tags), longest, dtype=torch.bool)
    gold = torch.zeros(len(tags), longest, dtype=torch.long)
    for row, (guessed, right) in enumerate(zip(guesses, tags, strict=True)):
        for place, (guess, tag) in enumerate(zip(guessed, right, strict=True)):
            states[row, place, NAMES.index(guess)] = 9.0
            gold[row, place] = NAMES.index(tag) if tag in NAMES else -1
            mask[row, place] = True
    return Batch(states=states, mask=mask, tags=gold, spans=torch.tensor(spans).reshape(-1, 4))


GUESSES = [["B-X", "I-X", "O", "B-Y"], ["B-X", "O"]]
RIGHT = [["B-X", "I-X", "O", "B-X"], ["B-X", "I-X"]]
SPANS = [(0, 1, 0, 2), (0, 1, 3, 4), (1, 1, 0, 2)]
"""Row, type (of "", X and Y), start and stop."""


@pytest.mark.parametrize("crf", [False, True])
def test_parts(crf):
    one = objective(crf=crf).eval()
    given = batch(GUESSES, RIGHT, SPANS)
    loss = one(given)
    assert {name: int(part) for name, part in loss.parts.items()} == {
        "right": 4,
        "words": 6,
        "spans": 3,
        "found": 3,
        "hits": 1,
    }
    assert int(loss.count) == 6
    assert one.best(given) == GUESSES


@pytest.mark.parametrize("crf", [False, True])
def test_a_tag_that_is_not_known_counts_in_all_but_the_loss(crf):
    one = objective(crf=crf).eval()
    whole, part = one(batch(GUESSES, RIGHT, [])), one(batch(GUESSES[1:], RIGHT[1:], []))
    odd = one(batch(GUESSES, [["B-X", "I-X", "O", "B-NEW"], RIGHT[1]], []))
    close(odd.sum, part.sum, steps=32)  # six words of three tags
    assert int(odd.count) == 2
    assert int(odd.parts["words"]) == int(whole.parts["words"]) == 6
    none = one(batch([["O"]], [["B-NEW"]], []))
    assert (none.sum.item(), int(none.count), int(none.parts["right"])) == (0, 0, 0)


def test_a_sentence_that_breaks_the_rules_likewise():
    one = objective(crf=True, rules=True).eval()
    loss = one(batch([["O", "I-X"], ["O"]], [["O", "I-X"], ["O"]], []))
    assert int(loss.count) == 1
    assert int(loss.parts["right"]) == 2  # O or I-X of the first sentence, but not both
    assert loss.sum.isfinite()


def test_rules_need_a_chain_and_a_way_of_tagging():
    with pytest.raises(ValidationError, match="only a CRF looks at neighbouring tags"):
        Tags.Settings(kind="tags", rules=True)
    with pytest.raises(RecipeError, match="follow none of the schemes"):
        objective(scheme=None, crf=True, rules=True)


def test_training_counts_words_alone():
    loss = objective(crf=True).train()(batch(GUESSES, RIGHT, []))
    assert int(loss.count) == 6
    assert not loss.parts


def test_weights_are_the_head_s():
    assert {name for name, _ in objective(crf=True).named_parameters()} == {
        "head.scores.weight",
        "head.scores.bias",
        "head.sentence.transitions",
        "head.sentence.first",
        "head.sentence.last",
    }


def test_only_chosen_outputs_are_learnt():
    one, given = objective(first=2, last=4).train(), batch([["O"] * 6], [["B-X"] * 6], [])
    given["states"].requires_grad_()
    loss = one(given)
    loss.sum.backward()
    gradient = given["states"].grad[0].abs().sum(-1)
    assert (gradient > 0).tolist() == [False, False, True, True, True, False]
    assert int(loss.count) == 3


def test_ends_are_counted_from_the_end_of_each_sentence():
    one = objective(first=-2, last=-2).eval()
    loss = one(batch([["O", "B-X", "O"], ["B-X", "O"]], [["O", "B-X", "B-X"], ["B-Y", "O"]], []))
    assert (int(loss.count), int(loss.parts["words"]), int(loss.parts["right"])) == (2, 2, 1)
    short = objective(first=5).eval()(batch([["O"]], [["O"]], []))
    assert (short.sum.item(), int(short.count)) == (0, 0)


def test_only_chosen_outputs_are_in_the_figures():
    loss = objective(first=1).eval()(batch(GUESSES, [["B-NEW", *RIGHT[0][1:]], RIGHT[1]], SPANS))
    parts = {name: int(part) for name, part in loss.parts.items()}
    assert parts == {"right": 2, "words": 4, "spans": 1, "found": 1, "hits": 0}
    assert int(loss.count) == 4  # the tag that is not known does not count
    with pytest.raises(ValidationError, match="a CRF scores whole sentences"):
        Tags.Settings(kind="tags", crf=True, last=3)
