"""Models, tasks and objectives that seqlab does not ship go through the same trainer, checkpoints and decoder.

Each file in spine/ is written against public interfaces only; what is tested here is that nothing else is needed.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from tolerance import SMALL_NET, rounding

import seqlab
from seqlab.data.randomness import Key
from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.generate import generate
from seqlab.decoding.packing import packed
from seqlab.errors import SeqlabError
from seqlab.registry import find
from seqlab.runs.run import use_code
from seqlab.training.trainer import Silence

SPINE = Path(__file__).parent / "spine"
WORDS = [f"w{number}" for number in range(12)]


def reversals(rng):
    """Words, and the same words backwards."""
    words = rng.choices(WORDS, k=rng.randint(2, 6))
    return {"source": " ".join(words), "target": " ".join(reversed(words))}


def runs(rng):
    """Words that count up or down: each is known from its neighbours, and the class from any two of them."""
    start, way = rng.randrange(12), rng.choice([1, -1])
    words = [WORDS[(start + way * place) % 12] for place in range(rng.randint(4, 9))]
    return {"text": " ".join(words), "label": "up" if way == 1 else "down"}


def neighbours(rng):
    """A word is tagged by whether the next one, or else the one before, has a smaller number."""
    numbers = rng.sample(range(12), rng.randint(2, 8))
    near = [*numbers[1:], numbers[-2]]
    tags = ["falls" if other < own else "rises" for own, other in zip(numbers, near, strict=True)]
    return {"text": " ".join(WORDS[number] for number in numbers), "tags": " ".join(tags)}


def asked(rng):
    """Who, or when? The document has one name and one date among other words, anywhere in up to four windows."""
    words = rng.choices(WORDS, k=rng.randint(5, 60))
    name, date = rng.choice(["ada lovelace", "grace hopper"]), rng.choice(["december 1815", "june 1912"])
    first, second = sorted(rng.choices(range(len(words) + 1), k=2))
    one, other = (name, date) if rng.random() < 0.5 else (date, name)
    document = [*words[:first], one, *words[first:second], "and", other, *words[second:]]
    question, answer = rng.choice([("who", name), ("when", date)])
    return {"question": question, "document": " ".join(document), "answer": answer}


CASES = {
    "attention_translator": {
        "example": reversals,
        "recipe": {
            "task": "translation",
            "model": {"kind": "translator", "encoder": "reader", "decoder": "writer"},
            "objective": "next-token",
            "training": {"steps": 350, "learning_rate": 0.01},
        },
        "reaches": {"exact": 95.0},
    },
    "masked_encoder": {
        "example": runs,
        "recipe": {
            "task": "labelled-text",
            "model": {"kind": "transformer-encoder", "width": 32, "depth": 1, "heads": 4, "dropout": 0.1},
            "objective": "fill-in-and-classify",
            "training": {"steps": 900, "learning_rate": 0.01},
        },
        "reaches": {"words": 0.9, "classes": 0.95},
    },
    "tagger": {
        "example": neighbours,
        "recipe": {
            "task": "step-tagging",
            "model": "both-ways",
            "objective": "step-tags",
            "training": {"steps": 200, "learning_rate": 0.02},
        },
        "reaches": {"accuracy": 0.99},
    },
    "spans": {
        "example": asked,
        "recipe": {
            "task": "spans",
            "model": {"kind": "transformer-encoder", "width": 32, "depth": 1, "heads": 4},
            "objective": "point-to",
            "training": {"steps": 300, "learning_rate": 0.01},
        },
        "reaches": {"windows": 0.97},
    },
}


def write_data(folder, name):
    rng = random.Random(7)
    for split, count in (("train", 3000), ("valid", 200)):
        examples = [CASES[name]["example"](rng) for _ in range(count)]
        lines = ["\t".join(examples[0]), *("\t".join(example.values()) for example in examples)]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_recipe(folder, name):
    own = CASES[name]["recipe"]
    recipe = {
        **own,
        "name": name,
        "data": {"train": str(folder / "train.tsv"), "valid": str(folder / "valid.tsv")},
        "tokenizer": {"kind": "word", "split": "whitespace"},
        "training": {
            **own["training"],
            "batch_size": 48,
            "evaluate_every": 100,
            "checkpoint_every": 70,
            "accumulate": 2,
        },
        "decoding": {"tokens": 12},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


class Plug(Silence):
    """Pulled in the middle of a run, between two checkpoints."""

    def stepped(self, step, steps, figures):
        if step == 25:
            raise ConnectionError("the plug was pulled")


@pytest.fixture(scope="module")
def train_once(tmp_path_factory):
    """`train_once(name)`: the case's folder of data, and its run; made when first asked for."""
    made = {}

    def train(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            write_data(folder, name)
            run = seqlab.train(write_recipe(folder, name), out=folder / "run", code=SPINE / f"{name}.py")
            made[name] = folder, run
        return made[name]

    return train


@pytest.fixture(params=CASES)
def trained(request, train_once):
    return request.param, *train_once(request.param)


def test_it_learns(trained):
    name, _, run = trained
    metrics = run.evaluate()
    for metric, least in CASES[name]["reaches"].items():
        assert metrics[metric] >= least, metrics


def test_spans_are_found_in_documents_of_several_windows(train_once):
    """By the surest window that has one: characters of the document, whichever window they were read in."""
    _, run = train_once("spans")
    split = run.held_out()
    batch = split.batch(range(len(split)), Key(0, 0))
    with torch.no_grad():
        pointed = split.pointed(run.objective, batch)
    best, nowhere = {}, ((0, 0), -1e9)
    for record, (span, score) in zip(batch.records, pointed, strict=True):
        if span is not None and score > best.get(record.line, nowhere)[1]:
            best[record.line] = span, score
    documents = {record.line: record.fields for record in batch.records}
    assert len(split) > 1.5 * len(documents)  # windows
    right = [
        fields["document"][slice(*best.get(line, nowhere)[0])] == fields["answer"] for line, fields in documents.items()
    ]
    assert sum(right) / len(right) > 0.95


def test_an_interrupted_run_ends_with_the_same_bits(trained):
    name, folder, _ = trained
    recipe, code, whole, broken = folder / "recipe.yaml", SPINE / f"{name}.py", folder / "whole", folder / "broken"
    short = ["training.steps=40", "training.evaluate_every=20", "training.checkpoint_every=15"]
    seqlab.train(recipe, short, out=whole, code=code)
    with pytest.raises(ConnectionError):
        seqlab.train(recipe, short, out=broken, code=code, watcher=Plug())
    seqlab.train(recipe, short, out=broken, code=code, resume=True)
    names = sorted(path.name for path in (whole / "checkpoints").iterdir())
    assert names == sorted(path.name for path in (broken / "checkpoints").iterdir())
    for name in names:  # a manifest has the hash of every file: weights, optimizer, generators, cursor
        manifests = [json.loads((run / "checkpoints" / name / "MANIFEST.json").read_text()) for run in (whole, broken)]
        assert manifests[0] == manifests[1]
    assert (whole / "log.jsonl").read_text() == (broken / "log.jsonl").read_text()


def test_a_loaded_run_measures_the_same(trained):
    name, folder, run = trained
    loaded = seqlab.load(folder / "run", code=SPINE / f"{name}.py")
    assert loaded.evaluate() == run.evaluate()
    assert loaded.task.memory() == run.task.memory()


def test_batch_size_does_not_change_an_evaluation(trained):
    _, _, run = trained
    one, other = run.evaluate(batch_size=200), run.evaluate(batch_size=7)
    rounded = ("loss", "perplexity")
    assert {key: value for key, value in one.items() if key not in rounded} == {
        key: value for key, value in other.items() if key not in rounded
    }
    assert one["loss"] == pytest.approx(other["loss"], abs=rounding(SMALL_NET, 10))


def test_weights_are_called_body_and_head(trained):
    name, _, run = trained
    owners = {key.split(".")[0] for key in run.objective.state_dict()}
    assert owners == ({"body"} if name == "attention_translator" else {"body", "head"})


def test_only_models_that_write_can_be_asked_to(trained):
    name, _, run = trained
    if name == "attention_translator":
        assert run.generate("w1 w2 w3", temperature=0) == ["w3 w2 w1"]
    else:
        with pytest.raises(SeqlabError, match="does not predict tokens"):
            run.generate("w1 w2 w3")


def test_another_process_needs_the_code_and_is_told_so(train_once):
    folder, run = train_once("tagger")
    code = str(SPINE / "tagger.py")
    command = [sys.executable, "-c", "from seqlab.cli import main; main()", "evaluate", str(folder / "run")]
    without = subprocess.run(command, capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert "trained with custom code" in without.stderr
    assert without.stderr.count("\n") == 1
    given = subprocess.run([*command, "--code", code, "--json"], capture_output=True, text=True, check=False)
    assert given.returncode == 0, given.stderr
    assert json.loads(given.stdout)["loss"] == pytest.approx(run.evaluate()["loss"], abs=rounding(SMALL_NET, 10))


def test_code_may_use_dataclasses_and_annotations_of_any_kind(tmp_path):
    """Both look up names in the module that a class says it is from."""
    code = tmp_path / "mine.py"
    code.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar, Literal\n"
        "from seqlab.recipe import PartSettings\n"
        "from seqlab.registry import register\n"
        "@dataclass\n"
        "class Mine:\n"
        "    width: int = 3\n"
        "    class Settings(PartSettings):\n"
        "        shape: Literal['round', 'square'] = 'round'\n"
        "register('cell', 'mine', Mine)\n",
        encoding="utf-8",
    )
    use_code(code)
    mine = find("cell", "mine")
    assert mine().width == 3
    assert mine.Settings(kind="mine", shape="square").shape == "square"


# -------------------------------------------------------------------- the translator's decoding


@pytest.fixture
def translator(train_once):
    return train_once("attention_translator")[1]


def pairs(count=40):
    rng = random.Random(99)
    return [reversals(rng) for _ in range(count)]


def test_generate_with_sources_gives_the_targets(translator):
    examples = pairs()
    asked = translator.task.prompts([example["source"] for example in examples])
    found = [[] for _ in examples]
    for step in generate(translator.decoder, asked.tokens, tokens=12, stop=frozenset({0}), source=asked.source):
        for token in step:
            found[token.row].append(token.id)
    right = sum(
        translator.tokenizer.decode(ids) == example["target"] for ids, example in zip(found, examples, strict=True)
    )
    assert right >= 0.95 * len(examples)


def test_beam_search_with_a_source_gives_the_target(translator):
    right = 0
    for example in pairs(20):
        asked = translator.task.prompts([example["source"]])
        ((best, *others),) = beam_search(translator.decoder, asked.tokens, Beam(4), 12, frozenset({0}), asked.source)
        assert len(others) == 3
        right += translator.tokenizer.decode(best.tokens) == example["target"]
        assert translator.beam(example["source"], Beam(4))[0][0] == translator.tokenizer.decode(best.tokens)
    assert right >= 19


def test_a_translation_does_not_depend_on_its_neighbours(translator):
    """Sources of different lengths are padded in one batch: the same tokens as alone."""
    sources = [example["source"] for example in pairs(9)]
    together = ["" for _ in sources]
    for row, piece in translator.stream(sources, choose=translator.choose(temperature=0)):
        together[row] += piece
    assert together == [translator.generate(source, temperature=0)[0] for source in sources]


def test_sources_are_held_once_and_survive_select_and_join(translator):
    """What a server does as requests come and go: repeat, drop and join rows that read different sources."""
    model, first, second = packed(translator.model), "w1 w2 w3", "w9 w8 w7 w6 w5"
    states = [model.start(translator.task.prompts([text]).source) for text in (first, second)]
    keys = states[0].shared["keys"]
    many = states[0].select(torch.tensor([0, 0, 0]))
    assert many.shared["keys"] is keys
    joined = states[1].join(many).select(torch.tensor([2, 0]))  # one row of each
    assert len(joined.shared["keys"]) == 2
    tokens, texts = torch.zeros(2, dtype=torch.long), [[], []]
    with torch.inference_mode():
        for _ in range(6):
            logits, joined = model.step(tokens, joined)
            tokens = logits.argmax(-1)
            for row, token in enumerate(tokens.tolist()):
                texts[row].append(token)
    ends = [text[: text.index(0)] for text in texts]
    assert [translator.tokenizer.decode(text) for text in ends] == ["w3 w2 w1", "w5 w6 w7 w8 w9"]


def test_samples_of_one_source(translator):
    """More rows than sources: each source is read by as many rows."""
    source = translator.task.prompts(["w1 w2 w3", "w4 w5"]).source
    steps = list(generate(translator.decoder, [[0]] * 4, tokens=2, source=source))
    words = [[translator.tokenizer.token(token.id) for token in step] for step in steps]
    assert words == [["w3", "w3", "w5", "w5"], ["w2", "w2", "w4", "w4"]]
