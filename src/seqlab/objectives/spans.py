"""Tags that mark spans of words: B-ORG begins one, I-ORG goes on with it, O is in none; E-ORG ends one, S-ORG is a
whole one.

What a span is, is said by the rules of conlleval (Tjong Kim Sang & Buchholz 2000, https://aclanthology.org/W00-0726),
which make sense of any sequence of tags, well formed or not, in three ways of tagging at once:

- IOB1: I- everywhere, B- only where a span follows another one of its type (Ramshaw & Marcus 1995);
- BIO: B- at every beginning;
- IOBES: also E- at every end, and S- for one word alone.

For E- and S-, which the first conlleval knew only in part, the rules are those of its successors: after E- and S- a
span is over, and S- always begins one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
SCHEMES = ("BIO", "IOB1", "IOBES")


class Span(NamedTuple):
    """The words `start` to `stop` − 1 are a `type`."""

    type: str
    start: int
    stop: int


def parts(tag: str) -> tuple[str, str]:
    """B-ORG → B, ORG; a tag without a type has the type ""."""
    sign, _, type = tag.partition("-")
    return sign, type


def mark_spans(tags: Iterable[str]) -> bool:
    """Whether tags are such ones: all of them B, I, E, S (with types) or O, and not O alone."""
    signs = {parts(tag)[0] for tag in tags if tag != OUTSIDE}
    return bool(signs) and signs <= set("BIES")


def begins(before: str, tag: str) -> bool:
    """Whether a span begins at a tag; `before` is the one before it, O at the beginning of a sentence."""
    if tag == OUTSIDE:
        return False
    (sign_before, type_before), (sign, type) = parts(before), parts(tag)
    return sign in "BS" or sign_before in "OES" or type != type_before


def spans(tags: Sequence[str]) -> list[Span]:
    """All spans of a sentence. Every word that is not O is in one: it begins one, or goes on with that before it."""
    found: list[Span] = []
    for place, (before, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False)):
        if begins(before, tag):
            found.append(Span(parts(tag)[1], place, place + 1))
        elif tag != OUTSIDE:
            found[-1] = found[-1]._replace(stop=place + 1)
    return found


def may_follow(scheme: str, before: str | None, tag: str | None) -> bool:
    """Whether a way of tagging has `tag` after `before`; None is what lies before and after a sentence."""
    (sign_before, type_before), (sign, type) = parts(before or OUTSIDE), parts(tag or OUTSIDE)
    same = type == type_before
    if scheme == "IOBES":
        open_before, goes_on = sign_before in "BI", sign in "IE"
        return open_before == goes_on and (same or not goes_on)
    if sign not in "BIO":
        return False
    marked = {"BIO": "I", "IOB1": "B"}[scheme]  # what needs a span of its type before it
    return sign != marked or (sign_before in "BI" and same)


def follows(scheme: str, tags: Sequence[str]) -> bool:
    """Whether a sentence is tagged in this way."""
    return all(may_follow(scheme, before, tag) for before, tag in zip([None, *tags], [*tags, None], strict=True))


def scheme_of(sentences: Sequence[Sequence[str]]) -> str | None:
    """The first way of tagging that all sentences follow; None if there is none."""
    return next((scheme for scheme in SCHEMES if all(follows(scheme, tags) for tags in sentences)), None)
