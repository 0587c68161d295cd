"""Figures drawn from plain data."""

from __future__ import annotations

import logging
import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.inspection.attention_and_beam import BeamTree, Branch, History
    from seqlab.inspection.gradients import Gate, Health
    from seqlab.inspection.surface import Surface

COLOURS = ["#0b6e99", "#d9480f", "#2b8a3e", "#862e9c", "#c2255c", "#5c940d", "#495057", "#e67700"]


def curves(
    lines: Mapping[str, Sequence[Sequence[tuple[float, float]]]],
    path: Path,
    title: str,
    x: str,
    y: str,
    ticks: Sequence[str] = (),
) -> None:
    """Draw a line of points (x, y) for each name and seed. A run with one point becomes a level from there on.

    `ticks` are labels of x = 0, 1, ... if x is not a number.
    """
    figure, axes = _figure(8, 4.6)
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
    if ticks:
        axes.set_xticks(range(len(ticks)), ticks)
    _label(axes, ends, right)
    _dress(axes, title, x, y)
    _save(figure, path)


def attention_history(found: History, path: Path) -> None:
    """Draw target tokens from top to bottom and source tokens from left to right; darker means more attention."""
    height, width = len(found.target), len(found.source)
    figure, axes = _figure(max(3.0, 0.28 * width + 1.5), max(2.4, 0.28 * height + 1.2))
    axes.imshow(found.weights, cmap="Blues", vmin=0, vmax=max(max(row) for row in found.weights), aspect="equal")
    turned = 90 if max(map(len, found.source)) > 2 else 0
    axes.set_xticks(range(width), found.source, rotation=turned, fontsize=9, parse_math=False)  # show $ literally
    axes.set_yticks(range(height), found.target, fontsize=9, parse_math=False)
    axes.set_xlabel("read")
    axes.set_ylabel("written")
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    _save(figure, path)


def search_tree(found: BeamTree, path: Path) -> None:
    """Draw steps from left to right: kept hypotheses in blue, finished ones in green, the best dropped ones in grey."""
    columns: dict[int, list[Branch]] = {}
    for fate in ("kept", "finished", "dropped"):
        for one in found.branches:
            column = columns.setdefault(len(one.ids) - 1, [])
            if one.fate == fate and (fate != "dropped" or sum(other.fate == fate for other in column) < DROPPED):
                column.append(one)
    places = {
        tuple(one.ids): place - (len(column) - 1) / 2 for column in columns.values() for place, one in enumerate(column)
    }
    places[()] = 0.0
    tallest = max(map(len, columns.values()))
    figure, axes = _figure(max(4.0, 0.9 * (len(columns) + 1)), max(2.0, 0.3 * tallest + 0.6))
    for one in [one for column in columns.values() for one in column]:
        node = tuple(one.ids)
        colour = {"kept": COLOURS[0], "finished": COLOURS[2], "dropped": "#adb5bd"}[one.fate]
        heights = [places[node[:-1]], places[node]]
        axes.plot([len(node) - 1, len(node)], heights, color=colour, linewidth=1.0, zorder=1)
        label = f"{one.token} {one.log_probability:.2f}"
        middle = {"ha": "center", "va": "center", "parse_math": False}
        axes.text(len(node), places[node], label, color=colour, fontsize=7, bbox=_PAPER, **middle)
    axes.invert_yaxis()
    axes.set_axis_off()
    _save(figure, path)


DROPPED = 2
"""Number of dropped hypotheses drawn per step."""
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}


