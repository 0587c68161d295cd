"""Synthetic judgements as labelled trees: the meaning of a phrase follows exactly from its two parts.

0 very bad · 1 bad · 2 neutral · 3 good · 4 very good

(1 (2 not) (3 (2 film) (3 good)))        `not` turns x into 4 − x, `very` doubles the distance from the middle,
                                         and two adjacent phrases add up their meanings
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from seqlab.data.randomness import mix

MEANINGS = {
    0: ("awful", "dreadful", "hideous", "unbearable"),
    1: ("bad", "dull", "weak", "tedious", "clumsy", "stale"),
    2: ("film", "story", "actors", "music", "and", "the", "ending", "script", "camera", "plot"),
    3: ("good", "clever", "fresh", "funny", "warm", "lively"),
    4: ("superb", "brilliant", "wonderful", "stunning"),
}
WORDS = [(word, label) for label, words in MEANINGS.items() for word in words]
MODIFIERS: dict[str, Callable[[int], int]] = {"not": lambda x: 4 - x, "very": lambda x: _bounded(2 * x - 2)}
COUNT, MOST_WORDS = 6_000, 16


def phrases() -> Iterator[str]:
    """Yield distinct trees in brackets, always the same ones."""
    seen = set()
    for number in range(COUNT):
        turn = 0

        def draw(limit: int, number: int = number) -> int:
            nonlocal turn
            turn += 1
            return mix(number, turn) % limit

        text, _ = _phrase(1 + draw(MOST_WORDS), draw)
        if text not in seen:
            seen.add(text)
            yield text


def _phrase(words: int, draw: Callable[[int], int]) -> tuple[str, int]:
    """Return a tree with that many words, and its meaning."""
    if words == 1:
        word, label = WORDS[draw(len(WORDS))]
        return f"({label} {word})", label
    if draw(3) == 0:
        modifier = sorted(MODIFIERS)[draw(len(MODIFIERS))]
        inside, label = _phrase(words - 1, draw)
        said = MODIFIERS[modifier](label)
        return f"({said} (2 {modifier}) {inside})", said
    cut = 1 + draw(words - 1)
    (left, one), (right, other) = _phrase(cut, draw), _phrase(words - cut, draw)
    said = _bounded(one + other - 2)
    return f"({said} {left} {right})", said


def _bounded(label: int) -> int:
    return min(4, max(0, label))
