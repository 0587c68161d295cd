"""Pictures of what people have written, whatever that is."""

import warnings

import torch

from seqlab.inspection import figures
from seqlab.inspection.attention_and_beam import BeamTree, Branch, history
from seqlab.inspection.gradients import Health


def test_dollars_and_letters_without_a_font_are_drawn(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odd = ["$$", "$_$", "年", "\U0001f9ff"]
        figures.attention_history(history(torch.eye(4), odd, odd), tmp_path / "attention.png")
        figures.search_tree(BeamTree([], [Branch([1], [], "$_$", -1.0, "kept")]), tmp_path / "tree.png")
    assert (tmp_path / "attention.png").stat().st_size > 1000


def test_powers_on_an_axis_are_not_drawn_as_dollars(tmp_path, monkeypatch):
    labels = []
    monkeypatch.setattr(figures, "_save", lambda figure, path: labels.extend(figure.axes[0].get_yticklabels()))
    figures.gradient_health(Health([1, 2], {"h": [1e-6, 1.0]}, [], []), tmp_path / "health.png")
    assert labels
    assert all(label.get_parse_math() for label in labels)
