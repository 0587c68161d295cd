"""`seqlab tokenizer`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from seqlab.cli.tokenizer import tokenizer
from seqlab.errors import DataError, RecipeError, RunError, SeqlabError

TEXT = "the cat sat on the mat [bold] and the cat sat\n" * 20


def run(*arguments, stdin=None):
    result = CliRunner().invoke(tokenizer, [str(argument) for argument in arguments], input=stdin)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def trained(text_file, tmp_path):
    """A tokenizer, and a run that has one."""
    run("train", "bpe", text_file, "--vocab-size", 280, "--out", tmp_path / "bpe")
    run("train", "word", text_file, "--out", tmp_path / "run" / "tokenizer")
    return tmp_path / "bpe", tmp_path / "run"


def test_train_encode_decode(trained):
    for folder in trained:
        ids, pieces = run("encode", folder, "the cat sat").splitlines()
        assert "".join(pieces.split("|")).replace("␣", "") == "thecatsat"
        assert run("decode", folder, *ids.split()) == "the cat sat\n"
        assert run("decode", folder, stdin=ids) == "the cat sat\n"
        assert run("encode", folder, stdin="the cat sat") == run("encode", folder, "-", stdin="the cat sat")


def test_encode_json(trained):
    found = json.loads(run("encode", trained[1], "cat dog", "--json"))
    assert found["pieces"] == ["cat", "<unk>"]
    assert found["offsets"] == [[0, 3], [4, 7]]


def test_show(trained, text_file):
    table = run("show", *trained, "--data", text_file, "--word", "cats")
    assert "tokens/word" in table
    assert "␣cat|s" in table
    assert run("show", *trained)
    rows = json.loads(run("show", *trained, "--text", "the dog", "--json"))
    assert [row["kind"] for row in rows] == ["bpe", "word"]
    lengths = {"tokens_per_word": 1.0, "characters_per_token": 3.5, "bytes_per_token": 3.5}
    figures = {"kind": "word", "vocab_size": 11, "tokens": 2, **lengths, "unknown": 1, "unknown_share": 0.5}
    assert rows[1] == {"tokenizer": str(trained[1]), **figures, "words": {"the": ["the"], "dog": ["<unk>"]}}


def test_show_learns_kinds_on_the_spot(trained, text_file):
    names = ["byte", "character", "word:5", "bpe:270", "classic-bpe:20", trained[0]]
    rows = json.loads(run("show", *names, "--text", "a dog", "--learn", text_file, "--json"))
    assert [row["vocab_size"] for row in rows] == [257, rows[1]["vocab_size"], 5, 270, 20, 276]
    assert rows[2]["unknown"] == 2


def test_show_words_of_a_recipe(tmp_path, text_file):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f"task: language-modelling\ndata: {{train: {text_file}, documents: line}}\n"
        "tokenizer: word\nmodel: ngram\nobjective: next-token\n",
        encoding="utf-8",
    )
    rows = json.loads(run("show", "word", "--recipe", recipe, "--json"))
    assert list(rows[0]["words"]) == ["untokenizable"]
    assert rows[0]["tokens"] < 100


def test_settings_of_a_kind(text_file, tmp_path):
    text_file.write_text("The cat THE Cat " * 20, encoding="utf-8")
    said = run("train", "wordpiece", text_file, "lowercase=true", "min_frequency=1000", "--out", tmp_path / "lower")
    assert said.startswith(f"{tmp_path / 'lower'}: wordpiece, ")
    tokens = json.loads((tmp_path / "lower" / "tokenizer.json").read_text(encoding="utf-8"))["tokens"]
    assert not any(token.removeprefix("##") in ("T", "C", "the") for token in tokens)
    run("train", "bpe", "vocab_size=260", text_file, "--out", tmp_path / "bpe")
    assert json.loads(run("show", tmp_path / "bpe", "--json"))[0]["vocab_size"] == 260


def test_a_file_may_have_an_equals_sign_in_its_name(tmp_path):
    (tmp_path / "a=b.txt").write_text(TEXT, encoding="utf-8")
    assert "word, 11 tokens" in run("train", "word", tmp_path / "a=b.txt", "--out", tmp_path / "word")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wordpiece", "{text}", "lowercas=true"], "lowercas=true: unknown key 'lowercas'; did you mean 'lowercase'"),
        (["wordpiece", "{text}", "lowercase=maybe"], "command line, lowercase=maybe: 'lowercase' is 'maybe'"),
        (["byte", "{text}", "vocab_size=100"], "unknown key 'vocab_size'"),
        (["byte", "{text}", "--vocab-size", "100"], "--vocab-size 100: the vocabulary size of 'byte' cannot be chosen"),
        (["bpe", "{text}", "--vocab-size", "5"], "--vocab-size 5: 'vocab_size' is 5: should be greater than or equal"),
        (["bpe", "{text}", "kind=nonsense"], "'nonsense'"),
        (["bpe", "{text}", "--out", "{text}"], "text.txt: is a file, not a folder; choose another folder for --out"),
        (["bpe", "{text}", "--out", "{text}/x/y"], "text.txt: is a file, not a folder; choose another folder"),
    ],
)
def test_bad_settings(arguments, said, text_file, tmp_path):
    filled = [one.replace("{text}", str(text_file)) for one in arguments]
    with pytest.raises(SeqlabError) as caught:
        run("train", *filled, *([] if "--out" in filled else ["--out", tmp_path / "x"]))
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == [text_file]


def test_settings_alone_are_nothing_to_learn_from(tmp_path):
    result = CliRunner().invoke(tokenizer, ["train", "bpe", "vocab_size=300", "--out", str(tmp_path / "x")])
    assert "give a FILE" in result.output


def test_sizes_of_kinds_learnt_on_the_spot():
    with pytest.raises(RecipeError, match="byte:100: the vocabulary size of 'byte' cannot be chosen"):
        run("show", "byte:100")
    with pytest.raises(RecipeError, match="bpe:5: 'vocab_size' is 5"):
        run("show", "bpe:5")


def test_errors(trained, text_file, tmp_path):
    with pytest.raises(RecipeError, match="did you mean 'bpe'"):
        run("train", "bpee", text_file, "--out", tmp_path / "x")
    with pytest.raises(RecipeError, match="--vocab-size 5"):
        run("train", "bpe", text_file, "--vocab-size", 5, "--out", tmp_path / "x")
    with pytest.raises(RecipeError, match="--vocab-size 300"):
        run("train", "byte", text_file, "--vocab-size", 300, "--out", tmp_path / "x")
    with pytest.raises(RunError, match="already"):
        run("train", "byte", text_file, "--out", trained[0])
    with pytest.raises(RunError, match="no tokenizer here"):
        run("encode", tmp_path, "x")
    with pytest.raises(DataError, match="token 999 does not exist"):
        run("decode", trained[0], 999)
    with pytest.raises(DataError, match=r"whole numbers"):
        run("decode", trained[0], stdin="1 two")
    with pytest.raises(DataError, match="byte 1"):
        run("encode", trained[0], stdin=b"a\xff")
    with pytest.raises(RunError, match=r"neither a folder nor a kind.*did you mean 'bpe'"):
        run("show", "bpee:300")
    with pytest.raises(RecipeError, match=r"whole number.*bpe:2000"):
        run("show", "bpe:many")
    with pytest.raises(DataError):
        run("train", "bpe", tmp_path / "missing.txt", "--out", tmp_path / "x")


@pytest.mark.parametrize("command", ["train", "encode", "decode", "show"])
def test_help_has_an_example(command):
    assert f"seqlab tokenizer {command}" in run(command, "--help")


def test_nothing_heavy_is_imported_for_help():
    heavy = "{'torch', 'numpy', 'tokenizers', 'pydantic', 'rich'}"
    program = f"import sys, seqlab.cli.tokenizer; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"
