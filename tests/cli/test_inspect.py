"""`seqlab inspect`: tables and a picture for people, one object for programs."""

from __future__ import annotations

import json

import pytest


def test_gradients(seqlab, runs, here):
    said = seqlab("inspect", "gradients", runs["lstm"], "--length", "12", "--out", "deep/health.svg")
    assert "spectral radius" in said.out
    assert "forget" in said.out
    assert "drawn: deep/health.svg" in said.out
    assert (here / "deep/health.svg").read_text(encoding="utf-8").startswith("<?xml")
    found = json.loads(seqlab("inspect", "gradients", runs["lstm"], "--length", "12", "--json").out)
    assert len(found["distances"]) == len(found["norms"]["h.0"]) == 12
    assert found["matrices"][0]["radius"] > 0


@pytest.mark.parametrize(
    ("recipe", "small"),
    [
        ("forecasting/lstm", ["model.width=8", "training.steps=2"]),
        ("classification/lstm", ["model.width=8", "training.steps=2"]),
        ("tagging/lstm-crf", ["model.width=8", "training.steps=2"]),
    ],
)
def test_gradients_of_what_is_no_language_model(seqlab, here, recipe, small):
    said = seqlab("train", recipe, *small, "--out", "run")
    assert said.code == 0, said.err
    said = seqlab("inspect", "gradients", "run", "--rows", "4", "--length", "9", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert len(found["distances"]) == len(found["norms"]["h.0"]) <= 9
    assert found["norms"]["h.0"][0] > 0
    assert {gate["name"] for gate in found["gates"]} == {"input", "forget", "output"}


def test_surface(seqlab, runs, here):
    said = seqlab("inspect", "surface", runs["gpt"], "--points", "3", "--rows", "2", "--out", "surface.png")
    assert "gradient norm" in said.out
    assert (here / "surface.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(seqlab("inspect", "surface", runs["lstm"], "--points", "3", "--rows", "2", "--json").out)
    assert found["direction"] == "recurrent matrices"
    assert [len(row) for row in found["losses"]] == [3, 3, 3]


@pytest.mark.parametrize("what", ["gpt", "ngram"])
def test_what_is_not_recurrent_has_no_gradients_through_time(seqlab, runs, what):
    said = seqlab("inspect", "gradients", runs[what])
    assert said.code == 2
    assert len(said.errors) == 1
    assert "not recurrent" in said.errors[0]


def test_what_cannot_be(seqlab, runs):
    too_long = seqlab("inspect", "gradients", runs["lstm"], "--length", "1000000")
    assert "smaller --length" in too_long.errors[0]
    no_weights = seqlab("inspect", "surface", runs["ngram"])
    assert (no_weights.code, len(no_weights.errors)) == (2, 1)
