"""Every command, used as a person uses it, on a small text and runs that are trained once."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from functools import partial

import click
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tolerance import SMALL_NET, rounding

from seqlab.cli import COMMANDS, group

KINDS = ["ngram", "lstm", "gpt"]


def names(command: click.Group, before: str = "") -> list[str]:
    """All commands, groups among them: `data`, `data check`, ..."""
    found = []
    for name in command.list_commands(click.Context(command)):
        inner = command.get_command(click.Context(command), name)
        found.append(before + name)
        if isinstance(inner, click.Group):
            found += names(inner, f"{before}{name} ")
    return found


# ---------------------------------------------------------------------- help


@pytest.mark.parametrize("name", names(group))
def test_help_has_an_example_that_parses(name, seqlab):
    said = seqlab(*name.split(), "--help")
    assert said.code == 0
    example = " ".join(said.out.partition("Example:")[2].split())
    line = example.partition("seqlab ")[2].partition(" > ")[0]
    assert line.startswith(name)
    command: click.Command = group
    words = shlex.split(line)
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    command.make_context(name, words)  # options that do not exist are a UsageError


def test_without_a_command_there_is_help(seqlab):
    for arguments in ([], ["tokenizer"], ["data"]):
        said = seqlab(*arguments)
        assert said.code == 0
        assert "Commands:" in said.out
    assert all(name in seqlab().out for name in COMMANDS)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", seqlab("--version").out)


# --------------------------------------------------------------------- train


def test_train_says_what_it_does_and_what_to_do_next(seqlab, here, commands):
    said = seqlab(*commands["lstm"], "--out", "out", "--resume")  # starts where there is nothing
    assert said.code == 0
    assert "held-out bits per character" in said.err
    assert "finished: out" in said.out
    assert "seqlab generate out" in said.out


def test_train_json(seqlab, here, commands):
    said = seqlab(*commands["ngram"], "--json")
    found = json.loads(said.out)
    assert said.err == ""
    assert found["run"] == "runs/lm-ngram"
    assert found["last"]["bits_per_character"] > 0
    assert json.loads(seqlab(*commands["ngram"], "--json").out)["run"] == "runs/lm-ngram-2"


@pytest.mark.parametrize("kind", KINDS)
def test_resume_of_a_finished_run_says_so_and_changes_nothing(kind, seqlab, runs, commands):
    before = {path: path.stat().st_mtime_ns for path in runs[kind].rglob("*.safetensors")}
    said = seqlab(*commands[kind], "--out", runs[kind], "--resume")
    assert said.code == 0, said.err
    assert "is already finished" in said.err
    assert f"finished: {runs[kind]}" in said.out
    assert {path: path.stat().st_mtime_ns for path in runs[kind].rglob("*.safetensors")} == before


def test_resume_of_a_stopped_run_says_where_it_goes_on(seqlab, here, runs, commands):
    shutil.copytree(runs["lstm"], "out")
    shutil.rmtree("out/checkpoints/step-00000040")
    said = seqlab(*commands["lstm"], "--out", "out", "--resume")
    assert said.code == 0, said.err
    assert "out continues from step 35 of 40" in said.err
    ends = [
        load_file(folder / "checkpoints/step-00000040/model.safetensors") for folder in (here / "out", runs["lstm"])
    ]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_check_looks_and_writes_nothing(seqlab, here, commands):
    for kind, code in [("ngram", 0), ("gpt", 1)]:  # a rate this small cannot learn one batch by heart
        rate = [] if kind == "ngram" else ["training.learning_rate=1e-7"]
        said = seqlab(*commands[kind], *rate, "--check")
        assert said.code == code, said.err
        assert "vocab_size" in said.out
        found = json.loads(seqlab(*commands[kind], *rate, "--check", "--json").out)
        assert all(one["ok"] for one in found) == (code == 0)
    assert list(here.iterdir()) == []


def test_ctrl_c_saves_and_says_so(script, here, commands):
    command = [*commands["lstm"], "training.steps=100000", "training.evaluate_every=10", "--out", "out"]
    with subprocess.Popen([script, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "step 10:" in line:
                break
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
    assert process.returncode == 130
    (last,) = [line for line in rest.splitlines() if "held-out" not in line]
    step = re.match(r"stopped and saved at step (\d+) of 100000; continue with --resume", last)[1]
    assert f"step-{int(step):08d}" in os.listdir("out/checkpoints")


SWALLOWS = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    pass
"""


