"""The spans of conlleval, by hand: the rules fit on a page. (tests/reference/test_seqeval.py has those of others.)"""

from hypothesis import given
from hypothesis import strategies as st

from seqlab.objectives.spans import follows, mark_spans, may_follow, scheme_of, spans


def found(text):
    return [f"{span.type}:{span.start}-{span.stop}" for span in spans(text.split())]


def test_bio():
    assert found("B-PER I-PER O B-LOC") == ["PER:0-2", "LOC:3-4"]
    assert found("B-PER B-PER I-PER") == ["PER:0-1", "PER:1-3"]
    assert found("O O") == []


def test_iob1():
    assert found("I-PER I-PER O I-LOC") == ["PER:0-2", "LOC:3-4"]
    assert found("I-PER B-PER I-PER") == ["PER:0-1", "PER:1-3"]


def test_iobes():
    assert found("S-PER B-LOC I-LOC E-LOC S-LOC") == ["PER:0-1", "LOC:1-4", "LOC:4-5"]
    assert found("B-LOC E-LOC E-LOC") == ["LOC:0-2", "LOC:2-3"]
    assert found("E-LOC I-LOC") == ["LOC:0-1", "LOC:1-2"]
    assert found("S-LOC I-LOC O E-LOC") == ["LOC:0-1", "LOC:1-2", "LOC:3-4"]


def test_what_breaks_the_rules_has_spans_all_the_same():
    assert found("I-PER I-LOC") == ["PER:0-1", "LOC:1-2"]
    assert found("B-PER I-LOC I-LOC") == ["PER:0-1", "LOC:1-3"]
    assert found("O I-LOC B-LOC") == ["LOC:1-2", "LOC:2-3"]


def test_types_may_have_hyphens_or_be_missing():
    assert found("B-a-b I-a-b I-a") == ["a-b:0-2", "a:2-3"]
    assert found("B I O I") == [":0-2", ":3-4"]


CHUNK_START = {"BB", "IB", "OB", "OI", "EE", "EI", "OE"}
CHUNK_END = {"BB", "BO", "IB", "IO", "EE", "EI", "EO"}


def conlleval(gold, guess):
    """correctChunk, foundGuessed and foundCorrect, walking both sequences at once as the Perl script does."""
    correct = guessed = hits = 0
    inside, last = False, (("O", ""), ("O", ""))
    for pair in [*zip(gold, guess, strict=True), ("O", "O")]:
        now = tuple(tuple(tag.split("-", 1)) if "-" in tag else (tag, "") for tag in pair)
        ends, starts = [], []
        for (before, type_before), (tag, type) in zip(last, now, strict=True):
            ends.append(before + tag in CHUNK_END or (before != "O" and type_before != type))
            starts.append(before + tag in CHUNK_START or (tag != "O" and type_before != type))
        if inside:
            if all(ends) and last[0][1] == last[1][1]:
                inside, hits = False, hits + 1
            elif ends[0] != ends[1] or now[0][1] != now[1][1]:
                inside = False
        if all(starts) and now[0][1] == now[1][1]:
            inside = True
        correct, guessed, last = correct + starts[0], guessed + starts[1], now
    return hits, guessed, correct


TAGS = st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])


@given(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=12))
def test_the_script_counts_the_same(pairs):
    """Its walk over B, I and O, which looks nothing like a comparison of sets of spans."""
    gold, guess = ([pair[side] for pair in pairs] for side in (0, 1))
    ours = [set(spans(tags)) for tags in (gold, guess)]
    assert conlleval(gold, guess) == (len(ours[0] & ours[1]), len(ours[1]), len(ours[0]))


ANY = st.sampled_from(["O", *(f"{sign}-{type}" for sign in "BIES" for type in "XY")])


@given(st.lists(ANY, max_size=12))
def test_every_word_that_is_not_outside_is_in_one_span(tags):
    inside = [place for span in spans(tags) for place in range(span.start, span.stop)]
    assert inside == [place for place, tag in enumerate(tags) if tag != "O"]


def test_which_tags_mark_spans():
    assert mark_spans(["O", "B-PER", "I-PER"])
    assert mark_spans(["B", "I", "O"])
    assert not mark_spans(["NN", "VB", "O"])
    assert not mark_spans(["O"])
    assert not mark_spans(["B-PER", "-LRB-"])


def test_rules():
    assert may_follow("BIO", "B-X", "I-X")
    assert not may_follow("BIO", "O", "I-X")
    assert not may_follow("BIO", None, "I-X")
    assert not may_follow("BIO", "B-Y", "I-X")
    assert may_follow("IOB1", None, "I-X")
    assert may_follow("IOB1", "I-X", "B-X")
    assert not may_follow("IOB1", "I-Y", "B-X")
    assert may_follow("IOBES", "B-X", "E-X")
    assert may_follow("IOBES", "E-X", "S-X")
    for before, tag in (("B-X", None), ("B-X", "O"), ("S-X", "I-X"), (None, "E-X"), ("B-X", "E-Y"), ("I-X", "B-X")):
        assert not may_follow("IOBES", before, tag)


def test_the_way_of_tagging_is_found():
    assert scheme_of([["B-X", "I-X", "O"], ["B-X", "B-X"]]) == "BIO"
    assert scheme_of([["B-X", "I-X", "O"], ["I-X", "B-X"]]) is None
    assert scheme_of([["I-X", "I-X", "O"], ["I-X", "B-X"]]) == "IOB1"
    assert scheme_of([["S-X", "B-X", "E-X"], ["O"]]) == "IOBES"


def written(found, length, scheme):
    """Spans as tags in one of the three ways."""
    tags = ["O"] * length
    for before, span in zip([None, *found], found, strict=False):
        close = before is not None and before.stop == span.start and before.type == span.type
        for place in range(span.start, span.stop):
            sign = "I" if place > span.start or (scheme == "IOB1" and not close) else "B"
            if scheme == "IOBES" and place == span.stop - 1:
                sign = "E" if sign == "I" else "S"
            tags[place] = f"{sign}-{span.type}"
    return tags


@given(st.lists(TAGS, max_size=12), st.sampled_from(["BIO", "IOB1", "IOBES"]))
def test_the_same_spans_in_all_three_ways(tags, scheme):
    again = written(spans(tags), len(tags), scheme)
    assert spans(again) == spans(tags)
    assert follows(scheme, again)
