"""Tags that mark spans of words: B-ORG begins a span, I-ORG continues it, E-ORG ends it, S-ORG is a span of one word,
and O is outside.

Spans are defined by the rules of conlleval (Tjong Kim Sang & Buchholz 2000, https://aclanthology.org/W00-0726), which
interpret any sequence of tags, well formed or not, in three tagging schemes at once:

- IOB1: I- everywhere, B- only where a span follows another of the same type (Ramshaw & Marcus 1995);
- BIO: B- at the beginning of every span;
- IOBES: in addition E- at the end of every span, and S- for spans of one word.

The first conlleval supports E- and S- only in part, so their rules are those of its successors: a span ends after E-
and S-, and S- always begins one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OUTSIDE = "O"
SCHEMES = ("BIO", "IOB1", "IOBES")


class Span(NamedTuple):
    """A span of type `type` over the words `start` to `stop` − 1."""

    type: str
    start: int
    stop: int


def parts(tag: str) -> tuple[str, str]:
    """Split a tag: B-ORG → B, ORG; a tag without a type has the type ""."""
    sign, _, type = tag.partition("-")
    return sign, type


def mark_spans(tags: Iterable[str]) -> bool:
    """Whether the tags mark spans: all are B, I, E, S (with types) or O, and not all are O."""
    signs = {parts(tag)[0] for tag in tags if tag != OUTSIDE}
    return bool(signs) and signs <= set("BIES")


def begins(before: str, tag: str) -> bool:
    """Whether a span begins at a tag; `before` is the previous tag, O at the beginning of a sentence."""
    if tag == OUTSIDE:
        return False
    (sign_before, type_before), (sign, type) = parts(before), parts(tag)
    return sign in "BS" or sign_before in "OES" or type != type_before


def spans(tags: Sequence[str]) -> list[Span]:
    """Return all spans of a sentence. Every word not tagged O begins a span or continues the previous one."""
    found: list[Span] = []
    for place, (before, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False)):
        if begins(before, tag):
            found.append(Span(parts(tag)[1], place, place + 1))
        elif tag != OUTSIDE:
            found[-1] = found[-1]._replace(stop=place + 1)
    return found


def may_follow(scheme: str, before: str | None, tag: str | None) -> bool:
    """Whether a scheme allows `tag` after `before`; None stands for the beginning and the end of a sentence."""
    (sign_before, type_before), (sign, type) = parts(before or OUTSIDE), parts(tag or OUTSIDE)
    same = type == type_before
    if scheme == "IOBES":
        open_before, goes_on = sign_before in "BI", sign in "IE"
        return open_before == goes_on and (same or not goes_on)
    if sign not in "BIO":
        return False
    marked = {"BIO": "I", "IOB1": "B"}[scheme]  # the sign that needs a span of its type before it
    return sign != marked or (sign_before in "BI" and same)


def follows(scheme: str, tags: Sequence[str]) -> bool:
    """Whether the tags of a sentence follow a scheme."""
    return all(may_follow(scheme, before, tag) for before, tag in zip([None, *tags], [*tags, None], strict=True))


def scheme_of(sentences: Sequence[Sequence[str]]) -> str | None:
    """Return the first scheme that all sentences follow, or None."""
    return next((scheme for scheme in SCHEMES if all(follows(scheme, tags) for tags in sentences)), None)
