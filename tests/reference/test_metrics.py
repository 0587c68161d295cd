"""Figures of texts against sacreBLEU, rouge-score, nltk and jiwer, on 1,000 random pairs of sentences each."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.metrics import Judged, judge
from seqlab.metrics.bleu import BLEU, ChrF
from seqlab.metrics.edits import WER
from seqlab.metrics.meteor import METEOR
from seqlab.metrics.porter import stem
from seqlab.metrics.resampling import RESAMPLES, SEED
from seqlab.metrics.rouge import ROUGE1

PAIRS = 1000
ROOTS = [
    "nation",
    "happy",
    "run",
    "hope",
    "relate",
    "general",
    "agree",
    "fly",
    "geolog",
    "die",
    "sky",
    "control",
    "the",
    "a",
]
ENDINGS = [
    "",
    "s",
    "ed",
    "ing",
    "ally",
    "ization",
    "fulness",
    "ies",
    "ied",
    "ly",
    "ment",
    "ion",
    "er",
    "ness",
    "y",
    "ll",
]
OTHERS = [".", ",", "don't", "3.5", "(so)", "Über", "東京", "e-mail", "&amp;", "THE"]


def sentence(draw):
    words = [
        draw.choice(ROOTS) + draw.choice(ENDINGS) if draw.random() < 0.7 else draw.choice(OTHERS) for _ in range(9)
    ]
    return " ".join(words[: draw.randint(0, 9)])


def changed(text, draw):
    """Another sentence with much of the first in it, in another order."""
    words = [word for word in text.split() if draw.random() < 0.8] + sentence(draw).split()[:3]
    if draw.random() < 0.3:
        draw.shuffle(words)
    return " ".join(words)


@pytest.fixture(scope="module")
def pairs():
    draw = random.Random(0)
    references = [sentence(draw) for _ in range(PAIRS)]
    return [(changed(text, draw), [text, changed(text, draw)]) for text in references]


def figures(name, pairs, references=1):
    """Of each line by itself."""
    return [
        judge([name], [text], [those[:references]])[name if isinstance(name, str) else name.kind].value
        for text, those in pairs
    ]


# ---------------------------------------------------------------------- sacreBLEU


def sacrebleu_of(name):
    from sacrebleu.metrics import BLEU, CHRF, TER

    return {"bleu": BLEU, "chrf": CHRF, "chrf++": lambda: CHRF(word_order=2), "ter": TER}[name]()


@pytest.mark.parametrize("references", [1, 2])
@pytest.mark.parametrize("name", ["bleu", "chrf", "chrf++", "ter"])
def test_translation_metrics_are_those_of_sacrebleu(name, references, pairs):
    theirs = sacrebleu_of(name)
    streams = [[those[number] for _, those in pairs] for number in range(references)]
    score = theirs.corpus_score([text for text, _ in pairs], streams)
    (ours,) = judge([name], [text for text, _ in pairs], [those[:references] for _, those in pairs]).values()
    assert ours.value == pytest.approx(score.score, rel=1e-12)
    assert ours.signature == f"{score.name}|{theirs.get_signature().format()}"
    lines = [theirs.corpus_score([text], [[one] for one in those[:references]]).score for text, those in pairs[:200]]
    assert figures(name, pairs[:200], references) == pytest.approx(lines, rel=1e-12)


def test_options_are_in_the_signatures(pairs):
    from sacrebleu.metrics import BLEU as Theirs

    lines, those = zip(*((text, those[:1]) for text, those in pairs), strict=True)
    lower, characters = BLEU.Settings(kind="bleu", lowercase=True), BLEU.Settings(kind="bleu", tokenize="char")
    for settings, theirs, field in (
        (lower, Theirs(lowercase=True), "case:lc"),
        (characters, Theirs(tokenize="char"), "tok:char"),
    ):
        found = judge([settings], lines, those)["bleu"]
        assert found.value == pytest.approx(theirs.corpus_score(lines, list(zip(*those, strict=True))).score, rel=1e-12)
        assert field in found.signature
    assert "case:lc" in judge([ChrF.Settings(kind="chrf", lowercase=True)], lines, those)["chrf"].signature
    assert "nrefs:var" in judge(["bleu"], ["a", "b"], [["a"], ["b", "c"]])["bleu"].signature


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_resamples_and_paired_test_are_those_of_sacrebleu(name, pairs):
    from sacrebleu.significance import PairedTest, estimate_ci

    draw = random.Random(1)
    references = [those[0] for _, those in pairs]
    systems = {"one": [text for text, _ in pairs], "two": [changed(text, draw) for text in references]}
    for amount in (0.0, 0.03, 0.3):  # systems that are close, and that are not
        systems["two"] = [changed(text, draw) if draw.random() < amount else text for text in systems["one"]]
        test = PairedTest(list(systems.items()), {name: sacrebleu_of(name)}, [references], test_type="bs")
        _, results = test()
        (baseline, other) = next(value for key, value in results.items() if key != "System")
        one, two = (
            Judged([name], system, [[text] for text in references], resamples=RESAMPLES, seed=SEED)
            for system in systems.values()
        )
        for ours, theirs in ((one, baseline), (two, other)):
            mean, half = estimate_ci(ours.resampled[name])
            assert (mean, half) == pytest.approx((theirs.mean, theirs.ci), rel=1e-5)  # theirs are sums in float32
        difference = two.against(one)[name]
        assert difference.value == pytest.approx(other.score - baseline.score)
        if amount:
            assert difference.p_value == pytest.approx(other.p_value, abs=2 / RESAMPLES)
        else:  # a system against itself: no difference is no evidence
            assert difference.p_value == 1.0
            assert other.p_value == 1 / (1 + RESAMPLES)


# ---------------------------------------------------------------------- rouge-score, nltk


@pytest.mark.parametrize("stemmed", [False, True])
@pytest.mark.parametrize("name", ["rouge-1", "rouge-2", "rouge-l"])
def test_rouge_is_that_of_rouge_score(name, stemmed, pairs):
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    kind = {"rouge-1": "rouge1", "rouge-2": "rouge2", "rouge-l": "rougeL"}[name]
    scorer = rouge_scorer.RougeScorer([kind], use_stemmer=stemmed)
    settings = ROUGE1.Settings(kind=name, stem=stemmed)
    for references in (1, 2):
        scores = [scorer.score_multi(those[:references], text)[kind] for text, those in pairs]
        assert figures(settings, pairs, references) == pytest.approx([100 * score.fmeasure for score in scores])
        whole = judge([settings], [text for text, _ in pairs], [those[:references] for _, those in pairs])[name]
        assert whole.value == pytest.approx(100 * np.mean([score.fmeasure for score in scores]))
        assert whole.parts["recall"] == pytest.approx(100 * np.mean([score.recall for score in scores]))
        assert whole.parts["precision"] == pytest.approx(100 * np.mean([score.precision for score in scores]))


class NoWordNet:
    def synsets(self, word):
        return []


def test_meteor_is_that_of_nltk_without_wordnet(pairs):
    nltk = pytest.importorskip("nltk.translate.meteor_score")
    words = METEOR(METEOR.Settings(kind="meteor"))._words
    for references in (1, 2):
        theirs = [
            nltk.meteor_score([words(one) for one in those[:references]], words(text), wordnet=NoWordNet())
            for text, those in pairs
        ]
        assert figures("meteor", pairs, references) == pytest.approx([100 * score for score in theirs])
    assert len({round(score, 6) for score in theirs}) > PAIRS / 4


@given(st.text(alphabet="abcdeilnosyt", max_size=12))
def test_stems_of_any_letters_are_those_of_nltk(word):
    porter = pytest.importorskip("nltk.stem.porter")
    assert stem(word) == porter.PorterStemmer().stem(word)


def test_stems_of_words_are_those_of_nltk():
    """Every root with one and two endings, and every word of the documentation that Python brings."""
    from pydoc_data.topics import topics

    porter = pytest.importorskip("nltk.stem.porter").PorterStemmer()
    words = {root + one + two for root in ROOTS for one in ENDINGS for two in ENDINGS}
    words |= {word.lower() for text in topics.values() for word in text.split()}
    assert len(words) > 10_000
    assert [word for word in sorted(words) if stem(word) != porter.stem(word)] == []


# ---------------------------------------------------------------------- jiwer


@pytest.mark.parametrize("name", ["wer", "cer"])
def test_error_rates_are_those_of_jiwer(name, pairs):
    import jiwer

    full = [(text, those) for text, those in pairs if those[0]]  # jiwer has other ideas about empty references
    hypotheses, references = [text for text, _ in full], [those[0] for _, those in full]
    found = judge([name], hypotheses, [[one] for one in references])[name]
    theirs = (jiwer.process_words if name == "wer" else jiwer.process_characters)(references, hypotheses)
    assert found.value == pytest.approx(100 * getattr(theirs, name))
    counts = ("hits", "substitutions", "deletions", "insertions")
    assert found.parts == {count: getattr(theirs, count) for count in counts}
    assert figures(name, full) == pytest.approx(
        [100 * getattr(jiwer, name)(one, text) for one, text in zip(references, hypotheses, strict=True)]
    )


def distance(one, other):
    """Levenshtein's table, as in a textbook."""
    row = list(range(len(other) + 1))
    for i, mine in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, theirs in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (mine != theirs))
    return row[-1]


def test_edits_are_the_fewest(pairs):
    metric = WER(WER.Settings(kind="wer"))
    for text, (reference, _) in pairs:
        hits, *edits = metric.statistics(text, [reference])
        assert sum(edits) == distance(reference.split(), text.split())
        assert hits + sum(edits[:2]) == len(reference.split())