def test_ctrl_c_during_an_import_that_swallows_it(script, here):
    """As those of large libraries do."""
    (here / "mine.py").write_text(SWALLOWS)
    command = [script, "recipes", "lm/lstm", "--keys", "--code", "mine.py"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # background jobs ignore it
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=heard)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_ctrl_c_before_the_first_step_leaves_nothing(seqlab, here, commands, monkeypatch):
    def interrupted(*arguments, **keys):
        raise KeyboardInterrupt

    monkeypatch.setattr("seqlab.runs.launch.prepare", interrupted)
    said = seqlab(*commands["lstm"], "--out", "out")
    assert said.code == 130
    assert said.err.split() == ["stopped"]
    assert list(here.iterdir()) == []


# ------------------------------------------------------------------ evaluate


@pytest.mark.parametrize("kind", KINDS)
def test_evaluate(kind, seqlab, runs):
    found = json.loads(seqlab("evaluate", runs[kind], "--json").out)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert 0 < found["bits_per_byte"] < found["bits_per_character"]  # é has two bytes
    assert found["tokens"] > 50
    assert found["signature"]["tokenizer"]
    table = seqlab("evaluate", runs[kind]).out
    assert f"{found['bits_per_character']:.4f}" in table
    assert "signature: tokenizer " in table


def test_evaluate_other_data(seqlab, runs, here):
    (here / "a.txt").write_text("the cat sat on the mat.\n", encoding="utf-8")
    (here / "b.txt").write_text("a bird found a letter!\n", encoding="utf-8")
    tokens = [
        json.loads(seqlab("evaluate", runs["lstm"], *arguments, "--json").out)["tokens"]
        for arguments in (["--data", "a.txt"], ["--data", "b.txt"], ["--data", "a.txt", "--data", "b.txt"])
    ]
    assert tokens == [24, 23, 47]


# ------------------------------------------------------------------ generate


@pytest.mark.parametrize("kind", KINDS)
def test_generate(kind, seqlab, runs):
    ask = ["generate", runs[kind], "--prompt", "the cat", "--tokens", 20]
    first = seqlab(*ask, "--seed", 3)
    assert first.code == 0, first.err
    assert first.out.startswith("the cat")
    assert seqlab(*ask, "--seed", 3).out == first.out
    assert any(seqlab(*ask, "--seed", seed).out != first.out for seed in range(4, 8))
    (alone,) = json.loads(seqlab(*ask, "--seed", 3, "--json").out)["texts"]
    assert alone + "\n" == first.out  # what is streamed is what is made
    three = json.loads(seqlab(*ask, "--seed", 3, "--samples", 3, "--json").out)["texts"]
    assert three[0] == alone
    assert len(set(three)) > 1
    printed = seqlab(*ask, "--seed", 3, "--samples", 3).out
    assert [line for line in printed.splitlines() if line.startswith("---")] == ["--- 1", "--- 2", "--- 3"]


@pytest.mark.parametrize("kind", KINDS)
def test_generate_greedily_and_with_a_beam(kind, seqlab, runs):
    ask = ["generate", runs[kind], "--prompt", "the cat", "--tokens", 6]
    greedy = [seqlab(*ask, "--temperature", 0, "--seed", seed).out for seed in (1, 2)]
    assert greedy[0] == greedy[1]
    one = json.loads(seqlab(*ask, "--beam", 1, "--json").out)
    assert one["texts"][0] + "\n" == greedy[0]
    five = json.loads(seqlab(*ask, "--beam", 5, "--samples", 5, "--json").out)
    assert five["log_probabilities"] == sorted(five["log_probabilities"], reverse=True)
    assert five["log_probabilities"][0] >= one["log_probabilities"][0] - 6 * rounding(SMALL_NET, 5)
    assert "log-probability" in seqlab(*ask, "--beam", 2, "--samples", 2).out


def test_words_are_joined_by_one_space(seqlab, runs):
    ask = ["generate", runs["ngram"], "--tokens", 3, "--temperature", 0, "--prompt"]
    with_space, without = seqlab(*ask, "the cat ").out, seqlab(*ask, "the cat").out
    assert with_space == without
    assert re.match(r"the cat \w", without)
    beam = ["generate", runs["ngram"], "--tokens", 3, "--beam", 2, "--prompt", "the cat", "--json"]
    assert all(re.match(r"the cat \w", text) for text in json.loads(seqlab(*beam).out)["texts"])