def gradient_health(found: Health, path: Path) -> None:
    """Draw panels: gradients by distance, singular values of the recurrent matrices, and gates if there are any."""
    figure, panels = _figure(12 if found.gates else 8, 4.2, columns=3 if found.gates else 2)
    sizes = [size for norms in found.norms.values() for size in norms if size > 0 and math.isfinite(size)]
    for colour, (name, norms) in zip(_cycle(len(found.norms)), found.norms.items(), strict=True):
        points = [(d, size) for d, size in zip(found.distances, norms, strict=True) if size > 0]
        if points:
            panels[0].plot(*zip(*points, strict=True), color=colour, linewidth=1.8, label=name)
    if sizes:
        panels[0].set_yscale("log")
        panels[0].set_ylim(bottom=max(min(sizes), max(sizes) * 1e-12) / 2)
        panels[0].legend(frameon=False, fontsize=8)
    _dress(panels[0], "Gradients through time", "positions before the loss", "‖∂ loss / ∂ state‖")
    for colour, one in zip(_cycle(len(found.matrices)), found.matrices, strict=True):
        panels[1].plot(one.singular, color=colour, linewidth=1.5, label=f"{one.name}: |λ| ≤ {one.radius:.2f}")
    panels[1].axhline(1, color="#adb5bd", linewidth=1, linestyle=":")
    if found.matrices:
        panels[1].legend(frameon=False, fontsize=7)
    _dress(panels[1], "Recurrent matrices", "rank", "singular value")
    if found.gates:
        _gates(panels[2], found.gates)
    _save(figure, path)


def _gates(axes: Any, gates: Sequence[Gate]) -> None:
    for shift, kind in enumerate(("shut", "open")):
        shares = [100 * getattr(gate, kind) for gate in gates]
        places = [number + 0.4 * shift - 0.2 for number in range(len(gates))]
        axes.bar(places, shares, 0.36, color=COLOURS[shift], label="below 0.1" if kind == "shut" else "above 0.9")
    axes.set_xticks(range(len(gates)), [gate.name for gate in gates])
    axes.legend(frameon=False, fontsize=8)
    _dress(axes, "Gates", "", "% of values")


