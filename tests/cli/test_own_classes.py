"""Classes of a person's own, from a task to a metric: what they get wrong is one line that names their class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqlab import registry
from seqlab.runs import run

TASK = '''
import torch
from torch import nn

import seqlab
from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.formats.contents import Asked
from seqlab.data.reading.readers import as_given, read
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings
from seqlab.tasks.abilities import Answers
from seqlab.tasks.outcomes import Forecasted
from seqlab.tasks.task import Task
from seqlab.tokenizers.fitted import fitted

ROLES, ANSWERS, TEXTS = ("first", "second", "similarity"), ("similarity",), ("first", "second")


class Pairs(Examples):
    def __init__(self, records, tokenizer, truth=None, training=False):
        self.read, self.truth = records, truth
        self.texts = {role: tokenizer.encode_batch([one.fields[role] for one in records]) for role in TEXTS}
        lengths = [min(len(a), len(b)) and len(a) + len(b) for a, b in zip(*self.texts.values())]
        super().__init__(lengths, training)

    def records(self):
        return self.read

    def batch(self, indices, key):
        tensors = {}
        for role in TEXTS:
            tensors[f"{role}.tokens"], tensors[f"{role}.mask"] = padded([self.texts[role][i] for i in indices])
        if self.truth is not None:
            tensors["truth"] = torch.tensor([self.truth[i] for i in indices])
        return Batch(tensors, records=[self.read[i] for i in indices])


class Similar(Objective):
    """Two encodings, one number"""

    Settings = PartSettings

    def __init__(self, settings, body, head):
        super().__init__()
        self.body, self.head = body, head

    def vector(self, batch):
        encoded = self.body(batch)
        mask = encoded.mask.unsqueeze(-1)
        return self.head((encoded.states * mask).sum(1) / mask.sum(1))

    def guess(self, batch):
        a, b = (self.vector(batch.part(role)) for role in TEXTS)
        return torch.sigmoid((a * b).sum(-1))

    def forward(self, batch, state=None):
        squares = (self.guess(batch) - batch["truth"]) ** 2
        return Loss(squares.sum(), torch.tensor(len(squares)))


class Pair(Task, Answers):
    Settings = PartSettings

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    @classmethod
    def reads(cls, recipe):
        return Asked(recipe.data, ROLES, answers=ANSWERS)

    @classmethod
    def prepare(cls, recipe, tokenizer=None):
        return cls(tokenizer or fitted(recipe.tokenizer, recipe.data, TEXTS, among=ROLES, answers=ANSWERS))

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer)

    @property
    def sizes(self):
        return {"vocab_size": self.tokenizer.vocab_size}

    def head(self, body):
        return nn.Linear(body.width, 4)

    def split(self, data, which, training):
        records = list(read(data, which, ROLES, answers=ANSWERS))
        return Pairs(records, self.tokenizer, [float(one.fields["similarity"]) for one in records], training)

    def metrics(self, totals, split):
        return {"loss": totals["sum"] / totals["count"]}

    def asked(self, data):
        return Pairs(list(read(as_given(data), "valid", TEXTS)), self.tokenizer)

    def answers(self, objective, batch):
        found = zip(batch.records, objective.guess(batch).tolist())
        return [{"text": record.fields["first"], "answer": f"{number:.2f}"} for record, number in found]

    def outcomes(self, objective, batch):
        found = zip(batch.records, objective.guess(batch).tolist(), batch["truth"].tolist())
        return [
            Forecasted(record, record.fields["first"], 0.0, ["similarity"], [[truth]], [[number]])
            for record, number, truth in found
        ]


seqlab.register("objective", "similar-of-mine", Similar)
seqlab.register("task", "pair-of-mine", Pair)
'''
RECIPE = """\
task: {kind: pair-of-mine}
data: {train: pairs.tsv, hold_out: 0.2}
tokenizer: {kind: word}
model: {kind: recurrent-encoder, width: 8, embedding: 8}
objective: {kind: similar-of-mine}
training: {steps: 2, batch_size: 8}
"""
WORDS = ["red", "green", "blue", "black", "white"]
CODE = ["--code", "mine.py"]
TRAIN = ["train", "mine.yaml", "--out", "out", *CODE]


@pytest.fixture
def mine(here, monkeypatch) -> Path:
    """A folder with a task of one's own, its recipe and its data; no class of an earlier test is known."""
    monkeypatch.setattr(registry, "_given", {})
    monkeypatch.setattr(run, "_imported", {})
    (here / "mine.py").write_text(TASK)
    (here / "mine.yaml").write_text(RECIPE)
    rows = [f"{a} {b}\t{c} {a}\t{int(b == c)}" for a in WORDS for b in WORDS for c in WORDS]
    (here / "pairs.tsv").write_text("\n".join(["first\tsecond\tsimilarity", *rows]))
    return here


