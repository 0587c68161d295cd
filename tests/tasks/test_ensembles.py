"""Ensembles of translators: `seqlab mix` makes a run that translates, is evaluated and is looked at like any other."""

import json

import pytest
import torch
from small_translations import recipe, reversals, run_command
from tolerance import SMALL_NET, close

import seqlab
from seqlab.data.randomness import Key
from seqlab.errors import SeqlabError


@pytest.fixture(scope="module")
def ensemble(reverser, tmp_path_factory):
    """Of a recurrent translator that is right and a Transformer that has hardly begun."""
    folder = tmp_path_factory.mktemp("ensemble")
    other = {"model": {"kind": "transformer", "width": 32, "depth": 1, "heads": 2}, "training.steps": 40}
    seqlab.train(reverser.recipe.changed(other), out=folder / "other")
    weights = ["--weight", 3, "--weight", 1]
    found = run_command("mix", reverser.folder, folder / "other", *weights, "--out", folder / "mixed", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["perplexity"] > 1
    return [reverser, seqlab.load(folder / "other"), seqlab.load(folder / "mixed")]


@torch.no_grad()
def test_it_predicts_the_weighted_mean(ensemble):
    split = ensemble[0].held_out()
    batch = split.batch(list(range(6)), Key(0, 0))
    chances = [run.model.logits(run.objective.read(batch, None).states).softmax(-1)[batch["mask"]] for run in ensemble]
    close(chances[2], 0.75 * chances[0] + 0.25 * chances[1], steps=SMALL_NET)


def test_it_answers_and_is_judged_as_a_command(ensemble):
    folder = ensemble[2].folder
    found = run_command("predict", folder, "--n-best", 2, "--alignments", "--json", text="one two three\n\nsix five\n")
    answers = [json.loads(line) for line in found.stdout.splitlines()]
    assert [one["answer"] for one in answers][::2] == ["three two one", "five six"]
    assert all(len(one["n_best"]) == 2 and one["alignment"] for one in answers)
    figures = json.loads(run_command("evaluate", folder, "--metric", "exact", "--json").stdout)
    assert figures["exact"] >= 95


def test_what_its_parts_have_not_looked_at_counts(ensemble):
    """The mean of the parts' attention, though one of them pads its sources."""
    plain, covered = (ensemble[2].changed({"decoding.coverage_penalty": penalty}) for penalty in (0.0, 0.5))
    source = plain.task.prompts(["one two three four five"]).source
    (without,), (missed,) = (run.task.searched(run.decoder, source)[0] for run in (plain, covered))
    assert without.tokens == missed.tokens
    assert missed.rank < without.rank


def test_runs_that_read_other_things_are_not_mixed(reverser, tmp_path):
    """One reads a label first."""
    rows = [{**row, "tone": ("loud", "quiet")[n % 2]} for n, row in enumerate(reversals())]
    conditions = {"tone": "label", "source": "text"}
    run = seqlab.train(recipe(tmp_path, rows, conditions), out=tmp_path / "run")
    with pytest.raises(SeqlabError, match="its task differs"):
        seqlab.mix([reverser.folder, run.folder], out=tmp_path / "mixed", weights=[1, 1])
