"""Everything a person can get wrong: one line that begins with `error:`, exit code 2, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from seqlab import registry
from seqlab.errors import SeqlabError
from seqlab.runs import run
from seqlab.training.manifest import accept
from seqlab.training.trainer import Trainer

RECIPE = """\
name: mine
task: {kind: language-modelling, window: 16}
data: {train: text.txt}
tokenizer: {kind: character}
model: {kind: gpt, width: 32}
objective: {kind: next-token}
training: {steps: 2}
"""
CODE = """\
import seqlab
from seqlab.nn.cells import Elman


class Mine(Elman):
    pass


seqlab.register("cell", "mine", Mine)
"""


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture(scope="session")
def bad(tmp_path_factory, runs) -> Path:
    """A folder with one of everything that is wrong."""
    root = tmp_path_factory.mktemp("bad")
    for name, content in {
        "empty.txt": "",
        "binary.txt": bytes(range(256)) * 40,
        "latin.txt": "first line\ncafé\n".encode("latin-1") * 200,
        "short.txt": "hello",
        "other/notes.txt": "not a run",
        "misspelt.yaml": RECIPE.replace("width", "widht"),
        "broken.yaml": RECIPE.replace("{steps: 2}", "{steps: 2"),
        "type.yaml": RECIPE.replace("steps: 2", "steps: two"),
        "negative.yaml": RECIPE.replace("steps: 2", "steps: -2"),
        "model.yaml": RECIPE.replace("gpt", "gtp"),
        "neither.yaml": RECIPE.replace("{steps: 2}", "{batch_size: 4}"),
        "other.csv": "id,body\n1,hello\n",
        "uneven.de": "eins\nzwei\n" * 50,
        "uneven.en": "one\ntwo\n" * 49,
        "table.tsv": "de\ten\neins\tone\n",
        "broken.jsonl": '{"text": "fine"}\n{"text": \n',
        "numbers.jsonl": '{"text": "fine"}\n{"text": [1]}\n',
        "syntax.py": "import seqlab\nclass Mine(:\n",
        "raises.py": "import seqlab\n\nraise KeyError('gone')\n",
        "taken.py": CODE.replace('"mine"', '"lstm"'),
    }.items():
        write(root / name, content)
    (root / "nothing").mkdir()
    for name, file, content in [
        ("truncated-tokenizer", "tokenizer/tokenizer.json", '{"kind": "by'),
        ("no-model-yaml", "model.yaml", ""),
        ("binary-model-yaml", "model.yaml", b"\xff\xfe\x00"),
        ("broken-recipe", "recipe.yaml", "model: {"),
        ("empty-recipe", "recipe.yaml", ""),
        ("other-tokenizer", "tokenizer/tokenizer.json", (runs["lstm"] / "tokenizer/tokenizer.json").read_bytes()),
        ("other-width", "recipe.yaml", (runs["gpt"] / "recipe.yaml").read_text().replace("width: 32", "width: 64")),
    ]:
        shutil.copytree(runs["gpt"], root / name)
        write(root / name / file, content)
        accept(root / name)  # or all of them would be refused because of their manifests
    shutil.copytree(runs["gpt"], root / "edited")
    write(root / "edited" / "recipe.yaml", (runs["gpt"] / "recipe.yaml").read_text().replace("heads: 4", "heads: 2"))
    shutil.copytree(runs["gpt"], root / "no-checkpoint", ignore=shutil.ignore_patterns("checkpoints", "best"))
    return root


def listing(folder: Path) -> dict[str, int]:
    """All that is in a folder, with sizes."""
    return {str(p.relative_to(folder)): p.stat().st_size if p.is_file() else -1 for p in sorted(folder.rglob("*"))}


TRAIN = ["train", "lm/gpt", "data.train={text}", "tokenizer.kind=character", "model.width=16", "model.depth=1"]
SMALL = [*TRAIN, "model.context=32", "task.window=32", "training.steps=2"]
LSTM = ["train", "lm/lstm", "data.train={text}", "tokenizer.kind=character", "model.width=16", "training.steps=2"]
CONV = ["train", "lm/conv", "data.train={text}", "tokenizer.kind=character", "model.width=8", "training.steps=2"]
LABELS = ["train", "classification/lstm", "data.columns={text: de, label: en}", "training.steps=2"]
OUT = ["--out", "out"]

CASES: dict[str, tuple[list[str], list[str]]] = {
    # what the data may be
    "missing file": ([*SMALL, "data.train=missing.txt", *OUT], ["no file or folder 'missing.txt'"]),
    "missing folder": ([*SMALL, "data.train=missing/a.txt", *OUT], ["the folder 'missing' does not exist"]),
    "empty name": ([*SMALL, "data.train=", *OUT], ["an empty name", "built-in"]),
    "empty list": ([*SMALL, "data.train=[]", *OUT], ["data.train is an empty list"]),
    "name too long": ([*SMALL, "data.train=" + "a" * 400, *OUT], ["too long"]),
    "empty file": ([*SMALL, "data.train={bad}/empty.txt", *OUT], ["empty.txt: empty file"]),
    "binary file": ([*SMALL, "data.train={bad}/binary.txt", *OUT], ["binary.txt, line 1, byte 0", "NUL"]),
    "Latin-1": ([*SMALL, "data.train={bad}/latin.txt", *OUT], ["latin.txt, line 2, byte 14", "UTF-8", "iconv"]),
    "folder without files": ([*SMALL, "data.train={bad}/nothing", *OUT], ["nothing: no non-empty files"]),
    "pattern without files": ([*SMALL, "data.train={bad}/*.doc", *OUT], ["*.doc", "no non-empty files"]),
    "too short to hold out": ([*SMALL, "data.train={bad}/short.txt", *OUT], ["short.txt: too little", "data.valid"]),
    "train is valid": ([*SMALL, "data.valid={text}", *OUT], ["same files", "data.valid"]),
    "missing valid": ([*SMALL, "data.valid=missing.txt", *OUT], ["no file or folder 'missing.txt'"]),
    "other column": ([*SMALL, "data.train={bad}/other.csv", *OUT], ["other.csv, line 2", "'text'", "body"]),
    "uneven files": ([*LABELS, "data.train={bad}/uneven", *OUT], ["uneven.de: 100 lines", "uneven.en has 98"]),
    "a missing file of two": ([*LABELS, "data.train={bad}/uneven", "data.columns.label=fr", *OUT], ["uneven.fr"]),
    "a number too large": ([*SMALL, "data.train={bad}/table.tsv", "data.columns.text=2", *OUT], ["line 1", "'2'"]),
    "no such field": ([*SMALL, "data.train=reverse", *OUT], ["'reverse' does not provide text", "source, target"]),
    "broken row": ([*SMALL, "data.train={bad}/broken.jsonl", *OUT], ["broken.jsonl, line 2", "invalid JSON"]),
    "no text in a row": ([*SMALL, "data.train={bad}/numbers.jsonl", *OUT], ["numbers.jsonl, line 2", "not text"]),
    # what a recipe may be
    "misspelt key": (["train", "{bad}/misspelt.yaml", *OUT], ["misspelt.yaml, line 5", "did you mean 'width'?"]),
    "broken YAML": (["train", "{bad}/broken.yaml", *OUT], ["broken.yaml, line 8", "invalid YAML"]),
    "wrong type": (["train", "{bad}/type.yaml", *OUT], ["type.yaml, line 7", "'two'", "whole number"]),
    "negative steps": (["train", "{bad}/negative.yaml", *OUT], ["negative.yaml, line 7", "-2", "greater than 0"]),
    "unknown model": (["train", "{bad}/model.yaml", *OUT], ["model.yaml, line 5", "did you mean 'gpt'?"]),
    "a cell for a model": (
        [*SMALL, "model.kind=lstm", *OUT],
        ["unknown model 'lstm'; 'lstm' is a cell (model.cell=lstm)"],
    ),
    "no close name": ([*SMALL, "model.position=rope", *OUT], ["unknown position 'rope'; valid: alibi, buckets"]),
    "unknown recipe": (["train", "lm/gtp", *OUT], ["no recipe 'lm/gtp'", "did you mean 'lm/gpt'?"]),
    "binary recipe": (["train", "{bad}/latin.txt", *OUT], ["latin.txt", "UTF-8"]),
    "no override": ([*SMALL, "width", *OUT], ["'width' is not an override", "key.sub=value"]),
    "unknown section": ([*SMALL, "modle.width=3", *OUT], ["modle.width=3", "did you mean 'model'?"]),
    "heads and width": ([*SMALL, "model.heads=5", *OUT], ["model.heads=5", "width 16", "heads 5"]),
    "window and context": ([*SMALL, "task.window=64", *OUT], ["'task.window' 64", "'model.context' 32"]),
    "streams with gpt": ([*SMALL, "task.reading=streams", *OUT], ["streams", "task.reading=windows"]),
    "stride and window": ([*SMALL, "task.stride=33", *OUT], ["'task.stride' 33", "'task.window' 32"]),
    "unknown device": ([*SMALL, "training.device=gpu", *OUT], ["'gpu'", "cuda"]),
    "device not there": ([*SMALL, "training.device=cuda:77", *OUT], ["'cuda:77'", "auto"]),
    "no budget": ([*SMALL, "training.budget=soon", *OUT], ["training.budget=soon", "45s"]),
    "zero budget": ([*SMALL, "training.budget=0s", *OUT], ["'0s'", "45s"]),
    "neither steps nor budget": (
        ["train", "{bad}/neither.yaml", "data.train={text}", "model.heads=2", *OUT],
        ["training.steps", "training.budget"],
    ),
    "long prompt for samples": ([*SMALL, "decoding.prompt=" + "a" * 40, *OUT], ["decoding.prompt", "41", "32"]),
    "broken prompt": ([*SMALL, "decoding.prompt=\udce9", *OUT], ["surrogate U+DCE9"]),
    "model too large": ([*SMALL, "model.width=100000000000000", *OUT], ["memory", "smaller"]),
    "model too large for a number": ([*SMALL, "model.width=4000000000000000000", *OUT], ["memory", "smaller"]),
    "too many layers": ([*SMALL, "model.depth=1001", *OUT], ["model.depth=1001", "less than or equal to 1000"]),
    "convolution looks too far": ([*CONV, "model.growth=60000", *OUT], ["growth", "120,002 positions", "65,536"]),
    "deep convolution": ([*CONV, "model.depth=17", *OUT], ["model.depth=17", "16 of 17 layers", "131,070"]),
    "more samples than tokens": (
        [*LSTM, "model.output=sampled", "model.output.samples=1000000000000", *OUT],
        ["model.output.samples", "1000000000000 samples", "fewer"],
    ),
    "adaptive softmax of no width": (
        [*LSTM, "model.width=8", "model.output={kind: adaptive, cutoffs: [5, 9, 14]}", *OUT],
        ["model.output.shrink", "nothing of width 8", "fewer cutoffs"],
    ),
    "seed too large": ([*SMALL, "training.seed=99999999999999999999", *OUT], ["'training.seed' is too large"]),
    # where a run may go
    "out is a file": ([*SMALL, "--out", "{text}"], ["text.txt: is a file", "--out"]),
    "out below a file": ([*SMALL, "--out", "{text}/out"], ["text.txt", "--out"]),
    "out is another folder": ([*SMALL, "--out", "{bad}/other"], ["other: holds other files", "--out"]),
    "out is a run": ([*SMALL, "--out", "{gpt}"], ["already holds a run", "--resume"]),
    "out cannot be written": ([*SMALL, "--out", "/proc/seqlab/out"], ["cannot write here", "--out"]),
    "out has no value": ([*SMALL, "--out"], ["--out", "argument"]),
    "resume with other settings": (
        [*LSTM, "model.width=64", "training.learning_rate=1", "--out", "{lstm}", "--resume"],
        ["model.width was 32, now 64", "training.learning_rate was 0.006, now 1.0", "training.steps was 40, now 2"],
    ),
    "resume a broken recipe": ([*SMALL, "--out", "{bad}/broken-recipe", "--resume"], ["recipe.yaml, line 1"]),
    # commands and options
    "unknown command": (["trian"], ["no command 'trian'", "did you mean 'train'?", "seqlab --help"]),
    "unknown subcommand": (["tokenizer", "frob"], ["'frob'", "seqlab tokenizer --help"]),
    "unknown option": (["train", "lm/gpt", "--frob"], ["--frob", "seqlab train --help"]),
    "no recipe": (["train"], ["RECIPE", "seqlab train --help"]),
    "unknown recipe to print": (["recipes", "lm/gtp"], ["did you mean 'lm/gpt'?"]),
    "a beam, but no texts to score": (["evaluate", "{gpt}", "--beam", "2"], ["generates no texts", "leave --beam out"]),
    "beam and temperature": (["generate", "{gpt}", "--beam", "2", "--temperature", "1"], ["--beam", "--temperature"]),
    "top-p too large": (["generate", "{gpt}", "--top-p", "1.5"], ["--top-p", "1.5"]),
    "top-p zero": (["generate", "{gpt}", "--top-p", "0"], ["--top-p"]),
    "temperature below zero": (["generate", "{gpt}", "--temperature", "-1"], ["--temperature"]),
    "temperature not a number": (["generate", "{gpt}", "--temperature", "nan"], ["--temperature", "finite"]),
    "seed of a text too large": (["generate", "{gpt}", "--seed", "9" * 30], ["--seed"]),
    "suggest nothing": (["score", "{gpt}", "--suggest", "0"], ["--suggest"]),
    "compare nothing": (["compare", "data.train={text}"], ["RECIPE"]),
    "compare twice the same": (["compare", "lm/gpt", "lm/gpt"], ["called 'lm-gpt'", "`name`"]),
    "compare into another folder": (["compare", "lm/gpt", "name=../x"], ["'../x'", "folder"]),
    "compare with a key for one": (["compare", "lm/ngram", "lm/gpt", "model.width=8"], ["lm/ngram", "model.width"]),
    "compare soon": (["compare", "lm/gpt", "--budget", "soon"], ["--budget", "45s"]),
    "compare no seeds": (["compare", "lm/gpt", "--seeds", "0"], ["--seeds"]),
    "mix with no number": (
        ["mix", "{gpt}", "{gpt}", "--weight", "1", "--weight", "nan", *OUT],
        ["2 weights", "finite"],
    ),
    "mix on a missing file": (["mix", "{gpt}", "--data", "missing.txt", *OUT], ["'missing.txt'"]),
    "mix on no device": (["mix", "{gpt}", "--device", "cuda:77", *OUT], ["'cuda:77'", "auto"]),
    "demo soon": (["demo", "--budget", "soon"], ["--budget", "45s"]),
    "check a missing file": (["data", "check", "missing.txt"], ["no file or folder 'missing.txt'"]),
    "tokenizer of no kind": (["tokenizer", "train", "bep", "{text}", *OUT], ["'bep'", "did you mean 'bpe'?"]),
    "tokenizer of a missing file": (["tokenizer", "train", "bpe", "missing.txt", *OUT], ["'missing.txt'"]),
    # what a run may be
    "no run": (["generate", "missing"], ["no run folder 'missing'", "seqlab train"]),
    "run is a file": (["generate", "{text}"], ["no run folder"]),
    "run is another folder": (["evaluate", "{bad}/other"], ["other: not a run folder", "recipe.yaml"]),
    "run is an empty folder": (["score", "{bad}/nothing"], ["nothing: not a run folder"]),
    "run has a long name": (["generate", "a" * 5000], ["too long"]),
    "truncated tokenizer": (["generate", "{bad}/truncated-tokenizer"], ["tokenizer.json", "damaged"]),
    "no model.yaml": (["generate", "{bad}/no-model-yaml"], ["no-model-yaml", "model.yaml", "copy"]),
    "binary model.yaml": (["generate", "{bad}/binary-model-yaml"], ["model.yaml", "damaged"]),
    "broken recipe.yaml": (["generate", "{bad}/broken-recipe"], ["recipe.yaml, line 1", "invalid YAML"]),
    "empty recipe.yaml": (["generate", "{bad}/empty-recipe"], ["recipe.yaml", "mapping"]),
    "other tokenizer": (["generate", "{bad}/other-tokenizer"], ["tokenizer", "does not belong"]),
    "other width": (["generate", "{bad}/other-width"], ["checkpoint", "32", "64"]),
    "edited recipe.yaml": (["generate", "{bad}/edited"], ["recipe.yaml (changed)", "seqlab accept"]),
    "edited, resumed": ([*SMALL, "--out", "{bad}/edited", "--resume"], ["recipe.yaml (changed)", "seqlab accept"]),
    "no such step": (["score", "{gpt}", "--checkpoint", "7"], ["no checkpoint of step 7", "steps 35, 40"]),
    "neither step nor name": (["score", "{gpt}", "--checkpoint", "first"], ["'first' is not a step"]),
    "accept no run": (["accept", "{bad}/nothing"], ["nothing: has no recipe.yaml"]),
    "accept no folder": (["accept", "missing"], ["no run folder 'missing'"]),
    "no checkpoint": (["generate", "{bad}/no-checkpoint"], ["no intact checkpoint", "--resume"]),
    # what is asked of a run
    "prompt too long": (["generate", "{gpt}", "--prompt", "a" * 100], ["101 tokens", "32", "shorten"]),
    "prompt not Unicode": (["generate", "{lstm}", "--prompt", "a\udce9"], ["surrogate U+DCE9 at character 1"]),
    "evaluate a missing file": (["evaluate", "{lstm}", "--data", "missing.txt"], ["'missing.txt'"]),
    "evaluate an empty name": (["evaluate", "{lstm}", "--data", ""], ["an empty name"]),
    "evaluate an empty file": (["evaluate", "{lstm}", "--data", "{bad}/empty.txt"], ["empty file"]),
    "evaluate other columns": (["evaluate", "{lstm}", "--data", "{bad}/other.csv"], ["line 2", "no column 'text'"]),
    "evaluate a broken row": (["evaluate", "{lstm}", "--data", "{bad}/broken.jsonl"], ["line 2", "invalid JSON"]),
    "evaluate no rows at once": (["evaluate", "{lstm}", "--batch-size", "0"], ["--batch-size"]),
    "score an empty file": (["score", "{lstm}", "{bad}/empty.txt"], ["empty.txt: empty file"]),
    "score nothing": (["score", "{lstm}"], ["standard input: no lines", "FILE"]),
    "score Latin-1": (["score", "{lstm}", "{bad}/latin.txt"], ["latin.txt, line 2"]),
    # code of one's own
    "missing code": ([*LSTM, "--code", "missing.py", *OUT], ["--code missing.py", "Python file"]),
    "code is a folder": ([*LSTM, "--code", "{bad}/nothing", *OUT], ["--code", "nothing"]),
    "code with a fault in it": ([*LSTM, "--code", "{bad}/syntax.py", *OUT], ["syntax.py, line 2", "SyntaxError"]),
    "code that raises": ([*LSTM, "--code", "{bad}/raises.py", *OUT], ["raises.py, line 3", "KeyError: 'gone'"]),
    "code is no Python": ([*LSTM, "--code", "{bad}/binary.txt", *OUT], ["--code", "binary.txt"]),
    "code with a name that is taken": ([*LSTM, "--code", "{bad}/taken.py", *OUT], ["cell name 'lstm' is taken"]),
}


@pytest.mark.parametrize(("arguments", "parts"), CASES.values(), ids=CASES)
def test_one_line_and_nothing_left_behind(arguments, parts, here, bad, runs, text, seqlab):
    before = listing(bad), listing(runs["gpt"].parent), text.read_bytes()
    said = seqlab(*filled(arguments, bad=bad, text=text, **runs))
    assert said.code == 2, said.err + said.out
    assert len(said.errors) == 1, said.err
    assert said.err.splitlines()[-1] == said.errors[0]
    assert "Traceback" not in said.err + said.out
    assert said.out == ""
    for part in parts:
        assert part in said.errors[0]
    assert list(here.iterdir()) == []
    assert (listing(bad), listing(runs["gpt"].parent), text.read_bytes()) == before


def filled(arguments: list[str], **places: Path) -> list[str]:
    for name, path in places.items():
        arguments = [argument.replace(f"{{{name}}}", str(path)) for argument in arguments]
    return arguments


def test_standard_input_that_is_no_text(seqlab, runs):
    said = seqlab("score", runs["lstm"], stdin=b"caf\xe9\n")
    assert said.code == 2
    assert said.errors == [
        "error: standard input: not UTF-8 text (line 1, byte 3); convert it first, for example with iconv"
    ]


def test_through_the_console_script(script, here, runs):
    """The same from outside: a usage error, an error before and one after the libraries are loaded."""
    for arguments, part in [
        (["trian"], "did you mean 'train'?"),
        (["train", "lm/gpt", "model.widht=3", "--out", "out"], "did you mean 'width'?"),
        (["generate", str(runs["gpt"]), "--prompt", "a" * 100], "101 tokens"),
        (["generate", str(runs["gpt"]), "--prompt", b"caf\xe9"], "surrogate"),
    ]:
        done = subprocess.run([script, *arguments], capture_output=True)
        err = done.stderr.decode("utf-8")
        assert done.returncode == 2
        assert done.stdout == b""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert part in err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("length", ["training.steps=2", "training.budget=5s"])
@pytest.mark.parametrize("made", [False, True], ids=["new folder", "empty folder"])
def test_a_first_step_that_finds_no_memory_leaves_nothing(seqlab, here, text, length, made, monkeypatch):
    monkeypatch.setattr(Trainer, "learn", lambda self, cursor, indices: torch.empty(1 << 50))
    if made:
        (here / "out").mkdir()
    said = seqlab(*filled(LSTM, text=text), length, "--out", "out")
    assert said.code == 2
    assert "memory" in said.errors[0]
    assert "training.batch_size" in said.errors[0]
    assert list(here.rglob("*")) == [here / "out"] * made


def test_what_was_saved_before_the_memory_was_full_stays(seqlab, here, text, monkeypatch):
    learn = Trainer.learn

    def fill(self, cursor, indices):
        return learn(self, cursor, indices) if self.progress.step < 1 else torch.empty(1 << 50)

    monkeypatch.setattr(Trainer, "learn", fill)
    command = [*filled(LSTM, text=text), "training.checkpoint_every=1", "--out", "out"]
    assert "memory" in seqlab(*command).errors[0]
    monkeypatch.setattr(Trainer, "learn", learn)
    assert seqlab(*command, "--resume").code == 0


# ------------------------------------------------------------ odd, but not wrong


def test_unknown_characters_in_a_prompt_are_the_unknown_token(seqlab, runs):
    said = seqlab("generate", runs["lstm"], "--prompt", "日本 Ω", "--tokens", 5)
    assert said.code == 0
    assert said.out.startswith("日本 Ω")
    pieces = json.loads(seqlab("tokenizer", "encode", runs["lstm"], "日 a", "--json").out)["pieces"]
    assert pieces == ["<unk>", "␣", "a"]


def test_a_nul_in_a_prompt_is_a_character(seqlab, runs):
    assert seqlab("generate", runs["gpt"], "--prompt", "a\0b", "--tokens", 2).out.startswith("a\0b")
    assert seqlab("score", runs["gpt"], stdin="a\0b\n").code == 0


@pytest.mark.parametrize("change", ["training.batch_size=100000", "training.accumulate=50", "task.stride=1"])
def test_sizes_larger_than_the_data_are_cut_to_it(seqlab, here, text, change):
    said = seqlab(*filled(SMALL, text=text), change, "--out", "out")
    assert said.code == 0, said.err


@pytest.mark.parametrize("recipe", [SMALL, LSTM])
def test_a_text_shorter_than_a_window_is_one_window(seqlab, here, recipe):
    write(here / "short.txt", "To be, or not to be, that is the question.\n" * 4)
    arguments = filled(recipe, text=here / "short.txt")
    said = seqlab(*arguments, "task.window=1000", "model.kind=recurrent", "--out", "out")
    assert said.code == 0, said.err
    assert seqlab("evaluate", "out").code == 0


# ------------------------------------------------------------- code of one's own


def test_code_is_asked_for_at_load_and_must_be_the_same(seqlab, here, text, monkeypatch):
    def forget():
        monkeypatch.setattr(registry, "_given", {})
        monkeypatch.setattr(run, "_imported", {})

    write(here / "mine.py", CODE)
    write(here / "wrong.py", CODE + "# changed\n")
    train = [*filled(LSTM, text=text), "model.cell=mine", "--out", "out"]
    forget()
    assert seqlab(*train).code == 2
    assert seqlab(*train, "--code", "mine.py").code == 0
    for arguments in (["generate", "out"], ["evaluate", "out"], ["score", "out"], [*train, "--resume"]):
        forget()
        assert "--code" in seqlab(*arguments, stdin="a\n").errors[0] or arguments[0] == "train"
        forget()
        assert seqlab(*arguments, "--code", "mine.py", stdin="a\n").code == 0
        forget()
        said = seqlab(*arguments, "--code", "wrong.py", stdin="a\n")
        assert said.code == 2
        assert "was trained with mine.py, and wrong.py is another file" in said.errors[0]
        assert "seqlab accept out --code wrong.py" in said.errors[0]
    forget()
    said = seqlab("accept", "out", "--code", "wrong.py")
    assert said.code == 0
    assert "wrong.py: changed (sha256 " in said.out
    forget()
    assert seqlab("evaluate", "out", "--code", "wrong.py").code == 0
    assert "nothing has changed" in seqlab("accept", "out", "--code", "wrong.py").out
    assert seqlab("accept", "out", "--code", "mine.py", "--code", "wrong.py").code == 2


def test_code_that_a_recipe_does_not_use_is_not_asked_for(seqlab, here, text, monkeypatch):
    monkeypatch.setattr(registry, "_given", {})
    monkeypatch.setattr(run, "_imported", {})
    write(here / "neighbour.py", "from seqlab.nn.cells import Elman\n")
    write(here / "mine.py", "import neighbour\n" + CODE)
    assert seqlab(*filled(LSTM, text=text), "--out", "out", "--code", "mine.py").code == 0
    monkeypatch.setattr(run, "_imported", {})
    assert seqlab("evaluate", "out").code == 0
    assert "without custom code" in seqlab("accept", "out", "--code", "mine.py").errors[0]


BROKEN = """
import torch
import seqlab
from seqlab.nn.cells import Elman
from seqlab.objectives.next_token import NextToken
from seqlab.objectives.objective import Loss
from seqlab.tasks.language_modelling import LanguageModelling


