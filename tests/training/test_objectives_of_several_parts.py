"""Objectives that add several means or learn several times from a batch; the best checkpoint by what is written."""

import json
import random

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tolerance import SMALL_NET, rounding
from torch import nn

import seqlab
from seqlab.cli.average import average as average_command
from seqlab.data.batching.batches import Batch, Examples
from seqlab.objectives.objective import Loss, Mean, Objective
from seqlab.recipe import Recipe, TrainingSettings
from seqlab.training.trainer import Trainer


class Rows(Examples):
    """Rows of numbers, some of which count for one mean and some for the other."""

    def __init__(self, rows):
        super().__init__([1] * len(rows), training=True)
        self.rows = rows

    def batch(self, indices, key):
        rows = self.rows[torch.from_numpy(indices)]
        return Batch(x=rows[:, :3], one=rows[:, 3] > 0, other=rows[:, 4] > 0.5)


class TwoMeans(Objective):
    def __init__(self, updates=1):
        super().__init__()
        self.body, self.updates = nn.Linear(3, 2, dtype=torch.double), updates

    def experience(self, batch):
        return [batch] * self.updates

    def counts(self, batch):
        return {"count": batch["one"].sum(), "other": batch["other"].sum()}

    def forward(self, batch, state=None):
        y, counts = self.body(batch["x"]), self.counts(batch)
        own, other = y[batch["one"], 0].square().sum(), y[batch["other"], 1].exp().sum()
        return Loss(own, counts["count"], others={"other": Mean(other, counts["other"])})


class Losses:
    metric, better = "loss", "lower"

    def metrics(self, totals, split):
        return {"loss": totals["sum"] / totals["count"], "other": totals["other.sum"] / totals["other.count"]}


def train(folder, accumulate, updates=1, steps=6):
    folder.mkdir(exist_ok=True)
    torch.manual_seed(1)
    objective = TwoMeans(updates)
    rows = Rows(torch.randn(40, 5, dtype=torch.double))
    settings = {"steps": steps, "batch_size": 10, "accumulate": accumulate, "learning_rate": 0.1, "clip_norm": None}
    grids = dict.fromkeys(("report_every", "evaluate_every", "checkpoint_every"), 1)
    plain = TrainingSettings.model_validate({**settings, **grids, "optimizer": "sgd", "schedule": "constant"})
    Trainer(objective, Losses(), (rows, rows), plain, folder).run()
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return objective, rows, log


@pytest.mark.parametrize("pieces", [2, 3, 10])
def test_each_mean_is_over_the_whole_batch_however_it_is_cut(tmp_path, pieces):
    """Pieces have 0 to 10 things of each kind: means of means would be others."""
    (whole, _, log), (cut, _, other) = train(tmp_path / "1", 1), train(tmp_path / "n", pieces)
    for a, b in zip(whole.parameters(), cut.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)  # the counts are added up in single precision
    assert [entry["loss"] for entry in log if "loss" in entry] == pytest.approx(
        [entry["loss"] for entry in other if "loss" in entry], rel=1e-6
    )