def changed(before: str, after: str) -> None:
    """Break the task."""
    assert before in TASK
    Path("mine.py").write_text(TASK.replace(before, after))


def refusal(said) -> str:
    """The one line of an error."""
    assert said.code == 2, said.err + said.out
    assert "Traceback" not in said.err
    (line,) = said.errors
    return line


# ------------------------------------------------------------------ answers


def test_unknown_tokens_are_counted_in_all_texts_of_a_batch(mine, seqlab):
    assert seqlab(*TRAIN).code == 0
    (mine / "asked.tsv").write_text("first\tsecond\nred pink\tblue mauve\ngreen\tblue\n")
    said = seqlab("predict", "out", "asked.tsv", "--json", *CODE)
    assert said.code == 0, said.err
    assert [json.loads(line)["unknown"] for line in said.out.splitlines()] == [2, 0]


def test_a_batch_without_tokens_has_no_unknown_ones(mine, seqlab):
    changed('f"{role}.tokens"], tensors[f"{role}.mask"]', 'f"{role}.ids"], tensors[f"{role}.mask"]')
    text = (mine / "mine.py").read_text()
    part = 'encoded = self.body({"tokens": batch["ids"], "mask": batch["mask"]})'
    (mine / "mine.py").write_text(text.replace("encoded = self.body(batch)", part))
    assert seqlab(*TRAIN).code == 0
    said = seqlab("predict", "out", "pairs.tsv", "--json", *CODE)
    assert said.code == 0, said.err
    assert "unknown" not in json.loads(said.out.splitlines()[0])


# ------------------------------------------------------------------ metrics

METRIC = """
import numpy as np
import seqlab
from seqlab.metrics.metric import Metric


class Mine(Metric):
    def statistics(self, hypothesis, references):
        return {statistics}

    def figure(self, sums):
        return {figure}


seqlab.register("metric", "metric-of-mine", Mine)
"""
SMALL = ["train", "translation/transformer", "data.train=reverse", "model.width=8", "model.heads=1", "model.depth=1"]
SMALL += ["training.steps=2", "training.batch_size=8", "task.judged=4", "--out", "out"]


@pytest.mark.parametrize("more", [["task.best=metric-of-mine"], ["task.metrics=[metric-of-mine]"], ["--check"]])
def test_a_metric_is_tried_before_anything_is_trained(mine, seqlab, more):
    (mine / "mine.py").write_text(METRIC.format(statistics="np.ones(len(hypothesis.split()))", figure="0.0"))
    more = [*more, "task.best=metric-of-mine"] if more == ["--check"] else more
    line = refusal(seqlab(*SMALL, *more, *CODE))
    assert "metric 'metric-of-mine': statistics() returned 3 numbers for line 1 and 0 for line 2" in line
    assert not (mine / "out").exists()


