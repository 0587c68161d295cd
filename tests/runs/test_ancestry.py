"""What a run remembers of the data that its ancestors were trained on."""

from __future__ import annotations

import pytest
import yaml

from seqlab.recipe import Recipe
from seqlab.recipe_tree import to_yaml
from seqlab.runs.ancestry import record, trained, trained_by


@pytest.mark.parametrize(
    "changes", [{"data.columns": {"text": "body"}, "data.hold_out": 0.1}, {"data.valid": ["b.csv"]}]
)
@pytest.mark.parametrize("kind", ["classification/lstm", "lm/lstm", "forecasting/lstm"])
def test_the_record_of_a_run_is_what_it_read(kind, changes):
    changes = {key: value for key, value in changes.items() if kind != "forecasting/lstm" or key != "data.columns"}
    recipe = Recipe.load(kind).changed({"data.train": "a.csv", **changes})
    recipe = recipe.model_copy(update={"environment": {"data": "0123-4567"}})
    kept = yaml.safe_load(to_yaml(record(trained_by({"runs/first": recipe}))))
    (own,) = trained(recipe)
    second = recipe.changed({"data.train": "other.csv"})
    second = second.model_copy(update={"environment": kept})
    assert trained(second)[1:] == [own._replace(run="runs/first")]
    assert trained_by({"runs/second": second})[1:] == [own._replace(run="runs/first")]


def test_runs_of_earlier_versions_have_no_record():
    recipe = Recipe.load("lm/lstm").changed({"data.train": "a.txt"})
    assert [one.run for one in trained(recipe)] == [""]
