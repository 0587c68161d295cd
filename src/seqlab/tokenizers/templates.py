"""Builds model inputs from one or two texts: adds special tokens, and truncates or makes overlapping windows.

A template is a line of words. A and B are the texts, every other word is the role of a special token (or the name of
one without a role), and `:1` after a word is its segment, by default 0:

    class A separator                    [CLS] A [SEP]
    class A separator B:1 separator:1    [CLS] A [SEP] B [SEP]

>>> frame = Frame(tokenizer.template, tokenizer.special)
>>> for window in frame.windows(tokenizer.encode(question), tokenizer.encode(document), longest=384, stride=128):
...     window.ids, window.segments, window.offsets
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from seqlab.errors import DataError, RecipeError
from seqlab.tokenizers.encoding import Encoding, Span
from seqlab.tokenizers.special import ROLES, Special

TEXTS = ("A", "B")
Which = Literal["first", "second"]


class Slot(NamedTuple):
    """One slot of a template: a text or a special token."""

    name: str
    segment: int


@dataclass(frozen=True)
class Template:
    """The special tokens around one text, and around two."""

    single: str
    pair: str

    def __post_init__(self) -> None:
        for line, texts in ((self.single, TEXTS[:1]), (self.pair, TEXTS)):
            if tuple(name for name, _ in slots(line) if name in TEXTS) != texts:
                what = f"the template '{line}' must contain {' and '.join(texts)}, once and in this order"
                raise RecipeError(what, hint="for example, 'class A separator B:1 separator:1' for two texts")


def slots(line: str) -> list[Slot]:
    """Parse the slots of a template."""
    found = []
    for word in line.split():
        name, segment = word.rsplit(":", 1) if ":" in word else (word, "0")
        if not name or not segment.isdecimal():
            raise RecipeError(f"'{word}' in a template is neither a name nor name:segment", hint="for example, B:1")
        found.append(Slot(name, int(segment)))
    return found


BERT = Template("class A separator", "class A separator B:1 separator:1")
ROBERTA = Template("class A separator", "class A separator separator B separator")
SEPARATED = Template("A end", "A separator B end")
PLAIN = Template("A end", "A end B end")


def usual_template(special: Special) -> Template:
    """Return the usual template for the roles of a vocabulary: BERT's, RoBERTa's, or an end after each text."""
    if "class" in special and "separator" in special:
        return ROBERTA if special.names[special["class"]] == "<s>" else BERT
    return SEPARATED if "separator" in special else PLAIN


@dataclass(frozen=True)
class ModelInput:
    """What a model reads, token by token."""

    ids: list[int]
    segments: list[int]
    sequences: list[int | None]
    """The text that each token belongs to: 0 the first, 1 the second, None for special tokens."""
    offsets: list[Span | None]
    """The characters of that text that each token stands for."""

    def __len__(self) -> int:
        return len(self.ids)

    def span(self, sequence: int) -> Span | None:
        """Return the characters of a text that this input covers; None if it covers none."""
        read = [offset for _, offset in self._of(sequence)]
        return (read[0][0], read[-1][1]) if read else None

    def characters(self, first: int, last: int) -> Span | None:
        """Return the characters from one token to another, inclusive; None if they are not in the same text."""
        start, stop = self.offsets[first], self.offsets[last]
        if start is None or stop is None or self.sequences[first] != self.sequences[last] or first > last:
            return None
        return start[0], stop[1]

    def tokens(self, sequence: int, span: Span) -> tuple[int, int] | None:
        """Return the first and the last token of these characters of a text; None if not all of them are covered."""
        read = self.span(sequence)
        if read is None or span[0] >= span[1] or span[0] < read[0] or span[1] > read[1]:
            return None
        inside = [index for index, (start, stop) in self._of(sequence) if start < span[1] and stop > span[0]]
        return (inside[0], inside[-1]) if inside else None

    def _of(self, sequence: int) -> Iterator[tuple[int, Span]]:
        for index, (own, offset) in enumerate(zip(self.sequences, self.offsets, strict=True)):
            if own == sequence and offset is not None:
                yield index, offset


class Frame:
    """A template with the ids of a vocabulary: builds a model input from one or two encodings."""

    def __init__(self, template: Template, special: Special) -> None:
        self.single, self.pair = (_resolved(line, special) for line in (template.single, template.pair))

    def whole(self, first: Encoding, second: Encoding | None = None) -> ModelInput:
        texts = [first] if second is None else [first, second]
        ids: list[int] = []
        segments: list[int] = []
        sequences: list[int | None] = []
        offsets: list[Span | None] = []
        for (name, segment), token in self.single if second is None else self.pair:
            sequence = None if token is not None else TEXTS.index(name)
            own = Encoding([cast(int, token)], []) if sequence is None else texts[sequence]
            ids += own.ids
            segments += [segment] * len(own)
            sequences += [sequence] * len(own)
            offsets += [None] if sequence is None else own.offsets
        return ModelInput(ids, segments, sequences, offsets)

    def cut(
        self, first: Encoding, second: Encoding | None, longest: int, which: Which | Literal["longest"] = "longest"
    ) -> ModelInput:
        """Truncate to at most `longest` tokens: cut the end of one text, or of whichever is longer, token by token."""
        room = self._room(longest, second)
        if second is None:
            return self.whole(first.part(0, room))
        if which == "longest":
            one, other = _longest_first(len(first), len(second), room)
            return self.whole(first.part(0, one), second.part(0, other))
        if len(first) + len(second) <= room:
            return self.whole(first, second)
        if which == "first":
            return self.whole(first.part(0, self._left(room, second, longest)), second)
        return self.whole(first, second.part(0, self._left(room, first, longest)))

    def windows(
        self, first: Encoding, second: Encoding | None, longest: int, stride: int, over: Which = "second"
    ) -> list[ModelInput]:
        """Return windows that together cover a long text; of two texts, the one named by `over`.

        Consecutive windows overlap by `stride` tokens, and the last one may be shorter. Offsets are into the whole
        text, so that `characters` of any window refers to it.
        """
        room = self._room(longest, second)
        if second is None:
            return [self.whole(part) for part in _parts(first, room, stride)]
        if not 0 <= stride < room:
            raise _no_stride(room, stride)
        if len(first) + len(second) <= room:
            return [self.whole(first, second)]
        if over == "first":
            return [self.whole(part, second) for part in _parts(first, self._left(room, second, longest), stride)]
        return [self.whole(first, part) for part in _parts(second, self._left(room, first, longest), stride)]

    @property
    def specials(self) -> int:
        """Number of special tokens around two texts."""
        return sum(token is not None for _, token in self.pair)

    def _room(self, longest: int, second: Encoding | None) -> int:
        """Return the number of tokens left for texts."""
        own = self.specials if second is not None else sum(token is not None for _, token in self.single)
        if longest <= own:
            what = f"{longest} tokens leave no room for a text: the template has {own} special tokens"
            raise DataError(what, hint="allow more tokens")
        return longest - own

    def _left(self, room: int, kept: Encoding, longest: int) -> int:
        """Return the number of tokens left for the text that is cut, if the other is kept whole."""
        if len(kept) >= room:
            what = f"a text of {len(kept):,} tokens leaves no room for the other in {longest:,}"
            raise DataError(what, hint="shorten it, or allow more tokens")
        return room - len(kept)


def _resolved(line: str, special: Special) -> list[tuple[Slot, int | None]]:
    return [(slot, None if slot.name in TEXTS else _token(slot.name, special)) for slot in slots(line)]


def _token(name: str, special: Special) -> int:
    if name in ROLES:
        return special.need(name)
    if name not in special.others:
        known = ", ".join([*special, *special.others][:12])
        raise RecipeError(
            f"'{name}' in a template is not a special token of this vocabulary", hint=f"use one of {known}"
        )
    return special.others[name]


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of each text are kept; if both are cut to half, an odd token goes to the longer one."""
    short = min(first, second, room // 2)
    long = min(max(first, second), room - short)
    return (short, long) if first <= second else (long, short)


def _parts(text: Encoding, size: int, stride: int) -> Sequence[Encoding]:
    """Split into parts of `size` tokens that overlap by `stride`."""
    if not 0 <= stride < size:
        raise _no_stride(size, stride)
    last = max(0, len(text) - size)  # the latest start of the last part
    step = size - stride
    return [text.part(start, start + size) for start in range(0, last + step, step)]


def _no_stride(size: int, stride: int) -> DataError:
    what = f"windows with room for {size} tokens of the text cannot overlap by {stride}"
    return DataError(what, hint=f"set the stride to at most {size - 1}")