def test_no_figure_is_never_the_best(mine, seqlab):
    (mine / "mine.py").write_text(METRIC.format(statistics="[1, 0]", figure="sums[0] / sums[1]"))
    said = seqlab(*SMALL, "task.best=metric-of-mine", "task.metrics=[metric-of-mine]", *CODE)
    assert said.code == 0, said.err
    assert "'metric-of-mine' is nan at step 2: not taken for the best checkpoint" in said.err
    assert json.loads((mine / "out/checkpoints/step-00000002/state.json").read_text())["best"] is None
    said = seqlab("evaluate", "out", "--json", *CODE)
    found = json.loads(said.out)
    assert found["metric-of-mine"] is None
    assert found["notes"][-1].startswith("metric-of-mine: no figure")
    (mine / "a.txt").write_text("a b\nc\n")
    said = seqlab("metrics", "a.txt", "a.txt", "--metric", "metric-of-mine", *CODE)
    assert "–" in said.out
    assert "note: metric-of-mine: no figure" in said.err


# ------------------------------------------------------------------ objectives, models and tasks that do not fit

LM = "use next-token"
MISFITS = {
    "lm/char objective=tags": ["objective.kind: 'tags'", "model 'recurrent'", LM],
    "lm/char objective=forecast": ["objective.kind: 'forecast'", LM],
    "lm/char objective=fed-back-tags": ["objective.kind: 'fed-back-tags'", LM],
    "lm/char objective=node-classes": ["objective.kind: 'node-classes'", LM],
    "lm/ngram objective=tags": ["objective.kind: 'tags'", LM],
    "lm/gpt model={kind: recurrent-encoder}": ["model.kind: objective 'next-token'", "LanguageModel", "gpt, m"],
    "classification/characters objective=next-token": ["objective.kind: 'next-token'", "use classes"],
    "classification/characters objective=node-classes": ["objective.kind: 'node-classes'", "use classes"],
    "translation/transformer objective=tags": ["objective.kind: 'tags'", LM],
    "forecasting/rnn objective=next-token": ["objective.kind: 'next-token'", "use forecast"],
}


@pytest.mark.parametrize("what", MISFITS)
def test_an_objective_or_a_model_that_does_not_fit_the_task(here, seqlab, text, what):
    recipe, change = what.split(" ", 1)
    (here / "table.tsv").write_text("text\tlabel\n" + "".join(f"word {n}\t{'ab'[n % 2]}\n" for n in range(200)))
    data = {
        "lm": [f"data.train={text}"],
        "classification": ["data.train=table.tsv"],
        "translation": ["data.train=reverse"],
    }
    line = refusal(seqlab("train", recipe, change, *data.get(recipe.split("/")[0], []), "training.steps=1"))
    for part in MISFITS[what]:
        assert part in line
    assert not (here / "runs").exists()


def test_an_objective_of_ones_own_that_declares_its_model(mine, seqlab, text):
    declared = "from seqlab.models.encoder import Encoder\n    body_type = Encoder"
    changed('"""Two encodings, one number"""\n', declared)
    arguments = ["train", "lm/rnn", f"data.train={text}", "objective=similar-of-mine", "training.steps=1"]
    line = refusal(seqlab(*arguments, *CODE))
    assert "objective.kind: 'similar-of-mine' is not an objective for task 'language-modelling'" in line
    assert line.endswith("use next-token")


def test_a_model_that_reads_what_a_task_of_ones_own_does_not_give(mine, seqlab):
    changed("self.vector(batch.part(role)) for", "self.vector(batch) for")
    line = refusal(seqlab(*TRAIN))
    assert (
        "a batch of this task has no 'tokens' (it has first.tokens, first.mask, second.tokens, second.mask, t" in line
    )
    assert not (mine / "out").exists()


# ------------------------------------------------------------------ cells

CELL = """
import torch
import seqlab
from seqlab.nn.cells import Cell


class Foo(Cell):
    blocks = {blocks}

    def step(self, inputs, state):
        (h,) = state
        return ({after},)


seqlab.register("cell", "cell-of-mine", Foo)
"""
H = "torch.tanh(inputs + self.recurrent(h))"
STATES = {
    "of two blocks": (2, H, "(B, 32); it should be (B, 16)"),
    "of one row": (1, f"{H}[:1]", "(1, 16); it should be (B, 16)"),
    "of one number a row": (1, f"{H}[:, :1]", "(B, 1); it should be (B, 16)"),
    "without dimensions": (1, f"{H}.mean()", "(); it should be (B, 16)"),
    "that is no tensor": (1, "0.5", "Foo: step returned 0.5 as 'h'; return a tensor of (B, 16)"),
}
RNN = ["train", "lm/rnn", "model.cell=cell-of-mine", "tokenizer=character", "training.steps=2", "--out", "out", *CODE]
RNN += ["model.width=16", "model.embedding=16"]


