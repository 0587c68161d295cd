"""Trainings of kinds that seqlab does not ship: started from another run, with several models, with experience.

Each is killed with SIGKILL between two checkpoints and resumed to the bit. Files in spine/ are written against public
interfaces only.
"""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import seqlab
from seqlab.runs.run import use_code

SPINE = Path(__file__).parent / "spine"
WORDS = [f"w{number}" for number in range(12)]
TRAINING = {"batch_size": 16, "evaluate_every": 40, "checkpoint_every": 15, "learning_rate": 0.01, "accumulate": 2}

KILLED = """
import os, signal, sys
import seqlab, torch
from seqlab.training.trainer import Silence

class Killed(Silence):
    def stepped(self, step, steps, figures):
        if step == 25:
            os.kill(os.getpid(), signal.SIGKILL)

recipe, out, code, threads = sys.argv[1:]
torch.set_num_threads(int(threads))  # on which bits depend
seqlab.train(recipe, out=out, code=code or None, watcher=Killed())
"""


def runs(rng):
    """Words that count up or down: each is known from its neighbours, and the class from any two of them."""
    start, way = rng.randrange(12), rng.choice([1, -1])
    words = [WORDS[(start + way * place) % 12] for place in range(rng.randint(4, 9))]
    return " ".join(words), "up" if way == 1 else "down"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Many texts without labels, few with labels, and one long text."""
    folder, rng = tmp_path_factory.mktemp("spine"), random.Random(7)
    for name, count in (("many", 1000), ("few", 48), ("valid", 200)):
        rows = ["text\tlabel", *("\t".join(runs(rng)) for _ in range(count))]
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    (folder / "text.txt").write_text("\n".join(runs(rng)[0] for _ in range(800)) + "\n")
    for name in ("masked_pretraining", "distillation", "policy"):
        use_code(SPINE / f"{name}.py")
    return folder


def trained(folder, name, recipe, code=None, steps=40):
    """A run of a recipe, which is also killed and resumed."""
    recipe = {"tokenizer": {"kind": "word", "split": "whitespace"}, **recipe, "name": name}
    recipe["training"] = {**TRAINING, "steps": steps, **recipe.get("training", {})}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    file = None if code is None else SPINE / f"{code}.py"
    run = seqlab.train(path, out=folder / name, code=file)
    killed = folder / f"{name}-killed"
    command = [sys.executable, "-c", KILLED, str(path), str(killed), str(file or ""), str(torch.get_num_threads())]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert sorted(one.name for one in (killed / "checkpoints").iterdir()) == ["step-00000015"]
    seqlab.train(path, out=killed, code=file, resume=True)
    for step in sorted(one.name for one in (folder / name / "checkpoints").iterdir()):
        manifests = [
            json.loads((one / "checkpoints" / step / "MANIFEST.json").read_text()) for one in (run.folder, killed)
        ]
        assert manifests[0] == manifests[1], step  # the hash of every file
    assert (run.folder / "log.jsonl").read_bytes() == (killed / "log.jsonl").read_bytes()
    return run


ENCODER = {"kind": "transformer-encoder", "width": 32, "depth": 1, "heads": 4}


def test_masked_pretraining_then_a_classifier(folder):
    data = {"train": str(folder / "many.tsv"), "valid": str(folder / "valid.tsv")}
    masked = {"task": "masked-text", "data": data, "model": ENCODER, "objective": "fill-in"}
    before = trained(folder, "masked", masked, "masked_pretraining", steps=600)
    assert before.evaluate()["accuracy"] > 0.8
    classifier = {
        "task": {"kind": "classification", "summary": "max"},
        "data": {**data, "train": str(folder / "few.tsv")},
        "model": {"kind": "run"},
        "objective": "classes",
        "init": {"from": str(before.folder), "freeze": ["body.embedding"]},
        "training": {"learning_rate": 0.003},
    }
    after = trained(folder, "classifier", classifier, "masked_pretraining", steps=100)
    assert after.recipe.model == before.recipe.model
    assert after.evaluate()["accuracy"] > 0.85
    embeddings = [one.objective.state_dict()["body.embedding.weight"] for one in (before, after)]
    assert torch.equal(*embeddings)


LANGUAGE = {"task": {"kind": "language-modelling", "window": 16}, "objective": "next-token"}
GPT = {"kind": "gpt", "width": 32, "depth": 1, "heads": 2, "context": 32}


@pytest.fixture(scope="module")
def teacher(folder):
    recipe = {**LANGUAGE, "data": {"train": str(folder / "text.txt")}, "model": GPT}
    return trained(folder, "teacher", recipe, steps=150)


def test_a_teacher_and_a_student_in_one_objective(folder, teacher):
    recipe = {
        **LANGUAGE,
        "data": {"train": str(folder / "text.txt")},
        "model": {"kind": "recurrent", "cell": "gru", "width": 16},
        "objective": {"kind": "distillation", "teacher": {"kind": "run", "from": str(teacher.folder)}},
    }
    student = trained(folder, "student", recipe, "distillation")
    assert {name.split(".")[0] for name in student.objective.state_dict()} == {"body", "teacher"}
    own = {name.removeprefix("teacher."): w for name, w in student.objective.state_dict().items()}
    assert all(torch.equal(own[name.removeprefix("body.")], w) for name, w in teacher.objective.state_dict().items())
    assert student.tokenizer.fingerprint == teacher.tokenizer.fingerprint
    losses = [entry["valid"]["loss"] for entry in student.log if "valid" in entry]
    assert losses[-1] < 2.4  # ln 14 = 2.64 tokens at first
    assert student.generate("w1 w2", tokens=3, temperature=0)


def test_a_policy_samples_in_training_with_a_reward_and_two_updates_a_batch(folder, teacher):
    recipe = {
        **LANGUAGE,
        "data": {"train": str(folder / "text.txt")},
        "model": {"kind": "run", "from": str(teacher.folder)},
        "objective": {"kind": "policy", "reference": {"kind": "run", "from": str(teacher.folder)}},
        "training": {"optimizer": "adam", "schedule": "constant"},
    }
    policy = trained(folder, "policy", recipe, "policy")
    rewards = [-entry["valid"]["loss"] for entry in policy.log if "valid" in entry]
    assert rewards[-1] > 0.5  # a twelfth of the words at first
    assert float(policy.objective.mean) > 0.2  # the running mean is in the checkpoint
    steps = {int(value) for name, value in optimizer(policy).items() if name.endswith(".step")}
    assert steps == {2 * 40}


def optimizer(run):
    from safetensors.torch import load_file

    return load_file(run.folder / "checkpoints" / "step-00000040" / "optimizer.safetensors")
