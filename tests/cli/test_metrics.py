"""`seqlab metrics`, as a person uses it."""

import gzip
import json
import subprocess
import sys

import pytest

REFERENCE = "The cat sat on the mat.\nShe ran to the old house.\n\nNobody knew the way back.\n"
MINE = "The cat sat on a mat.\nShe ran to the old houses.\n\nNobody knew the way back.\n"
OTHER = "A cat is on a mat.\nshe run old house\n\nNobody knows a way.\n"
NAMES = ["bleu", "chrf", "chrf++", "ter", "rouge-1", "rouge-2", "rouge-l", "meteor", "wer", "cer", "exact"]


@pytest.fixture
def texts(here):
    for name, text in (("ref.txt", REFERENCE), ("mine.txt", MINE), ("other.txt", OTHER)):
        (here / name).write_text(text, encoding="utf-8")
    (here / "empty.txt").write_text("")
    (here / "short.txt").write_text("one\ntwo\n")
    (here / "latin.txt").write_bytes(b"one\ncaf\xe9\n")
    (here / "mine.txt.gz").write_bytes(gzip.compress(MINE.replace("\n", "\r\n").encode()))
    (here / "broken.txt.gz").write_bytes(b"no gz at all")
    (here / "folder").mkdir()
    return here


def test_table(seqlab, texts):
    said = seqlab("metrics", "mine.txt", "ref.txt", "--metric", ",".join(NAMES))
    assert said.code == 0, said.err
    assert said.err == ""
    for name in NAMES:
        assert f"\n {name} " in said.out
    assert "95 % interval" in said.out
    assert "4 lines; signatures:" in said.out
    assert "BLEU|nrefs:1|case:mixed|" in said.out
    assert "interval" not in seqlab("metrics", "mine.txt", "ref.txt", "--resamples", "0").out


def test_json_and_other_ways_to_give_the_same_text(seqlab, texts):
    command = ["metrics", "mine.txt", "ref.txt", "--metric", "bleu, wer,exact", "--json"]
    found = json.loads(seqlab(*command).out)
    assert found["lines"] == 4
    assert list(found["metrics"]) == ["bleu", "wer", "exact"]
    assert found["metrics"]["wer"]["parts"] == {"hits": 15, "substitutions": 2, "deletions": 0, "insertions": 0}
    assert found["metrics"]["exact"]["value"] == 50
    assert found["metrics"]["bleu"]["better"] == "higher"
    assert found["metrics"]["wer"]["better"] == "lower"
    low, high = found["metrics"]["bleu"]["interval"]
    assert low <= found["metrics"]["bleu"]["value"] <= high
    for hypothesis, stdin in (("mine.txt.gz", ""), ("-", MINE), ("-", MINE.removesuffix("\n"))):
        same = json.loads(seqlab("metrics", hypothesis, *command[2:], stdin=stdin).out)
        assert same["metrics"] == found["metrics"]
    few = [json.loads(seqlab(*command, "--resamples", "3", "--seed", seed).out)["metrics"] for seed in (1, 1, 2)]
    assert few[0] == few[1] != few[2]


def test_against_other_systems(seqlab, texts):
    command = [
        "metrics",
        "mine.txt",
        "ref.txt",
        "--metric",
        "chrf,wer",
        "--against",
        "other.txt",
        "--against",
        "mine.txt",
    ]
    found = json.loads(seqlab(*command, "--json").out)
    other, same = found["against"]
    assert other["file"] == "other.txt"
    for name in ("chrf", "wer"):
        difference = other["differences"][name]
        assert difference["value"] == pytest.approx(found["metrics"][name]["value"] - other["metrics"][name]["value"])
        assert difference["interval"][0] <= difference["value"] <= difference["interval"][1]
        assert difference["better_in"] > 0.9
        assert same["differences"][name]["p_value"] == 1
    table = seqlab(*command).out
    assert "difference" in table
    assert "mine.txt better in" in table