def test_text_appears_as_it_is_made(script, runs):
    """The first piece is there long before the last."""
    command = [script, "generate", str(runs["gpt"]), "--tokens", "100000", "--prompt", "the "]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(4) == b"the "
        assert process.poll() is None
        process.stdout.close()  # as `| head` does
        assert process.stderr.read() == b""
        assert process.wait() in (0, 1)


@pytest.fixture(scope="module")
def untrained(seqlab, commands, tmp_path_factory):
    """A byte-level model that knows nothing: what it writes is mostly no UTF-8."""
    folder = tmp_path_factory.mktemp("untrained") / "run"
    keys = ["training.steps=1", "training.learning_rate=1e-9", "model.kind=recurrent", "model.width=16"]
    assert seqlab(*commands["gpt"], *keys, "--out", folder).code == 0
    return folder


def test_broken_utf8_is_never_printed(script, untrained):
    ask = [script, "generate", str(untrained), "--tokens", "2000", "--samples", "20", "--temperature", "2", "--seed"]
    for seed, encoding in [("1", "utf-8"), ("2", "ascii")]:
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run([*ask, seed, "--prompt", "café"], capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr
        text = done.stdout.decode("utf-8")  # strict: broken bytes and lone surrogates would raise
        assert len(text) > 2000
        assert "\N{REPLACEMENT CHARACTER}" in text or "?" in text


def test_tables_and_messages_on_a_terminal_without_unicode(script, runs, here):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([script, "evaluate", str(runs["lstm"])], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"bits per character" in done.stdout


# --------------------------------------------------------------------- score


@pytest.mark.parametrize("kind", KINDS)
def test_score(kind, seqlab, runs, here):
    lines = ["the cat sat on the mat.", "mat the on sat cat the."]
    (here / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    piped = seqlab("score", runs[kind], "--json", stdin="\n".join(reversed(lines)) + "\n")
    from_file = seqlab("score", runs[kind], "lines.txt", "--json")
    found = [json.loads(line) for line in from_file.out.splitlines()]
    assert [one["text"] for one in found] == lines
    backwards = [json.loads(line) for line in piped.out.splitlines()][::-1]
    assert [{**one, "line": 3 - one["line"]} for one in backwards] == found
    for one in found:
        assert one["perplexity"] == pytest.approx(math.exp(-one["log_probability"] / one["tokens"]))
    ranked = seqlab("score", runs[kind], "--rank", "-", stdin="\n".join(reversed(lines))).out.splitlines()
    best = max(found, key=lambda one: one["log_probability"])
    assert ranked[0].split() == ["log-prob", "perplexity", "tokens", "text"]
    assert ranked[1].endswith(best["text"])


def test_the_score_of_a_line_is_what_evaluation_says(seqlab, runs, here):
    """One document: the same tokens, its end included, the same sum."""
    (here / "line.txt").write_text("the old man opened a letter.\n", encoding="utf-8")
    for kind in KINDS:
        scored = json.loads(seqlab("score", runs[kind], "line.txt", "--json").out)
        measured = json.loads(seqlab("evaluate", runs[kind], "--data", "line.txt", "--json").out)
        assert scored["tokens"] == measured["tokens"]
        assert scored["perplexity"] == pytest.approx(measured["perplexity"], rel=rounding(SMALL_NET, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_suggest(kind, seqlab, runs):
    (line,) = seqlab("score", runs[kind], "--suggest", "3", stdin="the old man\n").out.splitlines()
    assert line.startswith("the old man … ")
    assert line.count(",") == 2
    found = json.loads(seqlab("score", runs[kind], "--suggest", "--json", stdin="the old man\n").out)
    assert len(found["next"]) == 5
    scores = [one["log_probability"] for one in found["next"]]
    assert scores == sorted(scores, reverse=True)


SENTENCES = [
    *["Virat Kohli plays cricket for India"] * 3,
    *["Rohit Sharma plays cricket for India", "Sunil Chhetri plays football for India"] * 2,
    "cricket is a sport",
    "India is a country",
    *["the students opened their books"] * 4,
    *["the students opened their laptops"] * 3,
    *["the students opened their minds"] * 2,
    "the teachers opened their windows",
    "the students read their exams",
]


@pytest.mark.parametrize("tokenizer", ["word", "character"])
def test_sense_above_scramble_and_repetition_and_the_next_word(seqlab, here, tokenizer):
    (here / "text.txt").write_text("\n".join(SENTENCES * 2) + "\n", encoding="utf-8")
    keys = ["data.train=text.txt", "data.documents=line", f"tokenizer.kind={tokenizer}", "model.order=6"]
    assert seqlab("train", "lm/ngram", *keys, "--out", "out").code == 0
    lines = ["cricket cricket cricket cricket cricket cricket", "India for cricket plays Kohli Virat", SENTENCES[0]]
    ranked = seqlab("score", "out", "--rank", stdin="\n".join(lines)).out.splitlines()
    assert ranked[1].endswith(SENTENCES[0])
    found = json.loads(seqlab("score", "out", "--suggest", "3", "--json", stdin="the students opened their\n").out)
    assert [one["word"] for one in found["next"]] == ["books", "laptops", "minds"]


# ---------------------------------------------------------- compare, demo, others


def test_compare(seqlab, here, text):
    keys = [f"data.train={text}", "tokenizer.kind=character", "--budget", "1s", "--seeds", 2, "--out", "race"]
    said = seqlab("compare", "lm/ngram", "lm/lstm", *keys)
    assert said.code == 0, said.err
    for part in (
        "model",
        "lm-ngram",
        "lm-lstm",
        "±",
        "held-out bits per character",
        "tokens/s",
        "plot: race/curves.png",
    ):
        assert part in said.out
    with Image.open("race/curves.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 50
    again = seqlab("compare", "lm/ngram", "lm/lstm", *keys, "--json")  # what is finished is taken as it is
    found = json.loads(again.out)
    assert again.err == ""
    assert {row["name"] for row in found["table"]} == {"lm-ngram", "lm-lstm"}
    figures = [row["value"] for row in found["table"]]
    assert figures == sorted(figures)
    assert {(one["name"], one["seed"]) for one in found["runs"]} == {
        (name, seed) for name in ("lm-ngram", "lm-lstm") for seed in (0, 1)
    }


@pytest.mark.slow
def test_demo(seqlab, here):
    said = seqlab("demo", "--budget", "2s")
    assert said.code == 0, said.err
    for part in (
        "lm-ngram",
        "lm-lstm",
        "lm-gpt",
        "plot: runs/demo/curves.png",
        "mixture",
        "lm-gpt writes:\nThe list",
        "mixture writes:\nThe list",
        "The mixture averages the probabilities of the three (lm-ngram ",
        "try next:",
    ):
        assert part in said.out
    following = [line.split("(")[0] for line in said.out.partition("try next:")[2].splitlines() if line.strip()]
    assert all(line.strip().startswith("seqlab ") for line in following)
    ask = shlex.split(following[0])[1:]
    assert seqlab(*ask).code == 0


def test_recipes(seqlab, here):
    listed = seqlab("recipes").out
    about = json.loads(seqlab("recipes", "--json").out)
    assert all(name in listed and text in listed for name, text in about.items())
    (here / "mine.yaml").write_text(seqlab("recipes", "lm/gpt").out, encoding="utf-8")
    assert seqlab("train", "mine.yaml", "model.heads=5").errors[0].startswith("error: command line, model.heads=5")
    assert json.loads(seqlab("recipes", "lm/gpt", "--json").out)["model"]["kind"] == "gpt"


def test_data_check(seqlab, text, here):
    assert seqlab("data", "check", text).code == 0
    (here / "bad.txt").write_bytes(b"fine\nnot \xff fine\n")
    said = seqlab("data", "check", "bad.txt")
    assert said.code == 1
    assert "1 fault" in said.out


def test_tokenizer(seqlab, text, here):
    assert seqlab("tokenizer", "train", "bpe", text, "--vocab-size", 300, "--out", "bpe").code == 0
    ids, _ = seqlab("tokenizer", "encode", "bpe", "the café").out.splitlines()
    assert seqlab("tokenizer", "decode", "bpe", *ids.split()).out == "the café\n"
    assert seqlab("tokenizer", "decode", "bpe", stdin=ids).out == "the café\n"
    assert "bpe" in seqlab("tokenizer", "show", "bpe", "--data", text).out
