"""Spans and F1 against seqeval, another reading of conlleval's rules.

In its usual mode it makes the same spans as we do of any tags, well formed or not. It differs from

- the first conlleval, the Perl script, where there are E- and S-: that one knows no S- at all, so that S-X S-X is one
  span for it and two for seqeval and for us;
- its own strict mode, which drops every span that breaks the rules of a scheme: the same for well-formed tags alone.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data.randomness import Key
from seqlab.data.records import Record
from seqlab.models.encoder import Encoded, Encoder
from seqlab.objectives.spans import follows, spans
from seqlab.objectives.tags import Tags, TagScores
from seqlab.tasks.tagging import Known, Sentence, TaggedSentences, Tagging
from seqlab.tokenizers.word import WordTokenizer

metrics = pytest.importorskip("seqeval.metrics")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")

TAGS = {signs: ["O", *(f"{sign}-{type}" for sign in signs for type in ("X", "Y", "a-b"))] for signs in ("BI", "BIES")}
SCHEMES = {"BIO": ("BI", "IOB2"), "IOB1": ("BI", "IOB1"), "IOBES": ("BIES", "IOBES")}


def sentences(signs):
    return st.lists(st.sampled_from(TAGS[signs]), min_size=1, max_size=10)


@given(st.sampled_from(list(TAGS)).flatmap(sentences))
def test_spans_of_any_tags(tags):
    theirs = metrics.sequence_labeling.get_entities(tags)
    assert [(span.type, span.start, span.stop - 1) for span in spans(tags)] == theirs


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_strict_spans_are_the_same_where_tags_are_well_formed(scheme, data):
    from seqeval import scheme as theirs

    signs, name = SCHEMES[scheme]
    tags = data.draw(sentences(signs))
    (strict,) = theirs.Entities([tags], getattr(theirs, name)).entities
    ours = [(span.type, span.start, span.stop) for span in spans(tags)]
    assert follows(scheme, tags) == (ours == [(one.tag, one.start, one.end) for one in strict])


def test_one_word_spans_side_by_side():
    assert metrics.sequence_labeling.get_entities(["S-X", "S-X"]) == [("X", 0, 0), ("X", 1, 1)]
    assert [tuple(span) for span in spans(["S-X", "S-X"])] == [("X", 0, 1), ("X", 1, 2)]


class Guesses(Encoder):
    """Answers what it was told to, whatever it reads."""

    def __init__(self, guesses, names):
        super().__init__()
        self.guesses, self.names, self.width = guesses, names, len(names)

    def forward(self, batch):
        states = torch.zeros(*batch["mask"].shape, self.width)
        for row, tags in enumerate(self.guesses):
            for place, tag in enumerate(tags):
                states[row, place, self.names.index(tag)] = 1.0
        return Encoded(states, batch["mask"])


@given(
    st.sampled_from(list(TAGS)).flatmap(
        lambda signs: st.lists(st.lists(st.tuples(*[st.sampled_from(TAGS[signs])] * 2), min_size=1), min_size=1)
    )
)
def test_precision_recall_and_f1(pairs):
    gold, guesses = ([[pair[side] for pair in row] for row in pairs] for side in (0, 1))
    names = sorted({tag for row in [*gold, *guesses, ["B-X"]] for tag in row})
    tokenizer = WordTokenizer.fit(["word"], WordTokenizer.Settings(split="whitespace"))
    given_sentences = [Sentence(["word"] * len(tags), tags, Record({}, "made", 1)) for tags in gold]
    known = Known(names, None, Known.learnt(given_sentences).alphabet)
    split = TaggedSentences(given_sentences, tokenizer, known)
    head = TagScores(len(names), names)
    torch.nn.init.eye_(head.weight)
    torch.nn.init.zeros_(head.bias)
    loss = Tags(Tags.Settings(kind="tags"), Guesses(guesses, names), head).eval()(
        split.batch(np.arange(len(gold)), Key(0, 0))
    )
    totals = {"sum": loss.sum.item(), "count": loss.count.item(), **{k: v.item() for k, v in loss.parts.items()}}
    figures = Tagging(Tagging.Settings(kind="tagging"), tokenizer, known).metrics(totals, split)
    for name, theirs in (("precision", "precision_score"), ("recall", "recall_score"), ("f1", "f1_score")):
        assert figures[name] == pytest.approx(getattr(metrics, theirs)(gold, guesses)), name
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(gold, guesses))