def test_options_and_several_references(seqlab, texts):
    (texts / "capitals.txt").write_text(MINE.upper(), encoding="utf-8")
    command = ["metrics", "capitals.txt", "ref.txt", "mine.txt", "--metric", "bleu,wer,rouge", "--json"]
    plain, lower = (json.loads(seqlab(*command, *more).out)["metrics"] for more in ([], ["--lowercase", "--stem"]))
    assert lower["wer"]["value"] == 0 < plain["wer"]["value"]
    assert lower["bleu"]["value"] == pytest.approx(100)
    assert "nrefs:2|case:lc" in lower["bleu"]["signature"]
    assert "stem:porter" in lower["rouge-l"]["signature"]
    zh = json.loads(seqlab("metrics", "mine.txt", "ref.txt", "--tokenize", "zh", "--json").out)
    assert "tok:zh" in zh["metrics"]["bleu"]["signature"]


CASES = {
    "other number of lines": (["mine.txt", "short.txt"], ["mine.txt has 4 lines and short.txt has 2 lines"]),
    "one of several": (["mine.txt", "ref.txt", "short.txt"], ["mine.txt has 4", "short.txt has 2"]),
    "other system": (["mine.txt", "ref.txt", "--against", "short.txt"], ["mine.txt has 4", "short.txt has 2"]),
    "empty hypotheses": (["empty.txt", "ref.txt"], ["empty.txt: has no lines"]),
    "empty references": (["mine.txt", "empty.txt"], ["empty.txt: has no lines"]),
    "nothing on standard input": (["-", "ref.txt"], ["standard input: has no lines"]),
    "standard input twice": (["-", "-"], ["standard input (-)"]),
    "not UTF-8": (["latin.txt", "short.txt"], ["latin.txt, line 2", "not UTF-8"]),
    "damaged": (["broken.txt.gz", "ref.txt"], ["broken.txt.gz", "damaged .gz"]),
    "missing": (["mine.txt", "reff.txt"], ["'reff.txt'", "did you mean 'ref.txt'"]),
    "folder": (["folder", "ref.txt"], ["folder: is a folder"]),
    "many files": (["*.txt", "ref.txt"], ["*.txt: matches"]),
    "no reference": (["mine.txt"], ["REF"]),
    "unknown metric": (["mine.txt", "ref.txt", "--metric", "bleu,rogue-1"], ["'rogue-1'", "did you mean 'rouge-1'"]),
    "metric twice": (["mine.txt", "ref.txt", "--metric", "bleu,bleu"], ["twice"]),
    "no metric": (["mine.txt", "ref.txt", "--metric", ","], ["no metric"]),
    "unknown tokenizer": (["mine.txt", "ref.txt", "--tokenize", "14a"], ["--tokenize"]),
    "against without resamples": (["mine.txt", "ref.txt", "--against", "other.txt", "--resamples", "0"], ["--against"]),
}


@pytest.mark.parametrize(("arguments", "parts"), CASES.values(), ids=CASES)
def test_bad_input_is_one_line(arguments, parts, seqlab, texts):
    said = seqlab("metrics", *arguments)
    assert said.code == 2, said.out
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    for part in parts:
        assert part in said.err


def test_standard_input_that_is_no_text(seqlab, texts):
    said = seqlab("metrics", "-", "short.txt", stdin=b"one\ncaf\xe9\n")
    assert said.errors == [
        "error: standard input: not UTF-8 text (line 2, byte 7); convert it first, for example with iconv"
    ]


def test_no_torch_is_needed(texts):
    program = (
        "import sys; sys.argv = ['seqlab', 'metrics', 'mine.txt', 'ref.txt', '--metric', 'bleu,rouge,meteor,wer']\n"
        "from seqlab.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert not {'torch', 'nltk', 'rouge_score'} & {name.split('.')[0] for name in sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
