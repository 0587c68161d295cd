"""Pictures of plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = ["#0b6e99", "#d9480f", "#2b8a3e", "#862e9c", "#c2255c", "#5c940d", "#495057", "#e67700"]


def curves(
    lines: Mapping[str, Sequence[Sequence[tuple[float, float]]]], path: Path, title: str, x: str, y: str
) -> None:
    """A line for each name and seed: points (x, y). A model with one point is drawn as a level from there on."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.6), dpi=150)
    right = max(px for runs in lines.values() for run in runs for px, _ in run)
    ends = []
    for colour, (name, runs) in zip(_cycle(len(lines)), lines.items(), strict=True):
        for run in runs:
            if len(run) == 1:
                (px, py), *_ = run
                axes.plot([px, right], [py, py], color=colour, linewidth=1.8, linestyle="--")
                axes.plot([px], [py], color=colour, marker="o", markersize=5)
            else:
                axes.plot(*zip(*run, strict=True), color=colour, linewidth=1.8, marker="o", markersize=3)
        ends.append((min(run[-1][1] for run in runs), name, colour))
    _label(axes, ends, right)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", color="#e9ecef")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _label(axes: Any, ends: list[tuple[float, str, str]], right: float) -> None:
    """Names beside the ends of their lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    gap = (high - low) * 0.055
    place = -float("inf")
    for value, name, colour in sorted(ends):
        place = max(value, place + gap)
        axes.annotate(
            f"{name} {value:.2f}",
            (right, place),
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=9,
            annotation_clip=False,
        )


def _cycle(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]
