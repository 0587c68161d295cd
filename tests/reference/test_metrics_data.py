"""Figures of real systems: translations of FLORES-101 by sacreBLEU's own figures, speech by NIST's sclite."""

import itertools
import json
import math
import re
from collections import defaultdict

import pytest

from seqlab.metrics import judge
from seqlab.metrics.edits import WER

SCLITE = {"hits": 1263, "substitutions": 131, "deletions": 12, "insertions": 26}
"""What sclite prints of csrnab.hyp: 12.0 % of 1,406 words, 38 of 51 sentences with errors."""

SPEAKERS = {"2347-a": (250, 128), "2347-b": (637, 278), "3129-a": (188, 168), "3129-b": (704, 363)}
"""Words and errors by sclite of lvc_hyp.ctm: 51.2, 43.6, 89.4 and 51.6 %, 52.7 % of all."""


def lines(path):
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


@pytest.mark.parametrize("system", ["bergamot-tiny", "google", "microsoft"])
def test_translations_of_flores(shared_data, system):
    folder = shared_data("mt_eval_flores")
    expected = json.loads((folder / "expected_scores.json").read_text(encoding="utf-8"))
    scores = expected[system]
    hypotheses, references = lines(folder / f"flores-test.{system}.en"), lines(folder / "flores-test.en")
    found = judge(["bleu", "chrf", "ter"], hypotheses, [[one] for one in references])
    assert [one.lines for one in found.values()] == [1012] * 3
    assert found["bleu"].value == pytest.approx(scores["bleu"])
    assert found["chrf"].value == pytest.approx(scores["chrf2"])
    assert found["ter"].value == pytest.approx(scores["ter"])
    assert found["bleu"].signature.split("|version")[0] == "BLEU|" + scores["sig"].split("|version")[0]
    parts = found["bleu"].parts
    assert [parts[f"precision_{order}"] for order in (1, 2, 3, 4)] == pytest.approx(scores["precisions"])
    assert [parts[key] for key in ("words", "reference_words", "brevity_penalty")] == [
        scores[key] for key in ("sys_len", "ref_len", "bp")
    ]


def spoken(path):
    """`words (id)` a line → id: words"""
    found = (re.fullmatch(r"(.*)\((\S+)\)\s*", line) for line in lines(path))
    return {match[2].lower(): match[1].strip() for match in found}


def readings(text):
    """`a { b / @ } c` → a b c, a c"""
    pieces = re.split(r"\{(.*?)\}", text)
    choices = [[piece] if number % 2 == 0 else piece.split(" / ") for number, piece in enumerate(pieces)]
    return [" ".join(" ".join(one).replace("@", " ").split()) for one in itertools.product(*choices)]


def test_speech_of_sclite(shared_data):
    folder = shared_data("wer_sctk")
    hypotheses, references = (spoken(folder / f"csrnab.{part}") for part in ("hyp", "ref"))
    assert hypotheses.keys() == references.keys()
    settings = WER.Settings(kind="wer", lowercase=True)
    found = judge([settings], [hypotheses[key] for key in references], [readings(text) for text in references.values()])
    parts = found["wer"].parts
    words, edits = (sum(parts[key] for key in keys) for keys in (list(SCLITE)[:3], list(SCLITE)[1:]))
    assert (words, edits) == (1406, 169) == (sum(list(SCLITE.values())[:3]), sum(list(SCLITE.values())[1:]))
    assert found["wer"].value == pytest.approx(100 * 169 / 1406)
    # Of several ways with 169 edits, sclite, for which a substitution costs more, takes one with one hit more.
    assert all(abs(parts[key] - SCLITE[key]) <= 2 for key in SCLITE)
    wrong = sum(
        judge([settings], [hypotheses[key]], [readings(text)])["wer"].value > 0 for key, text in references.items()
    )
    assert wrong == 38


def bare(word):
    """A word without its tags: a\\;s;tag → a;s"""
    return re.sub(r"(?<!\\\\);.*", "", word).replace("\\;", ";")


def timed_references(path):
    """speaker: (end, text) of each segment"""
    found = defaultdict(list)
    for _, _, speaker, _, end, *words in (line.split() for line in lines(path) if not line.startswith(";;")):
        found[speaker].append((float(end), " ".join(map(bare, words[bool(words) and words[0].startswith("<") :]))))
    return found


def timed_words(path):
    """speaker: (middle, text) of each word; <ALT_BEGIN> a <ALT> b <ALT_END> is one, { a / b }"""
    found, signs = defaultdict(list), {"<ALT_BEGIN>": "{", "<ALT>": "/", "<ALT_END>": "}"}
    group, times = [], []
    for file, channel, start, length, word in map(str.split, lines(path)):
        group.append(signs.get(word) or bare(word))
        if word not in signs:
            times += [float(start), float(start) + float(length)]
        if "{" not in group or "}" in group:
            found[f"{file}-{channel.lower()}"].append(((min(times) + max(times)) / 2, " ".join(group)))
            group, times = [], []
    return found


def test_timed_speech_of_sclite(shared_data):
    """A word belongs to the first segment that does not end before its middle, or to the last."""
    folder = shared_data("wer_sctk")
    references, hypotheses = timed_references(folder / "lvc_ref.stm"), timed_words(folder / "lvc_hyp.ctm")
    metric = WER(WER.Settings(kind="wer", lowercase=True))
    for speaker, (words, errors) in SPEAKERS.items():
        *ends, _ = (end for end, _ in references[speaker])
        sums = 0
        for start, end, (_, text) in zip([-1, *ends], [*ends, math.inf], references[speaker], strict=True):
            heard = readings(" ".join(word for middle, word in hypotheses[speaker] if start < middle <= end))
            sums += min((metric.statistics(one, readings(text)) for one in heard), key=metric.figure)
        assert sum(sums[1:]) == errors, speaker
        assert words <= sum(sums[:3]) <= words + 3  # of readings with as many errors we take a longer one