def loss_surface(found: Surface, path: Path) -> None:
    """Draw lines of equal loss, the weights in the middle, and where a step leads with and without clipping."""
    figure, axes = _figure(6.6, 5.2)
    finite = [value for row in found.losses for value in row if math.isfinite(value)]
    top = max(finite)
    losses = [[value if math.isfinite(value) else top for value in row] for row in found.losses]
    low = min(finite)
    steep = top - low > 10 * (sorted(finite)[len(finite) // 2] - low + 1e-12)
    shown = (
        [[math.log10(value - low + 1e-3 * (top - low) + 1e-12) for value in row] for row in losses] if steep else losses
    )
    filled = axes.contourf(found.along, found.across, shown, levels=24, cmap="viridis")
    axes.contour(found.along, found.across, shown, levels=24, colors="white", linewidths=0.3)
    figure.colorbar(filled, label="log₁₀ of the loss above its lowest" if steep else "loss")
    reach = found.along[-1]
    for name, length, colour in (("a plain step", found.step, "#d9480f"), ("clipped", found.clipped, "#ffffff")):
        far, near = length > reach, length < reach / 30
        if not near:
            arrow = {"arrowstyle": "->", "color": colour, "linewidth": 2}
            axes.annotate("", (min(length, reach), 0), (0, 0), arrowprops=arrow)
        note = " (beyond the edge)" if far else " (too short to see)" if near else ""
        axes.plot([], [], color=colour, linewidth=2, label=f"{name}: {length:.3g}{note}")
    axes.plot([0], [0], marker="o", color="#c2255c", markersize=6)
    axes.legend(loc="upper left", fontsize=8, facecolor="#868e96", labelcolor="white")
    _dress(
        axes,
        "The loss around the weights",
        "down the gradient",
        f"across: {found.direction} × (1 + y)" if "recurrent" in found.direction else found.direction,
    )
    axes.grid(False)
    _save(figure, path)


def study_lines(found: Mapping[str, Any], path: Path, title: str) -> None:
    """Draw a metric along the varied value: a line for each arm, a point for each seed, and the baseline."""
    figure, axes = _figure(8, 4.6)
    (along,) = found["along"]
    arms = list(dict.fromkeys(row["arm"] for row in found["table"]))
    for colour, arm in zip(_cycle(len(arms)), arms, strict=True):
        own = [row for row in found["table"] if row["arm"] == arm and row["values"]]
        axes.plot([row["at"] for row in own], [row["median"] for row in own], color=colour, linewidth=1.8, label=arm)
        for row in own:
            places = [row["at"]] * len(row["values"])
            axes.plot(places, row["values"], color=colour, linestyle="", marker="o", markersize=4)
    levels = sorted({(row["at"], row["baseline"]) for row in found["table"] if row["baseline"] is not None})
    if levels:
        axes.plot(*zip(*levels, strict=True), color="#868e96", linestyle="--", linewidth=1.2, label="baseline")
    values = [value for row in found["table"] for value in row["values"]]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        axes.set_yscale("log")
    axes.set_xticks(found["along"][along])
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    _dress(axes, title, along, found["metric"].replace("_", " "))
    _save(figure, path)


def study_bars(found: Mapping[str, Any], path: Path, title: str) -> None:
    """Draw a bar for each arm, a point for each seed, a diamond for published figures, a stroke for the baseline."""
    table = found["table"][::-1]
    figure, axes = _figure(8, 1.4 + 0.38 * len(table))
    names = [row["arm"] if row["at"] is None else f"{row['arm']}, {row['at']}" for row in table]
    axes.barh(names, [row["median"] or 0 for row in table], color=COLOURS[0], alpha=0.35, height=0.6)
    for place, row in enumerate(table):
        places = [place] * len(row["values"])
        axes.plot(row["values"], places, linestyle="", marker="o", markersize=4, color=COLOURS[0])
    for kind, marker in (("printed", "D"), ("baseline", "|")):
        points = [(row[kind], place) for place, row in enumerate(table) if row[kind] is not None]
        if points:
            size = 6 if kind == "printed" else 16
            axes.plot(*zip(*points, strict=True), linestyle="", marker=marker, ms=size, color=COLOURS[1], label=kind)
            axes.legend(frameon=False, fontsize=8)
    _dress(axes, title, found["metric"].replace("_", " "), "")
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", color="#e9ecef")
    _save(figure, path)


def contributions(terms: Mapping[tuple[int, int], float], steps: int, path: Path) -> None:
    """Draw the contribution of each earlier step to the gradient of each output's loss."""
    figure, axes = _figure(6.4, 4.6)
    sizes = [[terms.get((t, k), math.nan) for k in range(steps)] for t in range(steps)]
    some = any(size > 0 for size in terms.values())
    image = axes.imshow(sizes, cmap="viridis", norm="log" if some else None)
    figure.colorbar(image, label="size of the term")
    _dress(axes, "Contributions to ∂J(t)/∂W", "k: the step at which W is used", "t: the output")
    axes.grid(False)
    _save(figure, path)


def errors(found: Mapping[str, Any], path: Path) -> None:
    """Draw two panels for an error report of any kind."""
    drawn = {
        "classes": (_confusion, _calibration),
        "several classes": (_f1, _calibration),
        "tags": (_confusion, _calibration),
        "texts": (_scores, _by_length),
        "forecasts": (_residuals, _steps_ahead),
        "lines": (_bits_of_tokens, _bits_of_lines),
    }[found["kind"]]
    size = min(len(found["confusion"]["labels"]), SHOWN) if "confusion" in found else 0
    figure, panels = _figure(max(10.5, 0.26 * size + 7), max(4.4, 0.26 * size + 1.6), columns=2)
    for axes, draw in zip(panels, drawn, strict=True):
        draw(axes, found)
    _save(figure, path)


SHOWN = 40
"""Maximum number of labels drawn in a confusion matrix: those with the most errors."""


def _confusion(axes: Any, found: Mapping[str, Any]) -> None:
    """Draw the confusion matrix; rows add up to 1. Counts are printed if there is room."""
    labels, counts = found["confusion"]["labels"], found["confusion"]["counts"]
    everything = range(len(labels))
    errors = [sum(counts[one]) + sum(row[one] for row in counts) - 2 * counts[one][one] for one in everything]
    kept = sorted(sorted(everything, key=lambda one: -errors[one])[:SHOWN])
    shares = [[counts[row][column] / max(1, sum(counts[row])) for column in kept] for row in kept]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = [labels[one][:20] for one in kept]
    turned = 90 if len(names) > 6 or max(map(len, names)) > 6 else 0
    axes.set_xticks(range(len(kept)), names, rotation=turned, fontsize=8, parse_math=False)
    axes.set_yticks(range(len(kept)), names, fontsize=8, parse_math=False)
    if len(kept) <= 16:
        for row, own in enumerate(kept):
            for column, other in enumerate(kept):
                if counts[own][other]:
                    colour = "white" if shares[row][column] > 0.5 else "#212529"
                    about = {"ha": "center", "va": "center", "fontsize": 7, "color": colour}
                    axes.text(column, row, f"{counts[own][other]:,}", **about)
    rest = f" ({SHOWN} of {len(labels)} labels, those with the most errors)" if len(labels) > SHOWN else ""
    _dress(axes, f"Confusion matrix{rest}", "found", "given")
    axes.grid(False)
    axes.tick_params(length=0)


def _calibration(axes: Any, found: Mapping[str, Any]) -> None:
    """Draw accuracy against confidence: overconfident below the diagonal. Larger dots stand for more examples."""
    bins = found["calibration"]
    most = max(own["count"] for own in bins)
    axes.plot([0, 1], [0, 1], color="#adb5bd", linewidth=1, linestyle=":")
    points = [own["confidence"] for own in bins], [own["right"] for own in bins]
    axes.plot(*points, color=COLOURS[0], linewidth=1.2)
    axes.scatter(*points, s=[20 + 180 * own["count"] / most for own in bins], color=COLOURS[0], alpha=0.6)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_box_aspect(1)
    _dress(axes, f"Calibration: error {found['ece']:.3f}", "confidence", "share correct")


def _f1(axes: Any, found: Mapping[str, Any]) -> None:
    rows = found["labels"][:SHOWN][::-1]
    axes.barh([row["label"][:20] for row in rows], [row["f1"] for row in rows], color=COLOURS[0], alpha=0.6)
    axes.set_xlim(0, 1)
    _dress(axes, "Labels, worst first", "F1", "")
    axes.grid(axis="y", visible=False)


def _scores(axes: Any, found: Mapping[str, Any]) -> None:
    bars = found["histogram"]
    _bars(axes, bars["edges"], bars["counts"])
    axes.axvline(found["mean_chrf"], color=COLOURS[1], linewidth=1.5, label=f"mean {found['mean_chrf']:.1f}")
    axes.legend(frameon=False, fontsize=8)
    _dress(axes, "Quality of single answers", "chrF of a sentence", "sentences")


def _by_length(axes: Any, found: Mapping[str, Any]) -> None:
    lengths, scores = zip(*found["lengths"], strict=True)
    axes.scatter(lengths, scores, s=9, color=COLOURS[0], alpha=0.35, linewidths=0)
    axes.set_ylim(-2, 102)
    _dress(axes, "Short and long sources", "characters in the source", "chrF of a sentence")


def _residuals(axes: Any, found: Mapping[str, Any]) -> None:
    for colour, (name, bars) in zip(COLOURS, found["histogram"].items(), strict=False):  # at most one per colour
        axes.stairs(bars["counts"], bars["edges"], color=colour, linewidth=1.5, label=name)
    axes.axvline(0, color="#adb5bd", linewidth=1, linestyle=":")
    axes.legend(frameon=False, fontsize=8)
    _dress(axes, "Residuals", "truth − forecast, in units of the column's RMS", "forecasts")


def _steps_ahead(axes: Any, found: Mapping[str, Any]) -> None:
    names = list(dict.fromkeys(row["column"] for row in found["columns"]))
    for colour, name in zip(COLOURS, names, strict=False):
        own = [row for row in found["columns"] if row["column"] == name]
        first = own[0]["rmse"] or 1.0
        points = [row["ahead"] for row in own], [row["rmse"] / first for row in own]
        axes.plot(*points, color=colour, linewidth=1.8, marker="o", markersize=4, label=f"{name}: {first:.3g} at 1")
    axes.set_xticks([row["ahead"] for row in found["columns"] if row["column"] == names[0]][:20])
    axes.legend(frameon=False, fontsize=8)
    _dress(axes, "Further ahead", "steps ahead", "RMSE, relative to one step ahead")


def _bits_of_tokens(axes: Any, found: Mapping[str, Any]) -> None:
    bars = found["histogram"]
    _bars(axes, _closed(bars["edges"]), bars["tokens"])
    mean = found["bits_per_token"]
    if math.isfinite(mean):
        axes.axvline(mean, color=COLOURS[1], linewidth=1.5, label=f"mean {mean:.2f}")
        axes.legend(frameon=False, fontsize=8)
    axes.set_yscale("log")
    _dress(axes, "Surprise of tokens", "bits (−log₂ p); the last bar has all above", "tokens")


def _bits_of_lines(axes: Any, found: Mapping[str, Any]) -> None:
    bars = found["histogram"]
    _bars(axes, _closed(bars["edges"]), bars["lines"])
    _dress(axes, "Surprise of lines", "mean bits of a line's tokens", "lines")


def _closed(edges: Sequence[float]) -> list[float]:
    """Close the last bar, which has no upper end, at the width of the others."""
    return [*edges, edges[-1] + edges[1] - edges[0]]


def _bars(axes: Any, edges: Sequence[float], counts: Sequence[int]) -> None:
    axes.stairs(counts, edges, fill=True, color=COLOURS[0], alpha=0.6)


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # such as warnings about a read-only home
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import font_manager, pyplot

    there = set(font_manager.get_font_names())
    matplotlib.rcParams["font.family"] = ["DejaVu Sans", *(font for font in FONTS if font in there)]
    return pyplot.subplots(1, columns, figsize=(width, height), dpi=150)


FONTS = [
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "WenQuanYi Zen Hei", "Droid Sans Fallback"),
    *("Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Malgun Gothic"),
]
"""Fallback fonts for glyphs missing from the first font, if installed. Other glyphs are drawn as boxes."""


def _dress(axes: Any, title: str, x: str, y: str) -> None:
    _title(axes, title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", color="#e9ecef")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _title(axes: Any, title: str) -> Any:
    return axes.set_title(title, loc="left", fontsize=11, fontweight="bold")


def _wrap_title(axes: Any) -> None:
    """Break the title into as few lines as fit the width of the axes."""
    title, room = axes.get_title(loc="left"), axes.get_window_extent().width
    for columns in range(len(title), NARROWEST, -1):
        if _title(axes, textwrap.fill(title, columns)).get_window_extent().width <= room:
            return


NARROWEST = 12
"""Titles are not broken into lines with fewer characters."""


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.tight_layout()
        for axes in figure.axes:
            _wrap_title(axes)
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    pyplot.close(figure)


def _label(axes: Any, ends: list[tuple[float, str, str]], right: float) -> None:
    """Write names beside the ends of their lines, moved up if they overlap, but not beyond the top."""
    low, high = axes.get_ylim()
    gap = (high - low) * 0.055
    places: list[float] = []
    for value, _, _ in sorted(ends):
        places.append(max(value, places[-1] + gap if places else low))
    for number in reversed(range(len(places))):
        places[number] = min(places[number], high - gap * (len(places) - 1 - number))
    for place, (value, name, colour) in zip(places, sorted(ends), strict=True):
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