def test_a_step_is_that_of_the_sum_of_the_means(tmp_path):
    trained, rows, log = train(tmp_path, 4, steps=1)
    torch.manual_seed(1)
    plain = TwoMeans()
    batch = rows.batch(next(iter(rows.order(10, 0).walk()))[1], None)
    y = plain.body(batch["x"])
    loss = y[batch["one"], 0].square().mean() + y[batch["other"], 1].exp().mean()
    loss.backward()
    for own, weight in zip(plain.parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(weight, own - 0.1 * own.grad, rtol=1e-6, atol=1e-7)
    assert log[0]["loss"] == pytest.approx(loss.item(), rel=1e-6)


def test_several_updates_from_a_batch_are_as_many_steps_on_it(tmp_path):
    twice, rows, _ = train(tmp_path / "2", 1, updates=2, steps=1)
    torch.manual_seed(1)
    plain = TwoMeans()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    batch = rows.batch(next(iter(rows.order(10, 0).walk()))[1], None)
    for _ in range(2):
        optimizer.zero_grad()
        y = plain.body(batch["x"])
        (y[batch["one"], 0].square().mean() + y[batch["other"], 1].exp().mean()).backward()
        optimizer.step()
    for a, b in zip(twice.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_the_held_out_loss_has_all_means_in_it(tmp_path):
    trained, rows, log = train(tmp_path, 1, steps=1)
    y = trained.body(rows.rows[:, :3])
    one, other = rows.rows[:, 3] > 0, rows.rows[:, 4] > 0.5
    loss = y[one, 0].square().mean() + y[other, 1].exp().mean()
    assert log[1]["valid"]["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert log[1]["valid"]["other"] == pytest.approx(y[other, 1].exp().mean().item(), rel=1e-6)


def test_experience_is_made_without_dropout(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(TwoMeans, "experience", lambda self, batch: seen.append(self.training) or [batch])
    objective, *_ = train(tmp_path, 2, steps=1)
    assert seen == [False, False]
    assert objective.training


def test_a_model_that_is_not_trained_never_drops_out():
    objective = TwoMeans()
    objective.teacher = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).requires_grad_(False)
    objective.student = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    objective.train()
    assert not objective.teacher[1].training
    assert objective.student[1].training


def uncounted(self, batch, state=None):
    loss = self.body(batch["x"]).sum()
    return Loss(loss, torch.tensor(10), others={"other": Mean(loss, torch.tensor(1))})


FORGOTTEN = {
    "counts": ({"counts": lambda self, batch: {}, "forward": uncounted}, "adds the mean 'other' without a count"),
    "experience": ({"experience": lambda self, batch: []}, "0 batches to learn from"),
}


@pytest.mark.parametrize(("methods", "message"), FORGOTTEN.values(), ids=FORGOTTEN)
def test_what_an_objective_forgot_is_said(tmp_path, monkeypatch, methods, message):
    for name, method in methods.items():
        monkeypatch.setattr(TwoMeans, name, method)
    with pytest.raises(seqlab.SeqlabError, match=message):
        train(tmp_path, 1)


# ---------------------------------------------------------------------- the best by what is written


@pytest.fixture(scope="module")
def translators(tmp_path_factory):
    """Two trainings that differ only in what chooses the best checkpoint; every checkpoint is kept."""
    folder, rng = tmp_path_factory.mktemp("best"), random.Random(3)
    words = ["one", "two", "three", "four"]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 4))) for _ in range(120)]
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "\n".join(f"{one}\t{one}" for one in texts))
    recipe = {
        "task": "translation",
        "data": {"train": str(folder / "pairs.tsv"), "hold_out": 0.2},
        "tokenizer": {"kind": "word", "split": "whitespace"},
        "model": {"kind": "transformer", "width": 32, "depth": 1, "heads": 2},
        "objective": "next-token",
        "training": {"steps": 60, "batch_size": 16, "evaluate_every": 10, "learning_rate": 0.005, "keep": 10},
    }
    plain = Recipe.from_dict(recipe)
    best = plain.changed({"task.best": "chrf", "task.judged": 15})
    return seqlab.train(plain, out=folder / "plain"), seqlab.train(best, out=folder / "best")


def test_the_best_checkpoint_has_the_highest_figure(translators):
    _, best = translators
    figures = {entry["step"]: entry["valid"]["chrf"] for entry in best.log if "valid" in entry}
    assert len(set(figures.values())) > 2
    highest = max(figures.values())
    assert best.step == min(step for step, figure in figures.items() if figure == highest)
    assert not (best.folder / "best").read_text().startswith(f"step-{min(figures):08d}")
    loaded = seqlab.load(best.folder)
    answers = list(loaded.answers(loaded.held_out()))[:15]
    from seqlab.metrics.judging import judge

    targets = loaded.task.references(loaded.held_out())[:15]
    value = judge(["chrf"], [one["answer"] for one in answers], [[one] for one in targets])["chrf"].value
    assert value == pytest.approx(highest)


def test_judging_changes_no_weight(translators):
    plain, best = translators
    last = [seqlab.load(run.folder, checkpoint="last") for run in translators]
    for a, b in zip(*(run.objective.parameters() for run in last), strict=True):
        assert torch.equal(a, b)
    losses = [[entry["valid"]["loss"] for entry in run.log if "valid" in entry] for run in (plain, best)]
    assert losses[0] == pytest.approx(losses[1], abs=rounding(SMALL_NET, 5))


def test_only_the_first_pairs_are_judged(translators, monkeypatch):
    _, best = translators
    kind, asked = type(best.task), []
    answers = kind.answers

    def counted(self, objective, batch):
        asked.append(len(batch.records))
        return answers(self, objective, batch)

    monkeypatch.setattr(kind, "answers", counted)
    best.task.judged(best.objective, best.held_out(), 16)
    assert sum(asked) == 15


def test_an_average_is_judged_too(translators, tmp_path):
    _, best = translators
    averaged = seqlab.average(best.folder, out=tmp_path / "averaged", last=2)
    assert averaged.log[0]["valid"]["chrf"] > 0
    again = [str(best.folder), "--out", str(tmp_path / "again"), "--last", "2"]
    said = CliRunner().invoke(average_command, again)
    assert said.exit_code == 0, said.output
    highest = max(entry["valid"]["chrf"] for entry in best.log if "valid" in entry)
    assert f"best checkpoint of {best.folder}: {highest:.4f}" in said.output


def test_a_figure_that_is_none_is_said_before_the_training(translators, tmp_path):
    plain, _ = translators
    for name in ("blue", "rouge"):
        with pytest.raises(seqlab.SeqlabError, match=f"'{name}' cannot choose the best checkpoint"):
            seqlab.train(plain.recipe.changed({"task.best": name}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert np.isfinite(plain.evaluate()["loss"])
