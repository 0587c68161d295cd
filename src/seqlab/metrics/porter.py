"""The stems of English words: runs, running → run.

Porter 1980, "An algorithm for suffix stripping", with nltk's changes, which the usual implementations of METEOR and
ROUGE use: a list of irregular words, short words in -ies and -ied, -y after consonants only,
-bli, -fulli and -logi in step 2, and vc as an ending like cvc.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

IRREGULAR = {
    **dict.fromkeys(("sky", "skies"), "sky"),
    **dict.fromkeys(("inning", "innings"), "inning"),
    **dict.fromkeys(("outing", "outings"), "outing"),
    **dict.fromkeys(("canning", "cannings"), "canning"),
    **{word: word for word in ("news", "howe", "proceed", "exceed", "succeed")},
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
}

Rules = dict[str, str]


def _rules(text: str) -> Rules:
    """`ational-ate ful-` → {"ational": "ate", "ful": ""}"""
    return dict(rule.split("-") for rule in text.split())


PLURALS = _rules("sses-ss ies-i ss-ss s-")

DOUBLE_ENDINGS = _rules("""
    ational-ate tional-tion enci-ence anci-ance izer-ize bli-ble alli-al entli-ent eli-e ousli-ous ization-ize ation-ate
    ator-ate alism-al iveness-ive fulness-ful ousness-ous aliti-al iviti-ive biliti-ble fulli-ful logi-log
""")

ENDINGS = _rules("icate-ic ative- alize-al iciti-ic ical-ic ful- ness-")

LAST_ENDINGS = _rules("""
    al- ance- ence- er- ic- able- ible- ant- ement- ment- ent- ion- ou- ism- ate- iti- ous- ive- ize-
""")


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Of a word in lower case; whatever is not a, e, i, o, u or y is a consonant."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _final_y, _double_ending, _ending, _last_ending, _final_e, _final_ll):
        word = step(word)
    return word


def _shape(word: str) -> str:
    """c for a consonant, v for a vowel: toy → cvc, syzygy → cvcvcv; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = shape[-1:] == "c" if letter == "y" else letter in "aeiou"
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """m of [C](VC)^m[V]: tree 0, trouble 1, oaten 2."""
    return _shape(word).count("vc")


def _short_end(word: str) -> bool:
    """The paper's *o: ends in consonant, vowel, consonant, the last no w, x or y (hop); or is vowel, consonant."""
    shape = _shape(word)
    return (shape.endswith("cvc") and word[-1] not in "wxy") or shape == "vc"


def _replaced(word: str, rules: Rules, holds: Callable[[str, str], bool]) -> str:
    """By the rule of the longest ending that the word has, if the rule holds for the rest and that ending."""
    for length in range(min(len(word), 7), 0, -1):
        ending = word[-length:]
        if ending in rules:
            rest = word[:-length]
            return rest + rules[ending] if holds(rest, ending) else word
    return word


def _plural(word: str) -> str:
    """Step 1a: caresses → caress, ponies → poni, ties → tie, cats → cat"""
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _replaced(word, PLURALS, lambda rest, ending: True)


def _past(word: str) -> str:
    """Step 1b: agreed → agree, plastered → plaster, motoring → motor, hopping → hop, filing → file, died → die"""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = next((word.removesuffix(ending) for ending in ("ed", "ing") if word.endswith(ending)), None)
    if rest is None or "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) > 1 and rest[-1] == rest[-2] and _shape(rest)[-1] == "c":
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _short_end(rest) else rest


def _final_y(word: str) -> str:
    """Step 1c: happy → happi, spy → spi; enjoy and by stay"""
    rest = word[:-1]
    return rest + "i" if word.endswith("y") and len(rest) > 1 and _shape(rest)[-1] == "c" else word


def _double_ending(word: str) -> str:
    """Step 2: relational → relate, digitizer → digitize, geologi → geolog"""
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _double_ending(word[:-2])
    # the l of -logi is counted with the rest, so that geo is long enough
    return _replaced(word, DOUBLE_ENDINGS, lambda rest, ending: _measure(rest + "l" if ending == "logi" else rest) > 0)


def _ending(word: str) -> str:
    """Step 3: triplicate → triplic, hopeful → hope"""
    return _replaced(word, ENDINGS, lambda rest, ending: _measure(rest) > 0)


def _last_ending(word: str) -> str:
    """Step 4: revival → reviv, adoption → adopt"""
    return _replaced(
        word, LAST_ENDINGS, lambda rest, ending: _measure(rest) > 1 and (ending != "ion" or rest[-1] in "st")
    )


def _final_e(word: str) -> str:
    """Step 5a: probate → probat, cease → ceas; rate stays"""
    rest = word.removesuffix("e")
    if rest == word:
        return word
    measure = _measure(rest)
    return rest if measure > 1 or (measure == 1 and not _short_end(rest)) else word


def _final_ll(word: str) -> str:
    """Step 5b: controll → control; roll stays"""
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
