"""Pictures of what people have written, whatever that is."""

import warnings

import torch
from matplotlib import pyplot
from matplotlib.text import Text

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


def test_long_titles_stay_within_their_axes(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    title = "From a plain memory to the LSTM, gate by gate, on the characters of Python's documentation"
    row = {"arm": "recurrent-memory", "at": 1, "median": 2.5, "values": [2.4, 2.6], "printed": None, "baseline": None}
    found = {"along": {"silence": [1]}, "metric": "loss", "table": [row]}
    figures.study_bars(found, tmp_path / "bars.png", title)
    figures.study_lines(found, tmp_path / "lines.png", title)
    figures.curves({"lstm": [[(0, 1), (1, 2)]]}, tmp_path / "curves.png", title, "steps", "loss")
    for figure in drawn:
        (axes,) = figure.axes
        (shown,) = [one for one in axes.findobj(Text) if one.get_text() == axes.get_title(loc="left")]
        assert shown.get_text().replace("\n", " ") == title
        box, room = shown.get_window_extent(), axes.get_window_extent()
        assert box.x0 >= room.x0 - 1
        assert box.x1 <= room.x1 + 1
        assert box.y0 >= room.y1
        assert box.y1 <= figure.bbox.y1
    assert len(drawn) == 3