def celled(after: str, blocks: int = 1) -> None:
    Path("mine.py").write_text(CELL.format(blocks=blocks, after=after))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", STATES)
def test_a_state(mine, seqlab, text, monkeypatch, name, fused):
    blocks, after, message = STATES[name]
    celled(after, blocks)
    if not fused:
        monkeypatch.setattr("seqlab.nn.recurrent.fused", unfused)
    line = refusal(seqlab(*RNN, f"data.train={text}"))
    assert message in line
    assert "Foo: step returned " in line


def unfused(*given, **more):
    from seqlab.fusion.trace import NotFused

    raise NotFused("a test")


def test_a_cell_that_draws_random_numbers(mine, seqlab, text):
    celled(f"{H} + 0.1 * torch.randn_like(h)")
    said = seqlab(*RNN, f"data.train={text}")
    assert said.code == 0, said.err
    for arguments in (["evaluate", "out"], ["generate", "out", "--tokens", "4"], ["score", "out"]):
        said = seqlab(*arguments, *CODE, stdin="a cat\n")
        assert said.code == 0, said.err
        assert said.err.count("note: Foo draws random numbers: figures and texts differ from call to call;") == 1
    assert "Foo draws" in json.loads(seqlab("evaluate", "out", "--json", *CODE).out)["notes"][-1]
    celled(f"{H} + 0.1 * torch.randn_like(h) * self.training")
    (mine / "mine.py").write_text((mine / "mine.py").read_text().replace("torch.randn_like(h)", "self.noise(h)"))
    noise = "    def noise(self, h):\n        return torch.randn_like(h) if self.training else 0\n\n    def step"
    (mine / "mine.py").write_text((mine / "mine.py").read_text().replace("    def step", noise))
    assert seqlab("accept", "out", *CODE).code == 0
    assert "random" not in seqlab("evaluate", "out", *CODE).err


# ------------------------------------------------------------------ contracts of a task

