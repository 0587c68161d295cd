"""`seqlab ngram`: sizes, and ARPA files out and in."""

import json

import pytest
from tolerance import SMALL_NET, rounding

ARPA = r"""
\data\
ngram 1=4
ngram 2=3

\1-grams:
-99 <s> -0.3
-0.6 </s>
-0.4 cat -0.2
-0.7 sat -0.1

\2-grams:
-0.2 <s> cat
-0.3 cat sat
-0.1 sat </s>

\end\
"""


@pytest.mark.parametrize("command", ["show", "export", "import"])
def test_help_has_an_example(command, seqlab):
    said = seqlab("ngram", command, "--help")
    assert said.code == 0
    assert f"Example: seqlab ngram {command}" in said.out


def test_show(seqlab, runs):
    said = seqlab("ngram", "show", runs["ngram"])
    assert said.code == 0, said.err
    lines = [line.split() for line in said.out.splitlines()]
    assert [line[0] for line in lines if line and line[0].isdigit()] == ["1", "2", "3", "4", "5"]
    assert "modified-kneser-ney, not pruned" in said.out
    found = json.loads(seqlab("ngram", "show", runs["ngram"], "--json").out)
    assert found["bytes"] == sum(order["bytes"] for order in found["orders"])
    for number, order in enumerate(found["orders"], start=1):
        assert order["order"] == number
        assert order["possible"] == found["vocab_size"] ** number
        assert order["once"] <= order["in_text"] == order["ngrams"]
        assert 0 < order["hits"] <= 1


def test_show_on_other_data(seqlab, runs, here):
    (here / "other.txt").write_text("zyx wvu tsr\n" * 3)
    found = json.loads(seqlab("ngram", "show", runs["ngram"], "--data", "other.txt", "--json").out)
    assert found["orders"][2]["hits"] == 0


def test_pruning_is_shown(seqlab, commands, here):
    assert seqlab(*commands["ngram"], "model.prune=[0,0,1]", "--out", "pruned").code == 0
    orders = json.loads(seqlab("ngram", "show", "pruned", "--json").out)["orders"]
    assert [order["in_text"] - order["ngrams"] for order in orders] == [0, 0, *(order["once"] for order in orders[2:])]
    assert "pruned [0, 0, 1]" in seqlab("ngram", "show", "pruned").out


@pytest.mark.parametrize("kind", ["unigram", "sentencepiece"])
def test_bytes_and_pieces_have_different_words(seqlab, here, text, kind):
    """The byte `<0x61>` and the piece a are two tokens."""
    changes = [f"data.train={text}", f"tokenizer.kind={kind}", "tokenizer.vocab_size=300", "model.order=2"]
    assert seqlab("train", "lm/ngram", *changes, "--out", "out").code == 0
    said = seqlab("ngram", "export", "out", "model.arpa")
    assert said.code == 0, said.err
    words = [line.split("\t")[1] for line in (here / "model.arpa").read_text().splitlines() if line.count("\t")]
    assert {"a", "<0x61>"} <= set(words)


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_out_and_in_again(seqlab, runs, here, name, text):
    """The same words get the same scores: what is written has nine digits."""
    assert seqlab("ngram", "export", runs["ngram"], name).code == 0
    said = seqlab("ngram", "import", name, "again")
    assert said.code == 0, said.err
    lines = "the cat sat on the mat .\nnobody has seen this\n"
    scores = [
        [json.loads(line)["log_probability"] for line in seqlab("score", run, "--json", stdin=lines).out.splitlines()]
        for run in (runs["ngram"], "again")
    ]
    assert scores[1] == pytest.approx(scores[0], rel=rounding(SMALL_NET))
    assert seqlab("generate", "again", "--prompt", "the", "--tokens", 5).code == 0
    assert json.loads(seqlab("evaluate", "again", "--data", text, "--json").out)["perplexity"] > 1
    shown = json.loads(seqlab("ngram", "show", "again", "--json").out)
    assert shown["orders"][0]["in_text"] is None
    assert shown["orders"][0]["hits"] is None
    assert sorted(path.name for path in here.iterdir()) == ["again", name]


def test_a_file_from_elsewhere(seqlab, here):
    """It has no <unk>: what it does not know is as improbable as kenlm has it."""
    (here / "small.arpa").write_text(ARPA)
    assert seqlab("ngram", "import", "small.arpa", "small").code == 0
    said = seqlab("score", "small", "--json", stdin="cat sat\ncat dog\n").out.splitlines()
    first, second = (json.loads(line)["log_probability"] / 2.302585093 for line in said)
    assert first == pytest.approx(-0.2 - 0.3 - 0.1, abs=rounding(8))
    assert second == pytest.approx(-0.2 - 0.2 - 100 - 0.6, abs=rounding(8, 101))


def test_an_imported_run_has_no_data_of_its_own(seqlab, here):
    (here / "small.arpa").write_text(ARPA)
    seqlab("ngram", "import", "small.arpa", "small")
    said = seqlab("evaluate", "small")
    assert said.code == 2
    assert said.errors == ["error: small: was not trained here and has no held-out data; give --data"]


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("-0.3 cat sat", "x cat sat", "line 14: not a number"),
        ("-0.3 cat sat", "-0.3 cat dog", "line 14: the word 'dog' is not a 1-gram"),
        ("-0.3 cat sat", "0.3 cat sat", "line 14: not the logarithm of a probability"),
        ("ngram 2=3", "ngram 2=4", "line 17: 3 2-grams end here"),
        ("\\end\\", "", "no \\end\\"),
        ("sat", "\\u{63}at", "2 words are spelt 'cat'"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(seqlab, here, wrong, right, message):
    (here / "bad.arpa").write_text(ARPA.replace(wrong, right))
    said = seqlab("ngram", "import", "bad.arpa", "run")
    assert said.code == 2
    (error,) = said.errors
    assert "bad.arpa" in error
    assert message in error
    assert not (here / "run").exists()


def test_what_cannot_be_done(seqlab, runs, here):
    (here / "small.arpa").write_text(ARPA)
    for arguments, message in (
        (["show", runs["gpt"]], "has a model of kind 'gpt', not an n-gram"),
        (["export", runs["gpt"], "x.arpa"], "not an n-gram"),
        (["export", runs["ngram"], "nowhere/x.arpa"], "cannot be written"),
        (["import", "missing.arpa", "run"], "cannot open the file"),
        (["import", "small.arpa", runs["ngram"]], "already holds a run"),
    ):
        said = seqlab("ngram", *arguments)
        assert said.code == 2
        assert message in said.errors[0]
    assert [path.name for path in here.iterdir()] == ["small.arpa"]


def test_a_recipe_with_an_unusable_size(seqlab, commands, here):
    for setting, message in (
        ("model.memory=much", "model.memory"),
        ("model.prune=[1]", "should begin with 0"),
        ("model.prune=[0,2,1]", "not decrease"),
    ):
        said = seqlab(*commands["ngram"], setting, "--out", "run")
        assert said.code == 2
        assert message in said.errors[0], said.errors
        assert not (here / "run").exists()


def test_training_on_disk_is_the_same_run(seqlab, commands, runs, here):
    """With less memory the same tables come out, and no files are left."""
    assert seqlab(*commands["ngram"], "model.memory=300kB", "--out", "run").code == 0
    names = {path.relative_to(here / "run") for path in (here / "run").rglob("*")}
    assert names == {path.relative_to(runs["ngram"]) for path in runs["ngram"].rglob("*")}
    saved = "checkpoints/step-00000001/model.safetensors"
    assert (here / "run" / saved).read_bytes() == (runs["ngram"] / saved).read_bytes()
