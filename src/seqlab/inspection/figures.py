"""Pictures of plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab.inspection.gradients import Health
    from seqlab.inspection.surface import Surface

COLOURS = ["#0b6e99", "#d9480f", "#2b8a3e", "#862e9c", "#c2255c", "#5c940d", "#495057", "#e67700"]


def curves(
    lines: Mapping[str, Sequence[Sequence[tuple[float, float]]]], path: Path, title: str, x: str, y: str
) -> None:
    """A line for each name and seed: points (x, y). A model with one point is drawn as a level from there on."""
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
    _label(axes, ends, right)
    _dress(axes, title, x, y)
    _save(figure, path)


def gradient_health(found: Health, path: Path) -> None:
    """Three panels: gradients against distance, singular values of the recurrent matrices, and gates."""
    figure, panels = _figure(12, 4.2, columns=3)
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
    names = [gate.name for gate in found.gates]
    for shift, kind in enumerate(("shut", "open")):
        shares = [100 * getattr(gate, kind) for gate in found.gates]
        places = [number + 0.4 * shift - 0.2 for number in range(len(names))]
        label = "below 0.1" if kind == "shut" else "above 0.9"
        panels[2].bar(places, shares, 0.36, color=COLOURS[shift], label=label)
    panels[2].set_xticks(range(len(names)), names)
    if names:
        panels[2].legend(frameon=False, fontsize=8)
    _dress(panels[2], "Gates" if names else "No gates", "", "% of values")
    _save(figure, path)


def loss_surface(found: Surface, path: Path) -> None:
    """Lines of equal loss, the weights in the middle, and where a step leads with and without clipping."""
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


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(1, columns, figsize=(width, height), dpi=150)


def _dress(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", color="#e9ecef")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

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