FIGURES = 'return {"loss": totals["sum"] / totals["count"]}'
MEMORY = "    def memory(self):\n        return {'a': torch.ones(1)}\n\n    def head("
BROKEN = {
    "metrics are None": (FIGURES, "pass", "Pair: metrics() returned NoneType; return a dict of numbers"),
    "a metric is text": (FIGURES, 'return {"loss": "good"}', "metrics() returned 'good' (str) as 'loss'"),
    "a metric is a tensor": (FIGURES, 'return {"loss": torch.ones(())}', "returned tensor(1.) (Tensor) as 'loss'"),
    "a sum is a vector": (
        "Loss(squares.sum(),",
        "Loss(squares,",
        "Similar: forward returned a Loss with a sum of shape (8,)",
    ),
    "memory": ("    def head(", MEMORY, "Pair: memory holds what YAML cannot: tensor([1.])"),
    "prepare": (
        "return cls(tokenizer or fitted",
        "cls(tokenizer or fitted",
        "Pair: prepare() returned NoneType; return the task",
    ),
    "split": ("return Pairs(records", "Pairs(records", "Pair: split() returned NoneType; return examples"),
    "no sizes": (
        'return {"vocab_size": self.tokenizer.vocab_size}',
        "pass",
        "Pair: sizes are NoneType; return a dict of",
    ),
    "sizes": (
        'return {"vocab_size": self.tokenizer.vocab_size}',
        "return {}",
        "provides no sizes; choose another model.kind or add",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_task_that_breaks_a_contract(mine, seqlab, name):
    before, after, message = BROKEN[name]
    changed(before, after)
    assert message in refusal(seqlab(*TRAIN))
    assert not (mine / "out").exists()


def test_a_check_finds_a_broken_metric(mine, seqlab):
    changed(FIGURES, "pass")
    assert "metrics() returned NoneType" in refusal(seqlab(*TRAIN, "--check"))


ANSWER = '{"text": record.fields["first"], "answer": f"{number:.2f}"}'
ANSWERED = {
    "too few": ("return [" + ANSWER, "return [] and [" + ANSWER, "answers() returned 0 of them for 16 examples"),
    "no answer": (ANSWER, '{"text": "", "guess": 1}', "an answer without 'answer' (there are 'text', 'guess')"),
    "no text": (ANSWER, '{"answer": ""}', "an answer without 'text' (there are 'answer')"),
    "no dict": (ANSWER, "'yes'", "an answer without 'answer' and 'text' ('yes'); return a dict"),
    "outcomes": (
        "return [\n            Fore",
        "return [] and [\n            Fore",
        "outcomes() returned 0 of them for 16",
    ),
    "asked": (
        "return Pairs(list(read(as_given",
        "Pairs(list(read(as_given",
        "asked() returned NoneType; return examples",
    ),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_answers_that_break_a_contract(mine, seqlab, name):
    before, after, message = ANSWERED[name]
    changed(before, after)
    assert seqlab(*TRAIN, "training.batch_size=16").code == 0
    command = ["evaluate", "out", "--errors"] if name == "outcomes" else ["predict", "out", "pairs.tsv"]
    line = refusal(seqlab(*command, *CODE))
    assert line.startswith("error: Pair: ")
    assert message in line


def test_what_is_held_out_must_be_read_with_the_answers_that_are_declared(mine, seqlab):
    assert "held out by what reads()" not in seqlab(*TRAIN).err
    changed("which, ROLES, answers=ANSWERS))\n        return Pairs", "which, ROLES))\n        return Pairs")
    said = seqlab(*TRAIN[:3], "other", *CODE)
    assert said.code == 0, said.err
    assert "note: Pair: 24 records are held out by what reads() declares, and split() has " in said.err


# ------------------------------------------------------------------ errors that a file of one's own raises

RAISED = {
    "in the file": (
        'batch["truth"]) ** 2',
        'batch["truth"]) ** missing',
        "in mine.py, line 57: NameError: name 'missing'",
    ),
    "below the file": (
        "self.body, self.head = body, head",
        "self.body = body",
        "mine.py, line 50: AttributeError: 'Similar'",
    ),
    "without a message": (
        "squares = (",
        "assert False\n        squares = (",
        "in mine.py, line 57: AssertionError (the calls",
    ),
    "no head": ("    def head(", "    def other(", "in mine.py, line 50: TypeError: 'NoneType' object is not callable"),
}


@pytest.mark.parametrize("name", RAISED)
def test_an_error_in_a_file_of_ones_own_is_one_line(mine, seqlab, monkeypatch, name):
    before, after, message = RAISED[name]
    changed(before, after)
    said = seqlab(*TRAIN)
    assert message in refusal(said)
    assert not (mine / "out").exists()
    monkeypatch.setenv("SEQLAB_TRACEBACK", "1")
    said = seqlab(*TRAIN)
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("error: in ")


def test_an_error_in_a_file_of_ones_own_in_python(mine):
    import seqlab

    changed('batch["truth"]) ** 2', 'batch["truth"]) ** missing')
    with pytest.raises(NameError):
        seqlab.train("mine.yaml", out="out", code="mine.py")


def test_an_error_in_a_neighbour_of_a_file_of_ones_own(mine, seqlab):
    (mine / "near_of_mine.py").write_text("def twice(x):\n    return x.missing\n")
    changed('batch["truth"]) ** 2', 'batch["truth"]) ** near_of_mine.twice(2)')
    (mine / "mine.py").write_text("import near_of_mine\n" + (mine / "mine.py").read_text())
    assert "in near_of_mine.py, line 2: AttributeError: 'int' object" in refusal(seqlab(*TRAIN))


CLASS = """
import seqlab
from seqlab.objectives.next_token import NextToken


class Mine(NextToken):
    read = None


seqlab.register("objective", "objective-of-mine", Mine)
"""


def test_an_error_in_an_inherited_method(mine, seqlab, text):
    (mine / "mine.py").write_text(CLASS)
    arguments = ["train", "lm/rnn", f"data.train={text}", "objective=objective-of-mine", "training.steps=1"]
    assert "in class Mine: TypeError: 'NoneType' object is not callable" in refusal(seqlab(*arguments, *CODE))


def test_a_file_that_registers_nothing(mine, seqlab):
    (mine / "mine.py").write_text("import seqlab\n")
    said = seqlab(*TRAIN)
    assert "unknown task 'pair-of-mine'" in refusal(said)
    assert "note: mine.py registers no class: end it with seqlab.register(" in said.err


def test_the_help_says_what_else_may_be_named(seqlab):
    assert "or your own (--code)" in " ".join(seqlab("metrics", "--help").out.split())
    assert "or a run folder, whose recipe" in " ".join(seqlab("train", "--help").out.split())


def test_a_constructor_with_other_arguments(mine, seqlab, text):
    celled(H)
    constructor = "    def __init__(self, width):\n        pass\n\n    def step"
    (mine / "mine.py").write_text((mine / "mine.py").read_text().replace("    def step", constructor))
    line = refusal(seqlab(*RNN, f"data.train={text}"))
    assert "in class Foo: TypeError: Foo.__init__() takes 2 positional arguments but 4 were given" in line


def test_examples_without_lengths(mine, seqlab):
    changed("        super().__init__(lengths, training)\n", "")
    assert "Pairs: its constructor does not call super().__init__(lengths, training)" in refusal(seqlab(*TRAIN))


def test_a_class_of_ones_own_without_its_file(mine, seqlab, text, monkeypatch):
    monkeypatch.setattr(registry, "_given", {})
    line = refusal(seqlab("train", "lm/rnn", f"data.train={text}", "model.cell=elmann", "training.steps=1"))
    assert "unknown cell 'elmann'; did you mean 'elman'?" in line
    assert line.endswith("a class of your own needs --code FILE")


def test_the_figure_that_decides_is_shown(mine, seqlab):
    changed(FIGURES, 'return {"loss": 1.0, "near": 2.0}')
    file = mine / "mine.py"
    file.write_text(
        file.read_text().replace("class Pair(Task, Answers):\n", 'class Pair(Task, Answers):\n    metric = "near"\n')
    )
    assert "held-out loss 1.0000, near 2.0000" in seqlab(*TRAIN).err


def test_an_objective_for_other_models_is_refused_before_the_head_is_made(mine, seqlab):
    declared = "from seqlab.models.encoder import Encoder\n    body_type = Encoder"
    changed('"""Two encodings, one number"""\n', declared)
    line = refusal(seqlab(*TRAIN, "model=gpt"))  # `head` would ask it for a width, which it has not
    assert "'similar-of-mine' is not an objective for task 'pair-of-mine' with model 'gpt'" in line


RESTORING = {
    "other arguments": (
        "def restore(cls, recipe, tokenizer, memory):",
        "def restore(cls, recipe, memory):",
        "restore()",
    ),
    "nothing": ("        return cls(tokenizer)\n", "        cls(tokenizer)\n", "restore() returned NoneType"),
    "a memory that is not kept": ("        return cls(tokenizer)\n", "        memory['scale']\n", "KeyError: 'scale'"),
}


@pytest.mark.parametrize("name", RESTORING)
def test_a_task_that_cannot_be_restored_is_not_trained(mine, seqlab, name):
    before, after, message = RESTORING[name]
    changed(before, after)
    said = seqlab(*TRAIN)
    assert message in refusal(said)
    assert "held-out" not in said.err
    assert not (mine / "out" / "recipe.yaml").exists()
