"""`seqlab mix`: a table for people, one object for programs."""

from __future__ import annotations

import json


def test_the_same_run_twice(seqlab, runs, here):
    said = seqlab("mix", runs["lstm"], runs["lstm"], "--out", "mixed", "--device", "cpu", "--json")
    found = json.loads(said.out)
    assert found["run"] == "mixed"
    assert found["fitted"] is True
    assert [one["run"] for one in found["weights"]] == [str(runs["lstm"])] * 2
    assert sum(one["weight"] for one in found["weights"]) == 1


def test_it_says_what_the_weights_were_fitted_on(seqlab, runs, here):
    said = seqlab("mix", runs["ngram"], "--out", "fitted")
    assert "(weights fitted on this data): fitted" in said.out
    given = seqlab("mix", runs["ngram"], "--weight", "2", "--out", "given")
    assert "held-out perplexity" in given.out
    assert "fitted" not in given.out


def test_data_of_ones_own(seqlab, runs, here):
    (here / "other.txt").write_text("the cat sat on the mat.\nhe ran past the river!\n" * 5, encoding="utf-8")
    said = seqlab("mix", runs["ngram"], runs["ngram"], "--data", "other.txt", "--out", "mixed", "--json")
    measured = json.loads(seqlab("evaluate", runs["ngram"], "--data", "other.txt", "--json").out)
    assert json.loads(said.out)["tokens"] == measured["tokens"]