class Cell(Elman):
    def step(self, inputs, state):
        return super().step(inputs, state)[0]


class Objective(NextToken):
    def forward(self, batch, state=None):
        loss = super().forward(batch, state)
        return {returned}


class Task(LanguageModelling):
    better = "{better}"
    metric = "{metric}"


seqlab.register("cell", "cell-of-mine", Cell)
seqlab.register("objective", "objective-of-mine", Objective)
seqlab.register("task", "task-of-mine", Task)
"""
CONTRACTS = {
    "a step": ("loss", "lower", "loss", "model.cell=cell-of-mine", "Cell: step returned a Tensor; return a tuple"),
    "a tensor": (
        "loss.sum",
        "lower",
        "loss",
        "objective.kind=objective-of-mine",
        "forward returned Tensor; return Loss",
    ),
    "a count": ("Loss(loss.sum, 3)", "lower", "loss", "objective.kind=objective-of-mine", "the count 3; return Loss"),
    "better": ("loss", "max", "loss", "task.kind=task-of-mine", "'better' is 'max'; write higher or lower"),
    "a metric": ("loss", "lower", "losss", "task.kind=task-of-mine", "metrics() does not return 'losss'"),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_class_of_ones_own_that_breaks_a_contract(seqlab, here, text, monkeypatch, name):
    returned, better, metric, key, message = CONTRACTS[name]
    monkeypatch.setattr(registry, "_given", {})
    monkeypatch.setattr(run, "_imported", {})
    write(here / "mine.py", BROKEN.format(returned=returned, better=better, metric=metric))
    said = seqlab(*filled(LSTM, text=text), key, "--out", "out", "--code", "mine.py")
    assert said.code == 2
    assert message in said.errors[0]
    assert not (here / "out").exists()


def test_a_class_of_ones_own_without_a_method():
    from seqlab.metrics.metric import Metric

    with pytest.raises(SeqlabError, match="Half lacks figure"):
        registry.register("metric", "half", type("Half", (Metric,), {"statistics": lambda *_: None}))
