"""Figures of real systems: translations of FLORES-101 by sacreBLEU's own figures, speech by NIST's sclite."""

import itertools
import json
import re

import pytest

from seqlab.metrics import judge
from seqlab.metrics.edits import WER

SCLITE = {"hits": 1263, "substitutions": 131, "deletions": 12, "insertions": 26}
"""What sclite prints of csrnab.hyp: 12.0 % of 1,406 words, 38 of 51 sentences with errors."""


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
