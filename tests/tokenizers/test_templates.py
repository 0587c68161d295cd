"""What a model reads of one text or two, against the `tokenizers` library as transformers calls it."""

from __future__ import annotations

import json
import random

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.errors import DataError, RecipeError
from seqlab.tokenizers import Encoding, Template, load_tokenizer
from seqlab.tokenizers.templates import BERT, PLAIN, ROBERTA, SEPARATED, Frame
from seqlab.tokenizers.word import WordTokenizer
from seqlab.tokenizers.wordpiece import WordPieceTokenizer

BERTS = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTAS = ["<s>", "<pad>", "</s>", "<unk>"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory, multilingual):
    """Ours and transformers' of the same folder."""
    folder = tmp_path_factory.mktemp("bert")
    learned = WordPieceTokenizer.fit(multilingual[::4], WordPieceTokenizer.Settings(vocab_size=3000, lowercase=True))
    (folder / "vocab.txt").write_text("\n".join([*BERTS, *learned.tokens[2:]]) + "\n", encoding="utf-8")
    return load_tokenizer(folder), transformers.BertTokenizer.from_pretrained(str(folder))


@pytest.fixture(scope="module")
def roberta(tmp_path_factory, multilingual):
    from seqlab.tokenizers.bpe import ByteBPETokenizer

    folder = tmp_path_factory.mktemp("roberta")
    learned = ByteBPETokenizer.fit(multilingual[::4], ByteBPETokenizer.Settings(vocab_size=1000))
    tokens = [*ROBERTAS, *learned.tokens[1:], "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in learned.merges), encoding="utf-8")
    return load_tokenizer(folder), transformers.RobertaTokenizer.from_pretrained(str(folder))


@pytest.fixture(params=["bert", "roberta"])
def both(request):
    return request.getfixturevalue(request.param)


def frame_of(tokenizer) -> Frame:
    return Frame(tokenizer.template, tokenizer.special)


def same(read, theirs, row, offsets):
    """Ids, segments, and whose text each token is of; offsets where theirs are those of the text."""
    assert read.ids == theirs["input_ids"][row]
    assert read.segments == theirs.encodings[row].type_ids
    assert read.sequences == theirs.sequence_ids(row)
    if offsets:
        assert read.offsets == [
            None if own is None else tuple(span)
            for own, span in zip(theirs.sequence_ids(row), theirs["offset_mapping"][row], strict=True)
        ]


def has_offsets(tokenizer):
    return (
        tokenizer.kind == "wordpiece"
    )  # RoBERTa's leave the blank before a word out; ours are what a token decodes to


def pairs_of(lines, count=60):
    chance = random.Random(1)
    return [("".join(chance.choices(lines, k=chance.randint(1, 4))), chance.choice(lines)) for _ in range(count)]


def test_whole_texts(both, multilingual):
    ours, theirs = both
    frame = frame_of(ours)
    for a, b in pairs_of(multilingual):
        one, two = ours.encode(a), ours.encode(b)
        for texts, encodings in (((a,), (one,)), ((a, b), (one, two))):
            expected = theirs(*([text] for text in texts), return_offsets_mapping=True)
            same(frame.whole(*encodings), expected, 0, has_offsets(ours))


@pytest.mark.parametrize(
    ("which", "name"), [("longest", "longest_first"), ("first", "only_first"), ("second", "only_second")]
)
def test_cut_texts(both, which, name, multilingual):
    ours, theirs = both
    frame = frame_of(ours)
    tried = 0
    for a, b in [*pairs_of(multilingual), *((b, a) for a, b in pairs_of(multilingual))]:
        one, two = ours.encode(a), ours.encode(b)
        for longest in (12, 17, 40, 41, 200):
            try:
                read = frame.cut(one, two, longest, which)
            except DataError:
                kept = two if which == "first" else one
                assert len(kept) >= longest - sum(token is not None for _, token in frame.pair)
                continue
            tried += 1
            assert len(read) == min(longest, len(frame.whole(one, two)))
            same(
                read,
                theirs([a], [b], truncation=name, max_length=longest, return_offsets_mapping=True),
                0,
                has_offsets(ours),
            )
            single = theirs([a], truncation=True, max_length=longest, return_offsets_mapping=True)
            same(frame.cut(one, None, longest), single, 0, has_offsets(ours))
    assert tried > 100


def test_windows(both, multilingual):
    """A question and a long document, and a document by itself."""
    ours, theirs = both
    frame, several = frame_of(ours), 0
    for document, question in pairs_of(multilingual):
        asked, read = ours.encode(question), ours.encode(document)
        for room, stride in ((9, 0), (9, 4), (30, 7), (30, 29), (400, 100)):
            longest = len(frame.whole(asked, Encoding([], []))) + room
            options = {"stride": stride, "return_overflowing_tokens": True, "return_offsets_mapping": True}
            expected = theirs([question], [document], truncation="only_second", max_length=longest, **options)
            found = frame.windows(asked, read, longest, stride)
            assert len(found) == len(expected["input_ids"])
            for row, window in enumerate(found):
                same(window, expected, row, has_offsets(ours))
            several += len(found) > 2
            turned = theirs([document], [question], truncation="only_first", max_length=longest, **options)
            for row, window in enumerate(frame.windows(read, asked, longest, stride, over="first")):
                same(window, turned, row, has_offsets(ours))
            alone = theirs([document], truncation=True, max_length=room + 2, **options)
            for row, window in enumerate(frame.windows(read, None, room + 2, stride)):
                same(window, alone, row, has_offsets(ours))
    assert several > 50


LEARNED = WordTokenizer.fit(["a b c d e f"], WordTokenizer.Settings(special=["class", "separator", "<turn>"]))


@given(st.text("abcdef ", max_size=60), st.integers(1, 12), st.data())
@settings(deadline=None, max_examples=200)
def test_windows_know_their_place(text, room, data):
    """Together they read all of the text; an answer is found in some window, and comes back as the same characters."""
    stride = data.draw(st.integers(0, room - 1))
    frame, encoding = frame_of(LEARNED), LEARNED.encode(text)
    windows = frame.windows(LEARNED.encode("a b"), encoding, room + 5, stride)
    read = [window.offsets[n] for window in windows for n in range(len(window)) if window.sequences[n] == 1]
    assert sorted(set(read)) == encoding.offsets
    assert len(read) == len(encoding) + stride * (len(windows) - 1)
    assert all(len(window) <= room + 5 for window in windows)
    if not encoding.ids:
        assert [window.span(1) for window in windows] == [None]
        return
    first = data.draw(st.integers(0, len(encoding) - 1))
    last = data.draw(st.integers(first, min(len(encoding) - 1, first + stride)))
    answer = encoding.offsets[first][0], encoding.offsets[last][1]
    places = [(window, window.tokens(1, answer)) for window in windows]
    assert any(place is not None for _, place in places) or last - first == stride
    for window, place in places:
        start, stop = window.span(1)
        assert (place is not None) == (start <= answer[0] and answer[1] <= stop)
        if place is not None:
            assert window.characters(*place) == answer
            assert [window.ids[n] for n in range(place[0], place[1] + 1)] == encoding.ids[first : last + 1]


def test_places_that_are_none():
    window = frame_of(LEARNED).whole(LEARNED.encode("a b"), LEARNED.encode("c d"))
    assert window.sequences == [None, 0, 0, None, 1, 1, None]
    assert window.segments == [0, 0, 0, 0, 1, 1, 1]
    assert window.characters(1, 2) == window.characters(4, 5) == (0, 3)
    assert window.characters(0, 1) is window.characters(2, 4) is window.characters(2, 1) is None
    assert window.tokens(0, (2, 3)) == (2, 2)
    assert window.tokens(0, (1, 2)) is window.tokens(0, (2, 4)) is window.tokens(0, (1, 1)) is None


def test_the_template_that_goes_with_the_roles(bert, roberta):
    def learnt(*special):
        return WordTokenizer.fit(["a"], WordTokenizer.Settings(special=list(special))).template

    assert (bert[0].template, roberta[0].template) == (BERT, ROBERTA)
    assert learnt("class", "separator", "begin") == BERT
    assert learnt("separator") == SEPARATED
    assert learnt() == learnt("mask") == PLAIN
    plain = WordTokenizer.fit(["a b"], WordTokenizer.Settings())
    assert frame_of(plain).whole(plain.encode("a b"), plain.encode("b")).ids == [2, 3, 0, 3, 0]


def test_a_template_of_ones_own():
    template = Template("<turn> A", "<turn>:1 A:2 <turn> B end")
    read = Frame(template, LEARNED.special).whole(LEARNED.encode("a"), LEARNED.encode("b"))
    turn = LEARNED.special.others["<turn>"]
    assert (read.ids, read.segments) == ([turn, 2, turn, 3, 0], [1, 2, 0, 0, 0])


@pytest.mark.parametrize(("single", "pair"), [("A", "A"), ("", "A B"), ("A A", "A B"), ("A", "B A"), ("B", "A B")])
def test_templates_need_their_texts(single, pair):
    with pytest.raises(RecipeError, match="once and in this order"):
        Template(single, pair)


def test_what_does_not_fit():
    with pytest.raises(RecipeError, match=r"B:x.*name:segment"):
        Template("A", "A B:x")
    with pytest.raises(RecipeError, match="no mask token"):
        Frame(Template("mask A", "A B"), LEARNED.special)
    with pytest.raises(RecipeError, match=r"<other>.*not a special token of this vocabulary.*<turn>"):
        Frame(Template("<other> A", "A B"), LEARNED.special)
    frame, text = frame_of(LEARNED), LEARNED.encode("a b c d")
    with pytest.raises(DataError, match="3 tokens leave no room for a text: the template has 3"):
        frame.cut(text, text, 3)
    with pytest.raises(DataError, match="a text of 4 tokens leaves no room for the other in 7"):
        frame.windows(text, text, 7, 0)
    with pytest.raises(
        DataError, match="room for 2 tokens of the text cannot overlap by 2; set the stride to at most 1"
    ):
        frame.windows(text, None, 4, 2)
